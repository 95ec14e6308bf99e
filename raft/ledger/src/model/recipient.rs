//! State of one recipient in one run, and the counts of a run by state.

use serde::{Deserialize, Serialize};

/// State of one recipient in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RecipientState {
    /// Waits to be claimed, now or when its wave is reached.
    Pending,
    /// In exactly one open claim.
    Claimed,
    /// A relay answered 2yz to the final dot. Terminal.
    Sent,
    /// Refused permanently, or all attempts are used up. Terminal.
    Dead,
    /// The recipient opted out, or `min_gap` forbids the email. Terminal.
    Suppressed,
    /// The deadline passed. Terminal.
    Expired,
    /// Cancelled by an operator or by another run of the schedule. Terminal.
    Cancelled,
    /// Was in doubt, and was closed by policy or operator. Terminal; never counted as sent.
    Assumed,
    /// The final dot may have been sent, and no answer is known. Kept in its claim.
    InDoubt,
}

impl RecipientState {
    /// All states, in the order of their numbers.
    pub const ALL: [RecipientState; 9] = [
        RecipientState::Pending,
        RecipientState::Claimed,
        RecipientState::Sent,
        RecipientState::Dead,
        RecipientState::Suppressed,
        RecipientState::Expired,
        RecipientState::Cancelled,
        RecipientState::Assumed,
        RecipientState::InDoubt,
    ];

    /// True if no claim and no policy moves the recipient on. Evidence, a requeue or a resume of the run still can.
    pub fn is_terminal(self) -> bool {
        !matches!(self, RecipientState::Pending | RecipientState::Claimed | RecipientState::InDoubt)
    }
}

/// A change of a recipient's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateChange {
    pub from: RecipientState,
    pub to: RecipientState,
}

/// Number of recipients by state. The sum is the audience (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipientCounts([u32; 9]);

impl RecipientCounts {
    /// Returns counts with all recipients pending.
    pub fn pending(audience: u32) -> RecipientCounts {
        let mut counts = RecipientCounts::default();
        counts.0[RecipientState::Pending as usize] = audience;
        counts
    }

    /// Number of recipients in a state.
    pub fn get(&self, state: RecipientState) -> u32 {
        self.0[state as usize]
    }

    /// Total number of recipients.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// True if no recipient is pending or claimed (P1).
    pub fn is_finished(&self) -> bool {
        self.get(RecipientState::Pending) == 0 && self.get(RecipientState::Claimed) == 0
    }

    /// True if a recipient got an email, is in doubt, or is claimed.
    pub(crate) fn has_emails(&self) -> bool {
        let emails = [RecipientState::Sent, RecipientState::Assumed, RecipientState::InDoubt, RecipientState::Claimed];
        emails.into_iter().any(|state| self.get(state) > 0)
    }

    pub(crate) fn set(&mut self, state: RecipientState, count: u32) {
        self.0[state as usize] = count;
    }

    pub(crate) fn transition(&mut self, change: StateChange, count: u32) {
        self.0[change.from as usize] -= count;
        self.0[change.to as usize] += count;
    }
}
