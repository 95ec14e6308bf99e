//! Epochs (P13), incarnations of nodes (P10), ledger time (P18).

use super::{Applied, Refusal};
use crate::broken::{BrokenRule, Rules};
use crate::ledger::{Ledger, NodeIncarnation};
use crate::names::{ClaimOwner, Epoch, Time};

impl Ledger {
    /// Applies an `EpochStart`. The voters' clocks may show any time, but ledger time does not go back.
    pub(super) fn epoch_start(&mut self, rules: Rules, agreed: Time) {
        self.epoch = self.index;
        self.now = if rules.enforces(BrokenRule::EpochLowersTime) { agreed.max(self.now) } else { agreed };
    }

    pub(super) fn tick(&mut self, rules: Rules, epoch: Epoch, now: Time) -> Applied {
        self.is_in_force(epoch)?;
        match now {
            _ if now == self.now => Err(Refusal::NothingNew),
            _ if now < self.now && rules.enforces(BrokenRule::TimeGoesBack) => Err(Refusal::TimeWentBack),
            _ if now > self.now + 1 && rules.enforces(BrokenRule::TimeLeaps) => Err(Refusal::TimeLeaps),
            _ => {
                self.now = now;
                Ok(())
            }
        }
    }

    pub(super) fn is_in_force(&self, epoch: Epoch) -> Applied {
        if epoch == self.epoch { Ok(()) } else { Err(Refusal::WrongEpoch) }
    }

    /// Applies a `NodeUp`. Incarnations only grow: the announcement of an earlier incarnation may arrive late (P10).
    pub(super) fn node_up(&mut self, process: ClaimOwner) -> Applied {
        let up = &mut self.up[process.node.position()];
        if process.incarnation <= up.incarnation {
            return Err(Refusal::OtherIncarnation);
        }
        *up = NodeIncarnation { incarnation: process.incarnation, since: self.index };
        Ok(())
    }
}
