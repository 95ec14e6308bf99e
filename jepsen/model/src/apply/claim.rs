//! Claims (P4), and their end when the holder's lease is over (P9).

use super::Refusal;
use crate::broken::{Broken, Rules};
use crate::ledger::{Ledger, Row, Standing};
use crate::names::{Epoch, Fence, Holder, Recipients};

impl Ledger {
    pub(super) fn claim(
        &mut self,
        rules: Rules,
        epoch: Epoch,
        holder: Holder,
        slice: Recipients,
    ) -> Result<(), Refusal> {
        if rules.keep(Broken::ClaimOfAnyEpoch) {
            self.is_in_force(epoch)?;
        }
        let any_life = !rules.keep(Broken::ClaimForAnyIncarnation) || !rules.keep(Broken::NoIncarnation);
        if !any_life && holder != self.current(holder.node) {
            return Err(Refusal::OtherIncarnation);
        }
        if rules.keep(Broken::ClaimOfStoppedRun) && (!self.sends() || self.is_past_deadline()) {
            return Err(Refusal::NothingPending);
        }
        let pending = self.set(Standing::Pending);
        let granted = if rules.keep(Broken::ClaimWithoutPending) { slice.and(pending) } else { slice };
        if granted.is_empty() {
            return Err(Refusal::NothingPending);
        }
        *self.set_mut(Standing::Pending) = pending.without(granted);
        *self.set_mut(Standing::Claimed) = self.set(Standing::Claimed).or(granted);
        self.rows.push(Row {
            fence: Fence { epoch, index: self.index },
            holder,
            granted,
            open: granted,
            sent: Recipients::NONE,
            assumed: Recipients::NONE,
            resent: Recipients::NONE,
        });
        Ok(())
    }

    /// What the lost holder had claimed is in doubt until its journal or an operator says otherwise.
    pub(super) fn revoke(&mut self, rules: Rules, epoch: Epoch, fence: Fence) -> Result<(), Refusal> {
        if rules.keep(Broken::RevokeOfAnyEpoch) {
            self.is_in_force(epoch)?;
        }
        let row = self.row(fence).copied().ok_or(Refusal::NotInClaim)?;
        let lost = row.open.and(self.set(Standing::Claimed));
        if lost.is_empty() {
            return Err(Refusal::NotInClaim);
        }
        self.floor[row.holder.node.place()] = self.index;
        for recipient in lost.iter() {
            if rules.keep(Broken::Resend) {
                self.falls_in_doubt(recipient);
            } else {
                self.moves_to(recipient, Standing::Pending);
            }
        }
        Ok(())
    }
}
