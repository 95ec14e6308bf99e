//! Errors for requests without a leader: which voters this node cannot reach.
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
    let fault = |reason, message: String| {
        error_texts::of_call(requested, ApiError::new(Code::Unavailable, reason, message)).leaderless(silence)
    };
    if reached >= majority {
        let message = format!("{silent}, though {reached} of {all} voters answer; nothing happened");
        return fault(ErrorReason::NoLeader, message);
    }
    let names = missing.join(", ");
    let message = format!(
        "{silent}: {reached} of {all} voters can be reached, {majority} are needed; not {names}; nothing happened"
    );
    fault(ErrorReason::NoQuorum, message).about("silentVoters", names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_without(requested: CallKind, all: usize, missing: &[&str]) -> ApiError {
        let missing = missing.iter().map(|name| (*name).to_owned()).collect();
        let fault = fault(requested, Duration::from_millis(12_900), &Voters { all, missing });
        assert_eq!((fault.code(), fault.metadata("leaderlessMs")), (Code::Unavailable, Some("12900")));
        fault
    }

    #[test]
    fn missing_voters_are_named_and_stale_helps_only_a_read() {
        let write = fault_without(CallKind::Write, 3, &["b", "c"]);
        let expected =
            "no leader was heard for 12 s: 1 of 3 voters can be reached, 2 are needed; not b, c; nothing happened";
        assert_eq!(write.to_string(), expected);
        assert_eq!((write.metadata("silentVoters"), write.metadata("staleHelps")), (Some("b, c"), None));
        let read = fault_without(CallKind::Read, 3, &["b", "c"]);
        assert_eq!(read.to_string(), expected);
        assert_eq!(read.metadata("staleHelps"), Some("true"));
    }

    #[test]
    fn majority_without_leader_has_its_own_error() {
        let fault = fault_without(CallKind::Write, 3, &["c"]);
        assert_eq!(fault.to_string(), "no leader was heard for 12 s, though 2 of 3 voters answer; nothing happened");
        assert_eq!((fault.reason(), fault.metadata("silentVoters")), (ErrorReason::NoLeader, None));
    }
}
