//! Events that the properties judge, and that no later state shows.

use crate::entry::Entry;
use crate::ledger::{Ledger, RecipientState};

/// The events on the way to a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observations {
    /// A gate was passed for a recipient that was no longer claimed in that claim.
    pub passed_outside_claim: bool,
    /// A gate was passed for a recipient after the answer to its opt-out, or to a pause or cancel of its run in force.
    pub passed_after_answer: bool,
    /// A gate passed by a state that was past the deadline.
    pub passed_too_late: bool,
    /// A gate passed after the deadline on a process that had not applied that time yet.
    pub passed_unaware: bool,
    /// A recipient was claimed in a run that was paused, ended, or past its deadline.
    pub claimed_of_stopped: bool,
    /// After an answer the relay accepted a handoff that the answer should have named and did not name.
    pub accepted_unnamed: bool,
    /// After an answer the relay accepted a handoff that the answer had named.
    pub accepted_named: bool,
    /// A Settle that had been committed before was committed again and changed something.
    pub repeat_changed: bool,
    /// A recipient left a state that is terminal.
    pub left_for_good: bool,
    /// Ledger time went back, or an entry moved it too far.
    pub time_broke: bool,
    /// A claim was revoked.
    pub revoked: bool,
}

impl Observations {
    /// Records the effect of `entry` on the ledger.
    pub fn record(&mut self, before: &Ledger, entry: &Entry, after: &Ledger) {
        let is_epoch = matches!(entry, Entry::EpochStart { .. });
        self.time_broke |= after.now < before.now || (!is_epoch && after.now > before.now + 1);
        let is_claim = matches!(entry, Entry::Claim { .. });
        let is_stopped = !before.sends() || before.is_past_deadline() || before.run.stopped_since > 0;
        self.claimed_of_stopped |= is_claim && is_stopped;
        let left = |recipient_state| !before.set(recipient_state).without(after.set(recipient_state)).is_empty();
        let for_good =
            [RecipientState::Sent, RecipientState::Suppressed, RecipientState::Expired, RecipientState::Cancelled];
        self.left_for_good |= for_good.into_iter().any(left)
            || (left(RecipientState::Dead) && !matches!(entry, Entry::Requeue { .. }))
            || (left(RecipientState::Assumed) && !matches!(entry, Entry::Settle(_)));
    }
}
