//! The state of one recipient in one run, and the counts of a run by state.

use serde::{Deserialize, Serialize};

/// Where one recipient stands in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RecipientState {
    /// To be sent, now or when its wave comes in.
    Pending,
    /// In exactly one open row.
    Claimed,
    /// Answered 250 to the final dot. Terminal.
    Sent,
    /// Refused for good, or attempts used up. Terminal.
    Dead,
    /// Opted out. Terminal.
    Suppressed,
    /// Too stale. Terminal.
    Expired,
    /// By an operator. Terminal.
    Cancelled,
    /// In doubt, and closed by policy or operator. Terminal; never counted as sent.
    Assumed,
    /// The terminator may have been written and no answer is known. Held in its row.
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

    /// Does nothing but an accept change it any more?
    pub fn is_terminal(self) -> bool {
        !matches!(self, RecipientState::Pending | RecipientState::Claimed | RecipientState::InDoubt)
    }
}

/// Recipients by state; the sum is the audience (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts([u32; 9]);

impl Counts {
    /// All recipients pending.
    pub fn pending(audience: u32) -> Counts {
        let mut counts = Counts::default();
        counts.0[RecipientState::Pending as usize] = audience;
        counts
    }

    /// Number of recipients in a state.
    pub fn get(&self, state: RecipientState) -> u32 {
        self.0[state as usize]
    }

    /// All recipients.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Nothing pending, nothing claimed (P1).
    pub fn is_finished(&self) -> bool {
        self.get(RecipientState::Pending) == 0 && self.get(RecipientState::Claimed) == 0
    }

    /// True if a recipient got an email, may have got one, or may be getting one.
    pub fn has_emails(&self) -> bool {
        let emails = [RecipientState::Sent, RecipientState::Assumed, RecipientState::InDoubt, RecipientState::Claimed];
        emails.into_iter().any(|state| self.get(state) > 0)
    }

    pub(crate) fn set(&mut self, state: RecipientState, count: u32) {
        self.0[state as usize] = count;
    }

    pub(crate) fn transition(&mut self, from: RecipientState, to: RecipientState, count: u32) {
        self.0[from as usize] -= count;
        self.0[to as usize] += count;
    }
}
