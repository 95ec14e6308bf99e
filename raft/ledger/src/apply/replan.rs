//! Replan (I10): schedules whose next instant was computed with another release of the zone database.
//!
//! A compare-and-set on the plan, like a fire (P8). An instant that is still to come may move or go by it: it is
//! none yet. One that is due already stays for the fire, which explains it where it is none any more.

use super::Context;
use crate::command::Replan;
use crate::model::{Activity, CommandOutcome, Ledger, NextInstant, Schedule};

impl Ledger {
    pub(super) fn replan(&mut self, context: &mut Context, replans: &[Replan]) -> CommandOutcome {
        CommandOutcome::Moved(replans.iter().map(|replan| u64::from(self.replan_one(context, replan))).sum())
    }

    /// Answers whether the next instant is another one now.
    fn replan_one(&mut self, context: &mut Context, replan: &Replan) -> bool {
        let id = replan.schedule;
        let is_it = |Schedule { plan, policies, .. }: &Schedule| {
            let fits = |next: &NextInstant| next.due > plan.fired_through && next.is_within(policies.jitter_ms);
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
            schedule.plan.tzdb = replan.tzdb.clone();
            schedule.plan.forget_what_is_past();
            if moves {
                schedule.plan.version += 1;
                schedule.plan.refusals = 0;
            }
            if replan.next.is_none() && schedule.activity == Activity::Active {
                schedule.activity = Activity::Done;
            }
        }
        self.index_due(context, id, before);
        moves
    }
}
