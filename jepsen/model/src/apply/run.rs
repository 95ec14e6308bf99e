//! What happens to a run as a whole: pause, resume, cancel (P15), and its deadline (P16). And the opt-out, whose
//! barrier is theirs.

use super::Refusal;
use crate::broken::{BrokenRule, Rules};
use crate::ledger::{Ledger, RecipientState};
use crate::names::{Epoch, Recipient};
use crate::run::RunState;

impl Ledger {
    pub(super) fn run_pause(&mut self) -> Result<(), Refusal> {
        self.is_stoppable()?;
        self.run.state = RunState::Paused;
        self.stops();
        Ok(())
    }

    pub(super) fn run_resume(&mut self) -> Result<(), Refusal> {
        if self.run.state != RunState::Paused {
            return Err(Refusal::NotPossible);
        }
        self.run.state = RunState::Open;
        self.run.stopped_since = 0;
        Ok(())
    }

    /// What is pending is cancelled now, what is claimed when its worker gives it back, and what is in doubt if it
    /// turns out not to have been handed off.
    pub(super) fn run_cancel(&mut self) -> Result<(), Refusal> {
        if self.run.state != RunState::Cancelled {
            self.is_stoppable()?;
            self.run.state = RunState::Cancelled;
        }
        self.stops();
        self.close_pending(|_| RecipientState::Cancelled);
        Ok(())
    }

    /// A run can be stopped while something of it may still be sent: now, or when a recipient comes back.
    fn is_stoppable(&self) -> Result<(), Refusal> {
        match self.run.state {
            RunState::Open | RunState::Paused => Ok(()),
            RunState::Finished if self.may_come_back() => Ok(()),
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

    /// What is pending expires; what is claimed may be past its gate, and stays.
    pub(super) fn expire(&mut self, rules: Rules, epoch: Epoch) -> Result<(), Refusal> {
        self.is_in_force(epoch)?;
        let is_due = matches!(self.run.state, RunState::Open | RunState::Paused) && self.is_past_deadline();
        if !is_due {
            return Err(Refusal::NothingPending);
        }
        self.run.state = RunState::Expired;
        if !rules.keep(BrokenRule::ExpireWhoIsClaimed) {
            for recipient in self.set(RecipientState::Claimed).iter() {
                self.moves_to(recipient, RecipientState::Pending);
            }
        }
        self.close_pending(|attempts| if attempts == 0 { RecipientState::Expired } else { RecipientState::Dead });
        Ok(())
    }

    /// The list is changed at once; a recipient that is claimed stays in its claim, where the gate refuses
    /// it. Claims are not refused here, so that the model rests on the gate alone.
    pub(super) fn opt_out(&mut self, recipient: Recipient) {
        self.opted_out.insert(recipient);
        self.opt_out_index = self.index;
        self.floor.fill(self.index);
    }
}
