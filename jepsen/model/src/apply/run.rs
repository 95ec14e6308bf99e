//! Commands for a whole run: pause, resume and cancel (P15), its deadline (P16), and the opt-out, which has the same
//! barrier.

use super::{Applied, Refusal};
use crate::broken::{BrokenRule, Rules};
use crate::ledger::{Ledger, RecipientState};
use crate::names::{Epoch, Recipient};
use crate::run::RunState;

impl Ledger {
    pub(super) fn run_pause(&mut self) -> Applied {
        self.is_stoppable()?;
        self.run.state = RunState::Paused;
        self.stops();
        Ok(())
    }

    pub(super) fn run_resume(&mut self) -> Applied {
        if self.run.state != RunState::Paused {
            return Err(Refusal::NotPossible);
        }
        self.run.state = RunState::Open;
        self.run.stopped_since = 0;
        Ok(())
    }

    /// Cancels the run. Pending recipients are cancelled now, claimed recipients when their worker returns them, and
    /// recipients in doubt when evidence shows that they were not handed off.
    pub(super) fn run_cancel(&mut self) -> Applied {
        if self.run.state != RunState::Cancelled {
            self.is_stoppable()?;
            self.run.state = RunState::Cancelled;
        }
        self.stops();
        self.close_pending(|_| RecipientState::Cancelled);
        Ok(())
    }

    /// Refuses if no recipient of the run may still be sent, now or when one returns. Such a run cannot be stopped.
    fn is_stoppable(&self) -> Applied {
        match self.run.state {
            RunState::Open | RunState::Paused => Ok(()),
            RunState::Finished if self.may_become_pending() => Ok(()),
            _ => Err(Refusal::NotPossible),
        }
    }

    fn stops(&mut self) {
        self.run.stop_index = self.index;
        if self.run.stopped_since == 0 {
            self.run.stopped_since = self.index;
        }
        self.floor.fill(self.index);
    }

    /// Ends the run at its deadline. Pending recipients expire. Claimed recipients may be past their gate, and stay.
    pub(super) fn expire(&mut self, rules: Rules, epoch: Epoch) -> Applied {
        self.is_in_force(epoch)?;
        let is_due = matches!(self.run.state, RunState::Open | RunState::Paused) && self.is_past_deadline();
        if !is_due {
            return Err(Refusal::NothingPending);
        }
        self.run.state = RunState::Expired;
        if !rules.enforces(BrokenRule::ExpireClaimed) {
            for recipient in self.set(RecipientState::Claimed).iter() {
                self.moves_to(recipient, RecipientState::Pending);
            }
        }
        self.close_pending(|attempts| if attempts == 0 { RecipientState::Expired } else { RecipientState::Dead });
        Ok(())
    }

    /// Opts a recipient out. The list changes at once. A claimed recipient stays in its claim, where the gate refuses
    /// it. Claims are not refused here, so that the model depends only on the gate.
    pub(super) fn opt_out(&mut self, recipient: Recipient) {
        self.opted_out.insert(recipient);
        self.opt_out_index = self.index;
        self.floor.fill(self.index);
    }
}
