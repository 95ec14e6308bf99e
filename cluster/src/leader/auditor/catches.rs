//! The catches of the auditor: their metric labels and log lines.
//!
//! The sweeps of the auditor report each catch here. Invariant: each line says what happened, and what the operator
//! does next.

/// Something that the auditor drives on, because no other actor of the leader did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditorCatch {
    /// The audit of a run panicked twice.
    FailingRun,
    /// Runs wait for a part of an audience that no live node has.
    MissingPart,
    /// Nodes whose lease is over have claims.
    OwnerLost,
    /// Runs have recipients to send, and their deadline has passed.
    PastDeadline,
    /// A recipient in doubt is decided by the policy of its run.
    DecidedByPolicy,
}

impl AuditorCatch {
    /// Counts and logs the catch. `count` is the number of runs, claims or parts.
    pub fn report(self, count: usize) {
        let cause = self.label();
        tracing::warn!(cause, count, "{}", self.message());
        metrics::counter!("reveille_auditor_catches_total", "cause" => cause).increment(count as u64);
    }

    /// Label of the metric.
    fn label(self) -> &'static str {
        match self {
            AuditorCatch::FailingRun => "a run at which the auditor fails",
            AuditorCatch::MissingPart => "a part that no live node has",
            AuditorCatch::OwnerLost => "owner lost",
            AuditorCatch::PastDeadline => "past its deadline",
            AuditorCatch::DecidedByPolicy => "in doubt, decided by policy",
        }
    }

    /// Returns the log line: what happened, and after a semicolon what the operator does next.
    fn message(self) -> &'static str {
        match self {
            AuditorCatch::FailingRun => {
                "checking a run panicked twice, so the run is halted; this is a bug: report it with the lines above"
            }
            AuditorCatch::MissingPart => {
                "runs wait for a part of their audience that no live node has; start the nodes that are down, or \
                 import the same list again"
            }
            AuditorCatch::OwnerLost => {
                "a node lost its lease, so its claims are taken back and their open emails are in doubt; start that \
                 node again with its data and journal folders (reveille cluster status names it)"
            }
            AuditorCatch::PastDeadline => {
                "runs reached finish_by before all was sent, so the rest expires; reveille explain says what kept a \
                 recipient"
            }
            AuditorCatch::DecidedByPolicy => {
                "an email in doubt is decided by the in-doubt policy of its run; nothing to do, and reveille explain \
                 shows the decision"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_catch_says_what_happened_and_what_to_do() {
        for catch in [
            AuditorCatch::FailingRun,
            AuditorCatch::MissingPart,
            AuditorCatch::OwnerLost,
            AuditorCatch::PastDeadline,
            AuditorCatch::DecidedByPolicy,
        ] {
            let message = catch.message();
            let steps = ["report it", "start th", "reveille explain"];
            let (_, next) = message.split_once("; ").expect("what happened; what to do");
            assert!(steps.iter().any(|step| next.contains(step)), "{message}");
            assert!(!message.contains('\n') && !message.contains("  "), "one line: {message}");
        }
    }
}
