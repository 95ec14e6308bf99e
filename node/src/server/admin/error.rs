//! Errors of the API: what failed, where and why, for programs and for people. The command line adds the command to try
//! next (`cli::failure`).
//!
//! Every service returns this type. It becomes a gRPC status with the details that `errors.proto` describes. Only with
//! the reason `OUTCOME_UNKNOWN` the request may have taken effect; with all others it has not.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use reveille_proto::admin::v1::ErrorReason;
use reveille_raft::Member;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of all reasons in the error details.
const DOMAIN: &str = "reveille";
/// Maximum number of invalid fields in one error. The message counts the others.
const FIELDS_MAX: usize = 20;
/// Metadata key of [`ApiError::request`].
pub const REQUEST_ID: &str = "requestId";
/// Metadata key of [`ApiError::leaderless`].
pub const LEADERLESS: &str = "leaderlessMs";
/// Wait before a repeat that may succeed soon.
const RETRY_SOON: Duration = Duration::from_secs(1);
/// Wait where an operator must free space first, or another node must answer.
const RETRY_NO_ROOM: Duration = Duration::from_secs(30);

/// Result of a call of the API.
pub type ApiResult<T> = Result<T, ApiError>;

/// An error of the API.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("{} {}: {}", self.0.code, word(self.0.reason), self.0.message)]
pub struct ApiError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    reason: ErrorReason,
    message: String,
    /// Keys and values, as `errors.proto` lists them.
    metadata: Vec<(&'static str, String)>,
    fields: Vec<FieldViolation>,
}

/// An invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field in the request.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// The reason code for programs.
    pub reason: ErrorReason,
}

impl ApiError {
    /// Creates an error without details.
    pub fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> ApiError {
        let message = message.into();
        ApiError(Box::new(Inner { code, reason, message, metadata: Vec::new(), fields: Vec::new() }))
    }

    /// Creates an error from invalid fields. The first field gives the reason. Returns `None` if the list is empty.
    pub fn of_fields(mut wrong: Vec<FieldViolation>) -> Option<ApiError> {
        let first = wrong.first()?;
        let more = match wrong.len() - 1 {
            0 => String::new(),
            1 => " (and 1 more field)".to_owned(),
            more => format!(" (and {more} more fields)"),
        };
        let message = format!("{}: {}{more}", first.field, first.message);
        let mut fault = ApiError::new(Code::InvalidArgument, first.reason, message);
        wrong.truncate(FIELDS_MAX);
        fault.0.fields = wrong;
        Some(fault)
    }

    /// Creates an error for one invalid field.
    pub fn of_field(field: impl Into<String>, message: impl Into<String>) -> ApiError {
        let violation =
            FieldViolation { field: field.into(), message: message.into(), reason: ErrorReason::InvalidField };
        let message = format!("{}: {}", violation.field, violation.message);
        let mut fault = ApiError::new(Code::InvalidArgument, violation.reason, message);
        fault.0.fields = vec![violation];
        fault
    }

    fn with(mut self, key: &'static str, value: String) -> ApiError {
        if !value.is_empty() {
            self.0.metadata.push((key, value));
        }
        self
    }

    /// Adds the name of an object that the error concerns. `kind` is a key that `errors.proto` lists, such as `run`.
    pub fn about(self, kind: &'static str, name: impl ToString) -> ApiError {
        self.with(kind, name.to_string())
    }

    /// Says that the same read would be answered with `stale`.
    pub fn stale_helps(self) -> ApiError {
        self.with("staleHelps", "true".to_owned())
    }

    /// Appends similar names to the message: `did you mean …?`. Changes nothing if there are none.
    pub fn near(mut self, names: &[String]) -> ApiError {
        if !names.is_empty() {
            self.0.message.push_str(&format!("; did you mean {}?", names.join(", ")));
        }
        self
    }

    /// Renames the invalid fields, for a request whose parts are checked like those of another one.
    pub fn rename_fields(mut self, rename: impl Fn(&str) -> String) -> ApiError {
        if let Some(first) = self.0.fields.first()
            && let Some(rest) = self.0.message.strip_prefix(&first.field)
        {
            self.0.message = format!("{}{rest}", rename(&first.field));
        }
        for violation in &mut self.0.fields {
            violation.field = rename(&violation.field);
        }
        self
    }

    /// Adds the id with which the request can be repeated. Changes nothing if it is empty.
    pub fn request(self, id: &str) -> ApiError {
        self.with(REQUEST_ID, id.to_owned())
    }

    /// Adds name and address of the leader. Changes nothing if it is not known.
    pub fn leader(self, leader: Option<&Member>) -> ApiError {
        let Some(leader) = leader else { return self };
        self.with("leader", leader.name.clone()).with("leaderAddress", leader.address.clone())
    }

    /// Adds for how long no leader was heard. With this key a client need not wait for a leader.
    pub fn leaderless(self, silence: Duration) -> ApiError {
        self.with(LEADERLESS, silence.as_millis().to_string())
    }

    /// Adds the log index that the error refers to.
    pub fn index(self, index: u64) -> ApiError {
        self.with("index", index.to_string())
    }

    /// Returns the gRPC code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the metadata value of a key.
    #[cfg(test)]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.0.metadata.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// Returns the reason.
    pub fn reason(&self) -> ErrorReason {
        self.0.reason
    }
}

/// Returns `NO_QUORUM` for `ERROR_REASON_NO_QUORUM`.
fn word(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

/// Returns how long to wait before the same request is repeated. `None`: a repeat gets the same answer, or the outcome
/// is unknown, which a repeat with the same request id may settle at once.
fn retry_delay(code: Code, reason: ErrorReason) -> Option<Duration> {
    match (code, reason) {
        (_, ErrorReason::NoRoom) => Some(RETRY_NO_ROOM),
        (Code::Unavailable | Code::ResourceExhausted, _)
        | (Code::Aborted, ErrorReason::BodyTimedOut | ErrorReason::ConcurrentChange) => Some(RETRY_SOON),
        _ => None,
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl From<ApiError> for Status {
    fn from(fault: ApiError) -> Status {
        let Inner { code, reason, message, metadata, fields } = *fault.0;
        let metadata: HashMap<String, String> =
            metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut details = ErrorDetails::with_error_info(word(reason), DOMAIN, metadata);
        if let Some(delay) = retry_delay(code, reason) {
            details.set_retry_info(Some(delay));
        }
        for FieldViolation { field, message, .. } in fields {
            details.add_bad_request_violation(field, message);
        }
        Status::with_error_details(code, message, details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_says_its_reason_its_fields_and_its_object() {
        let wrong = |field: &str| FieldViolation {
            field: field.to_owned(),
            message: "is missing".to_owned(),
            reason: ErrorReason::InvalidField,
        };
        let fault = ApiError::of_fields(vec![wrong("schedule.zone"), wrong("schedule.name")]).expect("two fields");
        let status = Status::from(fault.about("schedule", "daily").request("").index(7));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "schedule.zone: is missing (and 1 more field)");
        let details = status.get_error_details();
        let info = details.error_info().expect("a reason");
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("INVALID_FIELD", "reveille"));
        assert_eq!(info.metadata.get("schedule").map(String::as_str), Some("daily"));
        assert_eq!(info.metadata.get("index").map(String::as_str), Some("7"));
        assert_eq!(info.metadata.get(REQUEST_ID), None);
        let fields = &details.bad_request().expect("fields").field_violations;
        let fields: Vec<&str> = fields.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["schedule.zone", "schedule.name"]);
        assert_eq!(ApiError::of_fields(Vec::new()), None);
    }

    #[test]
    fn only_an_error_that_a_repeat_may_end_says_when() {
        let delay = |code, reason| {
            let status = Status::from(ApiError::new(code, reason, "no"));
            status.get_details_retry_info().and_then(|info| info.retry_delay)
        };
        assert_eq!(delay(Code::Unavailable, ErrorReason::NoLeader), Some(RETRY_SOON));
        assert_eq!(delay(Code::ResourceExhausted, ErrorReason::NoRoom), Some(RETRY_NO_ROOM));
        assert_eq!(delay(Code::Aborted, ErrorReason::BodyTimedOut), Some(RETRY_SOON));
        assert_eq!(delay(Code::Aborted, ErrorReason::ConcurrentChange), Some(RETRY_SOON));
        for (code, reason) in [
            (Code::Aborted, ErrorReason::EtagMismatch),
            (Code::FailedPrecondition, ErrorReason::NotPossible),
            (Code::DeadlineExceeded, ErrorReason::OutcomeUnknown),
        ] {
            assert_eq!(delay(code, reason), None, "{reason:?}");
        }
    }
}
