//! Tests of the texts and reasons of errors.

use tonic_types::StatusExt;

use super::*;

#[test]
fn only_what_may_have_happened_says_so() {
    let unknown = not_proposed(&ProposeError::Unknown, None);
    assert_eq!((unknown.code(), unknown.reason()), (Code::DeadlineExceeded, ErrorReason::OutcomeUnknown));
    for error in [ProposeError::NoLeader, ProposeError::NotReady, ProposeError::Busy, ProposeError::Stopped] {
        let fault = not_proposed(&error, None);
        assert_eq!(fault.code(), Code::Unavailable, "{fault:?}");
        assert!(fault.to_string().ends_with("; nothing happened"), "{fault:?}");
    }
}

#[test]
fn without_a_quorum_a_read_says_whether_a_leader_is_known() {
    let leader = Member { name: "b".to_owned(), address: "10.0.0.2:7601".to_owned(), votes: true, key: None };
    assert_eq!(not_read(ReadError::NoLeader, Some(&leader)).reason(), ErrorReason::NoQuorum);
    assert_eq!(not_read(ReadError::NoLeader, None).reason(), ErrorReason::NoLeader);
}

#[test]
fn error_names_the_known_leader() {
    let leader = Member { name: "b".to_owned(), address: "10.0.0.2:7601".to_owned(), votes: true, key: None };
    let hint = |fault: ApiError| {
        let info = tonic::Status::from(fault).get_details_error_info().expect("a reason");
        (info.metadata.get("leader").cloned(), info.metadata.get("leaderAddress").cloned())
    };
    let named = (Some("b".to_owned()), Some("10.0.0.2:7601".to_owned()));
    for error in [ProposeError::NoLeader, ProposeError::Busy, ProposeError::Unknown, ProposeError::Stopped] {
        assert_eq!(hint(not_proposed(&error, Some(&leader))), named, "{error}");
    }
    assert_eq!(hint(not_read(ReadError::Behind(7), Some(&leader))), named);
    assert_eq!(hint(not_read(ReadError::NoLeader, None)), (None, None));
}

#[test]
fn refusals_keep_their_words() {
    let fault = refused(&CommandRefusal::NameTaken("daily".to_owned()));
    assert_eq!(
        format!("{fault:?}"),
        format!("{} NAME_TAKEN: {}", Code::AlreadyExists, CommandRefusal::NameTaken("daily".to_owned()))
    );
    assert_eq!(refused(&CommandRefusal::StalePlan).reason(), ErrorReason::EtagMismatch);
    let status = tonic::Status::from(refused_of("daily", &CommandRefusal::StalePlan));
    let details = status.get_details_error_info().expect("details");
    assert_eq!(details.metadata.get("schedule").map(String::as_str), Some("daily"));
}
