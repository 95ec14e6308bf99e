//! Changes of a recipient's state, and the state of the run after them.

use crate::ledger::{Ledger, RecipientState};
use crate::names::Recipient;
use crate::run::RunState;

impl Ledger {
    /// Moves a recipient out of its state and its claim.
    pub(super) fn moves_to(&mut self, recipient: Recipient, to: RecipientState) {
        for set in &mut self.sets {
            set.remove(recipient);
        }
        for claim in &mut self.claims {
            claim.open.remove(recipient);
        }
        self.set_mut(to).insert(recipient);
    }

    /// Moves a recipient from claimed to in doubt, in the same claim. Returns true if it was claimed.
    pub(super) fn moves_to_doubt(&mut self, recipient: Recipient) -> bool {
        let was_claimed = self.set_mut(RecipientState::Claimed).remove(recipient);
        if was_claimed {
            self.set_mut(RecipientState::InDoubt).insert(recipient);
        }
        was_claimed
    }

    /// Moves all pending recipients, each by its counted attempts.
    pub(super) fn close_pending(&mut self, to: impl Fn(u8) -> RecipientState) {
        for recipient in self.set(RecipientState::Pending).iter() {
            self.moves_to(recipient, to(self.run.attempts_of(recipient)));
        }
    }

    /// Updates the state of the run. An open run is finished when no recipient is pending or claimed, and open again
    /// when a recipient returns. A paused run stays paused until it is resumed, unless no recipient can return.
    pub(super) fn after_moves(&mut self) {
        self.run.state = match (self.run.state, self.is_finished()) {
            (RunState::Open, true) => RunState::Finished,
            (RunState::Paused, true) if !self.may_become_pending() => {
                self.run.stopped_since = 0;
                RunState::Finished
            }
            (RunState::Finished, false) => RunState::Open,
            (state, _) => state,
        }
    }
}
