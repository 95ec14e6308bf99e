//! Opt-outs, and their return by an operator (P15).

use super::Context;
use super::bounds::refuse_if;
use crate::command::{OptOut, OptOutTakeBack};
use crate::model::{CommandOutcome, CommandRefusal, EventKind, EventSubject, Impossible, Ledger, OptedOut, TakenBack};

impl Ledger {
    /// Records opt-outs. They are enforced at each gate that uses a state at or above this index (P15).
    pub(super) fn opt_out(&mut self, context: &mut Context, optout: &OptOut) -> CommandOutcome {
        let mut added = 0_u32;
        for key in &optout.keys {
            let key = self.opt_out_key(&(optout.tenant.clone(), key.clone()));
            match self.opted_out.edit(&key) {
                Some(known) => known.last = context.index,
                None => {
                    self.taken_back.remove(&key);
                    self.opted_out.put(key, OptedOut { index: context.index, at: context.now, last: context.index });
                    added += 1;
                }
            }
        }
        self.head.forbidden_index = context.index;
        if added > 0 {
            context.events.add_other(&optout.tenant, EventSubject::OptOuts, EventKind::OptedOut(added));
        }
        CommandOutcome::Changed(added.into())
    }

    /// Takes an opt-out back, because an operator says that the recipient wants email again (P15). It stays if the
    /// recipient opted out again after the operator read it.
    pub(super) fn take_back(
        &mut self,
        context: &mut Context,
        back: &OptOutTakeBack,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let OptOutTakeBack { tenant, key, last, reason } = back;
        let row_key = (tenant.clone(), key.clone());
        refuse_if(reason.trim().is_empty(), Impossible::NoReason)?;
        match self.opt_out_of(&row_key) {
            Some(known) if known.last == *last => {}
            Some(_) => return Err(Impossible::OptedOutAgain(key.clone()).into()),
            None if self.taken_back.contains(&row_key) => return Ok(CommandOutcome::Changed(0)),
            None => return Err(Impossible::NotOptedOut(key.clone()).into()),
        }
        // After a restore both may be there: the address in the backup, and the hash after it.
        self.opted_out.remove(&row_key);
        self.opted_out.remove(&Ledger::erased_opt_out_key(tenant, key));
        let reason = reason.clone();
        self.taken_back.put(row_key, TakenBack { index: context.index, at: context.now, reason });
        Ok(CommandOutcome::Changed(1))
    }
}
