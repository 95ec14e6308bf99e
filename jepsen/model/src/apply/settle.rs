//! Settle: the table of P14, and the state after a refusal or a release (P4, P6, P16).

use super::{Applied, Refusal};
use crate::broken::{BrokenRule, Rules};
use crate::entry::{Outcome, Settle};
use crate::ledger::{Claim, Ledger, RecipientState};
use crate::names::{Fence, Recipient};
use crate::run::RunState;

impl Ledger {
    /// Applies evidence. A negative outcome moves only a recipient that is still in that claim, or was assumed in it.
    pub(super) fn settle(&mut self, rules: Rules, settle: Settle) -> Applied {
        let Settle { claim, recipient, outcome } = settle;
        if outcome == Outcome::Accepted {
            return self.accept(rules, claim, recipient);
        }
        if !self.is_open_in(rules, claim, recipient) {
            return self.settle_late(rules, settle);
        }
        match outcome {
            Outcome::InDoubt if !self.moves_to_doubt(recipient) => Err(Refusal::NothingNew),
            Outcome::InDoubt => Ok(()),
            Outcome::Refused => {
                self.refuse(rules, recipient);
                Ok(())
            }
            Outcome::Suppressed => {
                self.record_resolved(recipient);
                self.moves_to(recipient, RecipientState::Suppressed);
                Ok(())
            }
            Outcome::Accepted | Outcome::Released => {
                self.goes_back(rules, recipient);
                Ok(())
            }
        }
    }

    fn is_open_in(&self, rules: Rules, claim: Fence, recipient: Recipient) -> bool {
        let is_open = |claim: &Claim| claim.open.has(recipient);
        if rules.enforces(BrokenRule::SettleWithoutClaim) {
            self.claim(claim).is_some_and(is_open)
        } else {
            self.claims.iter().any(is_open)
        }
    }

    /// Applies late evidence: a recipient that was assumed in this claim was not handed off. It returns, and is counted
    /// as a disproved assumption.
    fn settle_late(&mut self, rules: Rules, Settle { claim: fence, recipient, outcome }: Settle) -> Applied {
        let is_assumed = self.is_in_state(recipient, RecipientState::Assumed);
        let Some(claim) = self.claims.iter_mut().find(|claim| claim.fence == fence) else {
            return Err(Refusal::NotInClaim);
        };
        if outcome != Outcome::InDoubt && is_assumed && claim.assumed.remove(recipient) {
            self.run.assumptions_disproved += 1;
            match outcome {
                _ if !rules.enforces(BrokenRule::AssumedNeverReturns) => {}
                Outcome::Refused => self.refuse(rules, recipient),
                Outcome::Suppressed => self.moves_to(recipient, RecipientState::Suppressed),
                _ => self.goes_back(rules, recipient),
            }
            return Ok(());
        }
        if outcome == Outcome::Refused && !rules.enforces(BrokenRule::CountEachRefusal) {
            self.run.count_attempt(recipient);
            return Ok(());
        }
        Err(Refusal::NotInClaim)
    }

    /// Applies an acceptance, which stays true under any fence. It moves a recipient out of every state that is not
    /// terminal, and is counted once for each claim and recipient.
    fn accept(&mut self, rules: Rules, fence: Fence, recipient: Recipient) -> Applied {
        let claim = self.claims.iter_mut().find(|claim| claim.fence == fence).ok_or(Refusal::NotInClaim)?;
        let is_new = claim.sent.insert(recipient);
        if !is_new && rules.enforces(BrokenRule::CountEachRepeat) {
            return Err(Refusal::NothingNew);
        }
        let ended =
            [RecipientState::Dead, RecipientState::Suppressed, RecipientState::Expired, RecipientState::Cancelled];
        if self.is_in_state(recipient, RecipientState::Sent) {
            self.run.known_duplicates += 1;
        } else if ended.into_iter().any(|recipient_state| self.is_in_state(recipient, recipient_state)) {
            self.run.contradictions += 1;
        } else {
            self.record_resolved(recipient);
            self.moves_to(recipient, RecipientState::Sent);
        }
        Ok(())
    }

    /// Counts an attempt. The last attempt makes the recipient dead, whatever the state of the run is.
    fn refuse(&mut self, rules: Rules, recipient: Recipient) {
        self.run.count_attempt(recipient);
        let is_last = self.run.attempts_of(recipient) >= self.run.policies.max_attempts;
        if is_last && rules.enforces(BrokenRule::RetryForEver) {
            self.record_resolved(recipient);
            self.moves_to(recipient, RecipientState::Dead);
        } else {
            self.goes_back(rules, recipient);
        }
    }

    /// Makes a recipient pending again, unless the run has ended. A recipient that opted out is pending too: its next
    /// gate refuses it.
    fn goes_back(&mut self, rules: Rules, recipient: Recipient) {
        self.record_resolved(recipient);
        let is_stale = self.run.state == RunState::Expired || self.is_past_deadline();
        let to = match self.run.state {
            RunState::Cancelled if rules.enforces(BrokenRule::CancelForgetsReturned) => RecipientState::Cancelled,
            _ if is_stale && self.run.attempts_of(recipient) > 0 => RecipientState::Dead,
            _ if is_stale => RecipientState::Expired,
            _ => RecipientState::Pending,
        };
        self.moves_to(recipient, to);
    }

    fn record_resolved(&mut self, recipient: Recipient) {
        if self.is_in_state(recipient, RecipientState::InDoubt) {
            self.resolved.insert(recipient);
        }
    }
}
