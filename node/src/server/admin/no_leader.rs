//! Errors for requests without a leader: which voters this node cannot reach, and what the operator can do.
//!
//! A node that has heard no leader for longer than an election takes returns the error at once. During a possible
//! election it returns the error at the deadline, without the list of voters.

use std::time::{Duration, Instant};

use reveille_proto::admin::v1::ErrorReason;
use reveille_raft::Member;
use tonic::Code;

use super::error_texts::CallKind;
use super::{Admin, ApiError, ApiResult, Call, error_texts};

/// The response is sent this long before the deadline.
const MARGIN: Duration = Duration::from_millis(100);

/// The voters, and which of them this node cannot reach.
struct Voters {
    all: usize,
    missing: Vec<String>,
}

impl Admin {
    /// Returns the error for a request without a leader; nothing happened. If no election can be running, it asks the
    /// voters which of them answer.
    pub(crate) async fn no_leader(&self, requested: CallKind, call: &Call) -> ApiError {
        let Some(silence) = self.context.replica.leaderless_for() else {
            return error_texts::no_leader(requested, self.leader().as_ref());
        };
        let voters: Vec<_> = self.context.replica.members().into_iter().filter(|(_, member)| member.votes).collect();
        let left = call.deadline.saturating_duration_since(Instant::now()).saturating_sub(MARGIN);
        let described = self.descriptions(voters.iter().map(|(node, _)| *node), left).await;
        let missing = voters.iter().filter(|(node, _)| !described.contains_key(node));
        let mut missing: Vec<String> = missing.map(|(_, Member { name, .. })| name.clone()).collect();
        missing.sort_unstable();
        fault(requested, silence, &Voters { all: voters.len(), missing })
    }

    /// Checks that this node hears a leader, or that an election may still be running.
    ///
    /// # Errors
    /// If no leader was heard for longer than an election takes.
    pub(crate) async fn led(&self, call: &Call) -> ApiResult<()> {
        match self.context.replica.leaderless_for() {
            Some(_) => Err(self.no_leader(CallKind::Write, call).await),
            None => Ok(()),
        }
    }
}

fn fault(requested: CallKind, silence: Duration, voters: &Voters) -> ApiError {
    let Voters { all, missing } = voters;
    let (reached, majority) = (all - missing.len(), all / 2 + 1);
    let silent = format!("no leader was heard for {} s", silence.as_secs());
    let stale = match requested {
        CallKind::Read => "; --stale reads what this node knows",
        CallKind::Write => "",
    };
    if reached >= majority {
        let message = format!("{silent}, though {reached} of {all} voters answer; nothing happened");
        let next = format!("reveille cluster status, and the nodes' logs: what keeps them from electing one{stale}");
        return ApiError::new(Code::Unavailable, ErrorReason::NoLeader, message).next(next).leaderless(silence);
    }
    let names = missing.join(", ");
    let message = format!(
        "{silent}: {reached} of {all} voters can be reached, {majority} are needed; not {names}; nothing happened"
    );
    let next = format!("start {names} (reveille cluster status shows which nodes answer){stale}");
    ApiError::new(Code::Unavailable, ErrorReason::NoQuorum, message).next(next).leaderless(silence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_and_next(requested: CallKind, all: usize, missing: &[&str]) -> (String, String) {
        let missing = missing.iter().map(|name| (*name).to_owned()).collect();
        let fault = fault(requested, Duration::from_millis(12_900), &Voters { all, missing });
        let next = fault.metadata("next").unwrap_or_default().to_owned();
        assert_eq!((fault.code(), fault.metadata("leaderlessMs")), (Code::Unavailable, Some("12900")));
        (fault.to_string(), next)
    }

    #[test]
    fn missing_voters_are_named_and_only_a_read_suggests_stale() {
        let (message, next) = message_and_next(CallKind::Write, 3, &["b", "c"]);
        let expected =
            "no leader was heard for 12 s: 1 of 3 voters can be reached, 2 are needed; not b, c; nothing happened";
        assert_eq!(message, expected);
        assert_eq!(next, "start b, c (reveille cluster status shows which nodes answer)");
        let (same, next) = message_and_next(CallKind::Read, 3, &["b", "c"]);
        assert_eq!(same, message);
        assert!(next.ends_with("; --stale reads what this node knows"), "{next}");
    }

    #[test]
    fn majority_without_leader_has_its_own_error() {
        let (message, next) = message_and_next(CallKind::Write, 3, &["c"]);
        assert_eq!(message, "no leader was heard for 12 s, though 2 of 3 voters answer; nothing happened");
        assert!(next.starts_with("reveille cluster status") && !next.contains("--stale"), "{next}");
    }
}
