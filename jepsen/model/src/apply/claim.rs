//! Claims (P4), and their end when the owner's lease is over (P9).

use super::{Applied, Refusal};
use crate::broken::{BrokenRule, Rules};
use crate::ledger::{Claim, Ledger, RecipientState};
use crate::names::{ClaimOwner, Epoch, Fence, Recipients};

impl Ledger {
    pub(super) fn apply_claim(&mut self, rules: Rules, epoch: Epoch, owner: ClaimOwner, slice: Recipients) -> Applied {
        if rules.enforces(BrokenRule::ClaimOfAnyEpoch) {
            self.is_in_force(epoch)?;
        }
        let any_incarnation =
            !rules.enforces(BrokenRule::ClaimForAnyIncarnation) || !rules.enforces(BrokenRule::NoIncarnation);
        if !any_incarnation && owner != self.current(owner.node) {
            return Err(Refusal::OtherIncarnation);
        }
        if rules.enforces(BrokenRule::ClaimOfStoppedRun) && (!self.sends() || self.is_past_deadline()) {
            return Err(Refusal::NothingPending);
        }
        let pending = self.set(RecipientState::Pending);
        let granted = if rules.enforces(BrokenRule::ClaimWithoutPending) { slice.and(pending) } else { slice };
        if granted.is_empty() {
            return Err(Refusal::NothingPending);
        }
        *self.set_mut(RecipientState::Pending) = pending.without(granted);
        *self.set_mut(RecipientState::Claimed) = self.set(RecipientState::Claimed).or(granted);
        self.claims.push(Claim {
            fence: Fence { epoch, index: self.index },
            owner,
            granted,
            open: granted,
            sent: Recipients::NONE,
            assumed: Recipients::NONE,
            resent: Recipients::NONE,
        });
        Ok(())
    }

    /// Applies a revocation. The recipients that the lost owner had claimed are in doubt until its journal or a
    /// decision moves them.
    pub(super) fn revoke(&mut self, rules: Rules, epoch: Epoch, fence: Fence) -> Applied {
        if rules.enforces(BrokenRule::RevokeOfAnyEpoch) {
            self.is_in_force(epoch)?;
        }
        let claim = self.claim(fence).copied().ok_or(Refusal::NotInClaim)?;
        let lost = claim.open.and(self.set(RecipientState::Claimed));
        if lost.is_empty() {
            return Err(Refusal::NotInClaim);
        }
        self.floor[claim.owner.node.position()] = self.index;
        for recipient in lost.iter() {
            if rules.enforces(BrokenRule::Resend) {
                self.moves_to_doubt(recipient);
            } else {
                self.moves_to(recipient, RecipientState::Pending);
            }
        }
        Ok(())
    }
}
