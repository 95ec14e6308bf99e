//! What became of one recipient of a claim, and how operators see it counted.

use reveille_ledger::command::{Refused, RelayReply, ReleaseReason, ReplyScope, Unsendable};

use super::journal::Place;
use crate::smtp::GateRefusal;

/// Characters of a relay's answer that go into the ledger.
const TEXT_MAX: usize = 200;

/// What became of one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The relay took it.
    Accepted,
    /// Of a test email: the relay that was asked, its words where it took the email, and what became of it.
    Test(RelayReply, Box<DeliveryOutcome>),
    /// Definitely not handed off.
    Released(ReleaseReason),
    /// Not handed off, because it opted out.
    Suppressed,
    /// Definitely refused.
    Refused(Refused),
    /// Handed off, and the answer is not known.
    InDoubt,
    /// It cannot be composed.
    Unsendable(Unsendable),
}

impl DeliveryOutcome {
    /// Whatever kept a gate closed, nothing was handed off. For a recipient that has left the claim this is evidence: it
    /// resolves a doubt of a claim that was revoked, and else changes nothing (P14). `None` where an earlier hand-off of
    /// the same claim may be in flight: its own outcome is settled, or that of the next life's recovery.
    pub(crate) fn of_closed_gate(refusal: GateRefusal) -> Option<DeliveryOutcome> {
        Some(DeliveryOutcome::Released(match refusal {
            GateRefusal::BegunBefore => return None,
            GateRefusal::OptedOut => return Some(DeliveryOutcome::Suppressed),
            GateRefusal::NotInClaim => ReleaseReason::NotInClaim,
            GateRefusal::RunPaused => ReleaseReason::RunPaused,
            GateRefusal::RunEnded => ReleaseReason::RunEnded,
            GateRefusal::LeaseOver => ReleaseReason::LeaseOver,
            GateRefusal::PastDeadline => ReleaseReason::PastDeadline,
            GateRefusal::JournalFailed => ReleaseReason::JournalFailed,
            GateRefusal::Stopping => ReleaseReason::Stopping,
        }))
    }

    /// Counts it.
    pub(crate) fn count(&self) {
        let (outcome, reason) = self.words();
        metrics::counter!("reveille_emails_total", "outcome" => outcome, "reason" => reason).increment(1);
    }

    /// Outcome and reason, as the history and the metrics name them.
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            DeliveryOutcome::Test(_, outcome) => outcome.words(),
            DeliveryOutcome::Accepted => ("accepted", ""),
            DeliveryOutcome::Suppressed => ("suppressed", "opted_out"),
            DeliveryOutcome::InDoubt => ("in_doubt", ""),
            DeliveryOutcome::Unsendable(_) => ("unsendable", ""),
            DeliveryOutcome::Refused(refused) => match refused.scope {
                // No relay answered it (P6).
                ReplyScope::Relay if refused.code == 0 => ("released", "no_relay"),
                ReplyScope::Unnamed => ("refused", "unnamed"),
                ReplyScope::Mailbox => ("refused", "mailbox"),
                ReplyScope::Deferred => ("refused", "deferred"),
                ReplyScope::Relay => ("refused", "relay"),
                ReplyScope::Policy => ("refused", "policy"),
            },
            DeliveryOutcome::Released(why) => ("released", released(*why)),
        }
    }
}

/// No relay can take it now: it is pending again after a while, uncounted (P6).
pub(crate) fn no_relay(place: Place, cause: &str) -> DeliveryOutcome {
    without_answer(place, cause, ReplyScope::Relay)
}

/// The relay broke the dialogue after RCPT: the attempt counts (P6).
pub(crate) fn unanswered(place: Place, cause: &str) -> DeliveryOutcome {
    without_answer(place, cause, ReplyScope::Unnamed)
}

fn without_answer(place: Place, cause: &str, scope: ReplyScope) -> DeliveryOutcome {
    let text = clip(cause);
    DeliveryOutcome::Refused(Refused { slot: place.slot, code: 0, enhanced: None, text, scope })
}

/// Why an email cannot be composed.
pub(crate) fn not_composed(cause: &str) -> DeliveryOutcome {
    DeliveryOutcome::Unsendable(Unsendable::NotComposed(clip(cause)))
}

/// At most [`TEXT_MAX`] characters, on one line.
pub(crate) fn clip(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(TEXT_MAX).collect()
}

fn released(why: ReleaseReason) -> &'static str {
    match why {
        ReleaseReason::Busy => "busy",
        ReleaseReason::Paced => "paced",
        ReleaseReason::SessionEnded => "session_ended",
        ReleaseReason::NotInClaim => "not_in_claim",
        ReleaseReason::RunPaused => "run_paused",
        ReleaseReason::RunEnded => "run_ended",
        ReleaseReason::PastDeadline => "past_deadline",
        ReleaseReason::LeaseOver => "lease_over",
        ReleaseReason::JournalFailed => "journal_failed",
        ReleaseReason::Stopping => "stopping",
        ReleaseReason::OwnerDied => "owner_died",
        ReleaseReason::OwnerDiedPreparing => "owner_died_composing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_recipients_are_not_counted_as_refused() {
        let refused = |code, scope| {
            let text = "circuit open: connection refused".to_owned();
            DeliveryOutcome::Refused(Refused { slot: 1, code, enhanced: None, text, scope }).words()
        };
        assert_eq!(refused(0, ReplyScope::Relay), ("released", "no_relay"));
        assert_eq!(refused(454, ReplyScope::Relay), ("refused", "relay"));
        assert_eq!(refused(0, ReplyScope::Unnamed), ("refused", "unnamed"));
    }
}
