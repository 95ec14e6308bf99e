//! The test clock (P19): ledger time is ahead of the clocks by an offset. Entries move it, only forward.
//!
//! All times of the ledger follow it: due instants, deadlines, waves, back-offs. Leases and network time-outs
//! do not (P18). A cluster with a test clock cannot have a real relay.

use super::Context;
use super::bounds::refuse_if;
use crate::command::Advance;
use crate::effect::Effect;
use crate::model::{CommandOutcome, CommandRefusal, Impossible, Ledger, TestClock};

impl Ledger {
    pub(super) fn choose_test_clock(&mut self, context: &mut Context) -> Result<CommandOutcome, CommandRefusal> {
        if let Some(clock) = self.head.test_clock {
            context.repeats = Some(clock.index);
            return Ok(CommandOutcome::Done);
        }
        let is_fresh = self.relays.is_empty() && self.schedules.is_empty() && self.history.is_empty();
        let is_used = !is_fresh || !self.pages.is_empty() || !self.opted_out.is_empty() || !self.taken_back.is_empty();
        refuse_if(is_used, Impossible::InUse)?;
        self.head.test_clock = Some(TestClock { index: context.index, offset_ms: 0 });
        Ok(CommandOutcome::Done)
    }

    pub(super) fn advance(
        &mut self,
        context: &mut Context,
        advance: &Advance,
    ) -> Result<CommandOutcome, CommandRefusal> {
        refuse_if(self.head.test_clock.is_none(), Impossible::RealTime)?;
        let (now, to) = (context.now, advance.to);
        refuse_if(to <= now, Impossible::ClockGoesForward { now })?;
        let due = self.derived.due.first().map(|(due, _)| *due);
        let due = due.into_iter().chain(self.next_start(now)).min();
        if let Some(due) = due.filter(|due| *due < to && !advance.jump) {
            return Err(Impossible::DueBefore { due, to }.into());
        }
        if let Some(clock) = &mut self.head.test_clock {
            clock.offset_ms = clock.offset_ms.saturating_add(to.since_ms(now));
        }
        self.head.now = to;
        if advance.jump {
            self.mark_missed_by_leap(now, to);
        }
        self.forget_old_answers();
        context.emit(Effect::ClockMoved(to));
        Ok(CommandOutcome::Done)
    }
}
