//! Decisions of policies and operators about recipients that are in doubt or dead.

use super::{Applied, Refusal};
use crate::broken::{BrokenRule, Rules};
use crate::entry::{Decide, Decider, Decision};
use crate::ledger::{Claim, Ledger, RecipientState};
use crate::names::Recipient;
use crate::run::RunState;

impl Ledger {
    /// Applies a decision. A recipient in doubt can no longer pass a gate (P9), so it may be sent again without another
    /// check.
    pub(super) fn decide(&mut self, rules: Rules, decide: Decide) -> Applied {
        let Decide { recipient, decision, by } = decide;
        if let Decider::Policy(epoch) = by {
            self.is_in_force(epoch)?;
        }
        let resends = decision == Decision::Resend;
        let counts = resends && by != Decider::Operator;
        if resends {
            self.may_send_again(rules)?;
        }
        if counts && (self.is_past_deadline() || !self.run.may_resend(recipient)) {
            return Err(Refusal::NotPossible);
        }
        let claim = self.doubt(rules, recipient).ok_or(Refusal::NotInClaim)?;
        match decision {
            Decision::Assume => self.claims[claim].assumed.insert(recipient),
            Decision::Resend => self.claims[claim].resent.insert(recipient),
        };
        let to = match decision {
            Decision::Resend => RecipientState::Pending,
            Decision::Assume if rules.enforces(BrokenRule::AssumedIsSent) => RecipientState::Assumed,
            Decision::Assume => RecipientState::Sent,
        };
        self.moves_to(recipient, to);
        if counts {
            self.run.count_attempt(recipient);
        }
        if resends {
            self.reopen(rules);
            self.run.resent += u8::from(rules.enforces(BrokenRule::ResendUncounted));
        }
        Ok(())
    }

    /// Returns the claim that holds the recipient in doubt.
    fn doubt(&self, rules: Rules, recipient: Recipient) -> Option<usize> {
        let is_in_state = |recipient_state| self.is_in_state(recipient, recipient_state);
        let is_meant = |claim: &Claim| match rules.broken {
            Some(BrokenRule::DecideClaimed) => claim.open.has(recipient),
            Some(BrokenRule::DecideEnded) => claim.granted.has(recipient) && !is_in_state(RecipientState::Claimed),
            _ => claim.open.has(recipient) && is_in_state(RecipientState::InDoubt),
        };
        self.claims.iter().position(is_meant)
    }

    /// Applies a requeue: a dead recipient is sent again, and its attempts are counted anew.
    pub(super) fn requeue(&mut self, rules: Rules, recipient: Recipient) -> Applied {
        self.may_send_again(rules)?;
        if !self.is_in_state(recipient, RecipientState::Dead) && rules.enforces(BrokenRule::RequeueNotDead) {
            return Err(Refusal::NotPossible);
        }
        self.reopen(rules);
        self.run.attempts[usize::from(recipient)] = 0;
        self.moves_to(recipient, RecipientState::Pending);
        Ok(())
    }

    /// Refuses for a cancelled run, which stays cancelled: none of its recipients is sent again.
    fn may_send_again(&self, rules: Rules) -> Applied {
        let is_over = self.run.state == RunState::Cancelled && rules.enforces(BrokenRule::ResendOfCancelledRun);
        if is_over { Err(Refusal::NotPossible) } else { Ok(()) }
    }

    /// Gives a run that is past its deadline a new deadline, because a recipient is sent again. A run that was paused
    /// before its deadline is paused again, so that other recipients that return wait for the operator.
    fn reopen(&mut self, rules: Rules) {
        if self.is_past_deadline() {
            self.run.finish_by = self.now.saturating_add(self.run.policies.finish_by);
        }
        if self.run.state == RunState::Expired {
            let is_paused = self.run.stopped_since > 0 && rules.enforces(BrokenRule::ExpiryForgetsPause);
            self.run.state = if is_paused { RunState::Paused } else { RunState::Open };
        }
    }
}
