//! Replan (I10): schedules whose next instant was computed with another release of the time zone database.
//!
//! It is a compare-and-set on the plan, like a fire (P8). An instant in the future may be moved or removed, because
//! nothing has happened at it yet. A due instant stays for the fire, which explains it if it no longer exists.

use super::Context;
use crate::command::Replan;
use crate::model::{CommandOutcome, Ledger, NextInstant, Schedule, ScheduleState};

impl Ledger {
    pub(super) fn replan(&mut self, context: &mut Context, replans: &[Replan]) -> CommandOutcome {
        CommandOutcome::Changed(replans.iter().map(|replan| u64::from(self.replan_one(context, replan))).sum())
    }

    /// Returns true if the next instant has changed.
    fn replan_one(&mut self, context: &mut Context, replan: &Replan) -> bool {
        let id = replan.schedule;
        let is_it = |Schedule { plan, settings, .. }: &Schedule| {
            let fits =
                |next: &NextInstant| next.due > plan.fired_through && next.is_within(settings.policies.jitter_ms);
            let fits = replan.next.iter().all(fits);
            plan.version == replan.plan_version && plan.next.as_ref() == Some(&replan.from) && fits
        };
        if replan.from.due <= context.now || !self.schedules.get(&id).is_some_and(is_it) {
            return false;
        }
        let before = self.due_key(id);
        let moves = replan.next.as_ref() != Some(&replan.from);
        if let Some(schedule) = self.schedules.edit(&id) {
            schedule.plan.next = replan.next.clone();
            schedule.plan.tzdb = replan.tzdb.as_str().into();
            self.derived.shared.texts.intern(&mut schedule.plan.tzdb);
            schedule.plan.forget_what_is_past();
            if moves {
                schedule.plan.version += 1;
                schedule.plan.refusals = 0;
            }
            if replan.next.is_none() && schedule.state == ScheduleState::Active {
                schedule.state = ScheduleState::Done;
            }
        }
        self.index_due(context, id, before);
        moves
    }
}
