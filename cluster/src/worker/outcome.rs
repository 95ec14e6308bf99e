//! The outcome of one recipient of a claim, and its names in the metrics.

use reveille_ledger::command::{RefusalEffect, RelayRefusal, RelayReply, ReleaseReason, Unsendable};

use super::journal::ClaimedSlot;

/// Maximum characters of a relay's reply that go into the ledger.
const TEXT_MAX: usize = 200;

/// Outcome of one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The relay accepted the email.
    Accepted,
    /// Outcome of a test email, with the name and reply of the relay.
    Test(RelayReply, Box<DeliveryOutcome>),
    /// The email was not handed off, for this reason.
    Released(ReleaseReason),
    /// The email was not handed off, because the recipient opted out.
    Suppressed,
    /// The relay refused the email, or no relay accepted or refused it (code 0).
    Refused(RelayRefusal),
    /// The email was handed off, and the answer is not known.
    InDoubt,
    /// The email cannot be composed, or no relay of the pool offers SMTPUTF8 for it.
    Unsendable(Unsendable),
}

impl DeliveryOutcome {
    /// Increments the counter of emails by outcome and reason.
    pub(crate) fn count(&self) {
        let (outcome, reason) = self.words();
        metrics::counter!("reveille_emails_total", "outcome" => outcome, "reason" => reason).increment(1);
    }

    /// Returns outcome and reason, as the metrics name them.
    pub(super) fn words(&self) -> (&'static str, &'static str) {
        match self {
            DeliveryOutcome::Test(_, outcome) => outcome.words(),
            DeliveryOutcome::Accepted => ("accepted", ""),
            DeliveryOutcome::Suppressed => ("suppressed", "opted_out"),
            DeliveryOutcome::InDoubt => ("in_doubt", ""),
            DeliveryOutcome::Unsendable(_) => ("unsendable", ""),
            DeliveryOutcome::Refused(refused) => match refused.effect {
                // No relay answered (P6).
                RefusalEffect::Relay if refused.code == 0 => ("released", "no_relay"),
                RefusalEffect::Unnamed => ("refused", "unnamed"),
                RefusalEffect::Mailbox => ("refused", "mailbox"),
                RefusalEffect::Deferred => ("refused", "deferred"),
                RefusalEffect::Relay => ("refused", "relay"),
                RefusalEffect::SenderOrContent => ("refused", "policy"),
            },
            DeliveryOutcome::Released(why) => ("released", released(*why)),
        }
    }
}

/// Outcome if no relay can take the email now: pending again after a while, and the attempt does not count (P6).
pub(crate) fn no_relay(claimed_slot: ClaimedSlot, cause: &str) -> DeliveryOutcome {
    without_answer(claimed_slot, cause, RefusalEffect::Relay)
}

/// Outcome if the dialogue broke from RCPT on: the attempt counts (P6).
pub(crate) fn unanswered(claimed_slot: ClaimedSlot, cause: &str) -> DeliveryOutcome {
    without_answer(claimed_slot, cause, RefusalEffect::Unnamed)
}

fn without_answer(claimed_slot: ClaimedSlot, cause: &str, effect: RefusalEffect) -> DeliveryOutcome {
    let text = clip(cause);
    DeliveryOutcome::Refused(RelayRefusal { slot: claimed_slot.slot, code: 0, enhanced: None, text, effect })
}

/// Outcome if the email cannot be composed.
pub(crate) fn not_composed(cause: &str) -> DeliveryOutcome {
    DeliveryOutcome::Unsendable(Unsendable::NotComposed(clip(cause)))
}

/// Cuts a text to [`TEXT_MAX`] characters on one line.
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
        ReleaseReason::OwnerDiedComposing => "owner_died_composing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_recipients_are_not_counted_as_refused() {
        let refused = |code, effect| {
            let text = "circuit open: connection refused".to_owned();
            DeliveryOutcome::Refused(RelayRefusal { slot: 1, code, enhanced: None, text, effect }).words()
        };
        assert_eq!(refused(0, RefusalEffect::Relay), ("released", "no_relay"));
        assert_eq!(refused(454, RefusalEffect::Relay), ("refused", "relay"));
        assert_eq!(refused(0, RefusalEffect::Unnamed), ("refused", "unnamed"));
    }
}
