//! The outcome of one recipient of a claim, and its names in the metrics.

use reveille_ledger::command::{RefusalEffect, RelayRefusal, RelayReply, ReleaseReason, Unsendable};

use super::journal::ClaimedSlot;

/// Maximum characters of a relay's reply that go into the ledger.
const TEXT_MAX: usize = 200;

/// A recipient of a claim with its outcome, to be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientOutcome {
    /// The recipient.
    pub claimed_slot: ClaimedSlot,
    /// Its outcome.
    pub outcome: DeliveryOutcome,
    /// The reply of the relay, if the email was a test.
    pub test_reply: Option<RelayReply>,
}

impl RecipientOutcome {
    /// Returns an outcome without the reply to a test email.
    pub fn new(claimed_slot: ClaimedSlot, outcome: DeliveryOutcome) -> RecipientOutcome {
        RecipientOutcome { claimed_slot, outcome, test_reply: None }
    }
}

/// Outcome of one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The relay accepted the email.
    Accepted,
    /// The email was not handed off, for this reason.
    Released(ReleaseReason),
    /// The email was not handed off, because the recipient opted out.
    Suppressed,
    /// The relay refused the email.
    Refused(RelayRefusal),
    /// No relay can take the email now, for this reason. It is pending again after a while, and the attempt does not
    /// count (P6).
    NoRelay(String),
    /// This node cannot prepare the email now, for this reason: a file or a setting is missing, or the disk is busy. It is
    /// pending again after a while, and the attempt does not count (P6).
    NodeUnable(String),
    /// The dialogue broke from RCPT on and before the gate, for this reason. The attempt counts (P6).
    BrokenFromRcpt(String),
    /// The email was handed off, and the answer is not known.
    InDoubt,
    /// The email cannot be composed, or no relay of the pool offers SMTPUTF8 for it.
    Unsendable(Unsendable),
}

impl DeliveryOutcome {
    /// Increments the counter of emails by outcome and reason.
    pub(crate) fn count(&self) {
        let (outcome, reason) = self.metric_labels();
        metrics::counter!("reveille_emails_total", "outcome" => outcome, "reason" => reason).increment(1);
    }

    /// Returns outcome and reason, as the metrics name them.
    pub(super) fn metric_labels(&self) -> (&'static str, &'static str) {
        match self {
            DeliveryOutcome::Accepted => ("accepted", ""),
            DeliveryOutcome::Suppressed => ("suppressed", "opted_out"),
            DeliveryOutcome::InDoubt => ("in_doubt", ""),
            DeliveryOutcome::Unsendable(_) => ("unsendable", ""),
            DeliveryOutcome::Refused(refused) => match refused.effect {
                RefusalEffect::CountAttempt => ("refused", "unnamed"),
                RefusalEffect::Dead => ("refused", "mailbox"),
                RefusalEffect::BackOff => ("refused", "deferred"),
                RefusalEffect::NextWave => ("refused", "relay"),
                RefusalEffect::MayPauseRun => ("refused", "sender_or_content"),
            },
            DeliveryOutcome::NoRelay(_) => ("released", "no_relay"),
            DeliveryOutcome::NodeUnable(_) => ("released", "node_unable"),
            DeliveryOutcome::BrokenFromRcpt(_) => ("refused", "unnamed"),
            DeliveryOutcome::Released(why) => ("released", released(*why)),
        }
    }
}

/// Returns the outcome if no relay can take the email now.
pub(crate) fn no_relay(cause: &str) -> DeliveryOutcome {
    DeliveryOutcome::NoRelay(clip(cause))
}

/// Returns the outcome if this node cannot prepare the email now.
pub(crate) fn node_unable(cause: &str) -> DeliveryOutcome {
    DeliveryOutcome::NodeUnable(clip(cause))
}

/// Returns the outcome if the email cannot be composed.
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
        ReleaseReason::RateLimited => "rate_limited",
        ReleaseReason::SessionEnded => "session_ended",
        ReleaseReason::NotInClaim => "not_in_claim",
        ReleaseReason::RunPaused => "run_paused",
        ReleaseReason::RunEnded => "run_ended",
        ReleaseReason::PastDeadline => "past_deadline",
        ReleaseReason::LeaseOver => "lease_over",
        ReleaseReason::JournalFailed => "journal_failed",
        ReleaseReason::Stopping => "stopping",
        ReleaseReason::OwnerCrashed => "owner_crashed",
        ReleaseReason::OwnerCrashedComposing => "owner_crashed_composing",
    }
}
