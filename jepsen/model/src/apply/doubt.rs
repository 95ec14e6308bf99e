//! What policies and people decide: about who is in doubt, and who is dead.

use super::Refusal;
use crate::broken::{Broken, Rules};
use crate::entry::{Decide, Decider, Decision};
use crate::ledger::{Ledger, Row, Standing};
use crate::names::Recipient;
use crate::run::RunState;

impl Ledger {
    /// A recipient in doubt can pass no gate any more (P9): so it may be sent again without another check.
    pub(super) fn decide(&mut self, rules: Rules, decide: Decide) -> Result<(), Refusal> {
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
        let row = self.doubt(rules, recipient).ok_or(Refusal::NotInClaim)?;
        match decision {
            Decision::Assume => self.rows[row].assumed.insert(recipient),
            Decision::Resend => self.rows[row].resent.insert(recipient),
        };
        let to = match decision {
            Decision::Resend => Standing::Pending,
            Decision::Assume if rules.keep(Broken::AssumedIsSent) => Standing::Assumed,
            Decision::Assume => Standing::Sent,
        };
        self.moves_to(recipient, to);
        if counts {
            self.run.count_attempt(recipient);
        }
        if resends {
            self.reopen(rules);
            self.run.resent += u8::from(rules.keep(Broken::ResendUncounted));
        }
        Ok(())
    }

    /// The row that holds the recipient in doubt.
    fn doubt(&self, rules: Rules, recipient: Recipient) -> Option<usize> {
        let stands = |standing| self.stands(recipient, standing);
        let is_meant = |row: &Row| match rules.broken {
            Some(Broken::DecideWhoIsClaimed) => row.open.has(recipient),
            Some(Broken::DecideWhoHasEnded) => row.granted.has(recipient) && !stands(Standing::Claimed),
            _ => row.open.has(recipient) && stands(Standing::InDoubt),
        };
        self.rows.iter().position(is_meant)
    }

    /// Dead recipients are sent again, with attempts counted anew.
    pub(super) fn requeue(&mut self, rules: Rules, recipient: Recipient) -> Result<(), Refusal> {
        self.may_send_again(rules)?;
        if !self.stands(recipient, Standing::Dead) && rules.keep(Broken::RequeueWhoIsNotDead) {
            return Err(Refusal::NotPossible);
        }
        self.reopen(rules);
        self.run.attempts[usize::from(recipient)] = 0;
        self.moves_to(recipient, Standing::Pending);
        Ok(())
    }

    /// A cancelled run stays cancelled: no recipient of it is sent again.
    fn may_send_again(&self, rules: Rules) -> Result<(), Refusal> {
        let is_over = self.run.state == RunState::Cancelled && rules.keep(Broken::ResendOfCancelledRun);
        if is_over { Err(Refusal::NotPossible) } else { Ok(()) }
    }

    /// A decision to send a recipient again gives a run that is past its deadline a new one. A pause stays, also one
    /// that the deadline overtook: other recipients that come back wait for the operator.
    fn reopen(&mut self, rules: Rules) {
        if self.is_past_deadline() {
            self.run.finish_by = self.now.saturating_add(self.run.policies.finish_by);
        }
        if self.run.state == RunState::Expired {
            let is_paused = self.run.stopped_since > 0 && rules.keep(Broken::ExpiryForgetsPause);
            self.run.state = if is_paused { RunState::Paused } else { RunState::Open };
        }
    }
}
