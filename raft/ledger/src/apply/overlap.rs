//! Overlap (P16): what becomes of a run while a former one of its schedule is not finished.
//!
//! Nothing is kept of an instant that waits: it is the plan's next one, and stays so. What changes is when the
//! leader has something to do for the schedule (`Schedule::wakes_at`): not at that instant, but when the run is
//! finished, or when the instant has waited too long. So a fresh leader finds it in the state, and a pause, an
//! edit and a delete find it where every other missed instant is.
//!
//! A leader proposes what it saw; here it is looked at again, by the runs as they are now.

use super::Context;
use crate::command::{Cause, Fire};
use crate::ids::{RunId, ScheduleId, Time};
use crate::policy::Overlap;
use crate::refusal::Refusal;
use crate::state::Ledger;

impl Ledger {
    /// May one more run of a schedule open beside those that are not finished?
    pub fn may_stand(&self, id: ScheduleId, now: Time) -> Result<(), Refusal> {
        let forbidden = self.schedules.get(&id).is_some_and(|schedule| match schedule.policies.overlap {
            Overlap::BufferOne | Overlap::Skip => true,
            Overlap::Allow | Overlap::CancelOther => false,
        });
        match self.unfinished(id).find(|(_, run)| run.holds_up(now)) {
            Some((run, _)) if forbidden => Err(Refusal::RunOpen(run)),
            _ => Ok(()),
        }
    }

    /// The same for what a fire opens: one at a time, where two are not allowed.
    pub(super) fn check_overlap(&self, id: ScheduleId, fire: &Fire, now: Time) -> Result<(), Refusal> {
        let Some(schedule) = self.schedules.get(&id).filter(|_| !fire.opened.is_empty()) else { return Ok(()) };
        if schedule.policies.overlap != Overlap::Allow && fire.opened.len() > 1 {
            return Err(Refusal::NotPossible("several openings at once where runs must not overlap".to_owned()));
        }
        self.may_stand(id, now)
    }

    /// What is past its deadline expires before another run opens, and `cancel_other` cancels the rest.
    pub(super) fn make_way(&mut self, context: &mut Context, id: ScheduleId) {
        let overlap = self.schedules.get(&id).map(|schedule| schedule.policies.overlap).unwrap_or_default();
        if overlap == Overlap::Allow {
            return;
        }
        let late: Vec<RunId> = self.unfinished(id).map(|(run, _)| run).collect();
        self.expire(context, &late);
        if overlap == Overlap::CancelOther {
            let others: Vec<RunId> = self.unfinished(id).map(|(run, _)| run).collect();
            for run in others {
                // One that has expired or was cancelled before gives back what is claimed by itself.
                let _ = self.run_cancel(context, run);
            }
        }
    }

    /// A run has something pending or claimed, or has not any more: the schedule's next instant waits, or has
    /// waited.
    pub(super) fn note_unfinished(&mut self, context: &mut Context, id: ScheduleId, run: RunId) {
        let Some(known) = self.run(run).filter(|known| known.cause != Cause::Backfill) else { return };
        let is_finished = known.counts.is_finished();
        let before = self.due_key(id);
        if !is_finished {
            self.derived.unfinished.insert((id, run));
        } else if self.derived.unfinished.remove(&(id, run)) && self.unfinished(id).next().is_none() {
            self.note_waited(id, context.now);
        }
        self.index_due(context, id, before);
    }

    /// What was due while a run held it up has waited, and was not missed.
    fn note_waited(&mut self, id: ScheduleId, now: Time) {
        let is_due = |schedule: &crate::state::Schedule| {
            let waits = schedule.wakes_at(true) != schedule.wakes_at(false);
            waits && schedule.plan.next.as_ref().is_some_and(|next| next.opens() <= now)
        };
        if self.schedules.get(&id).is_some_and(is_due)
            && let Some(schedule) = self.schedules.edit(&id)
        {
            schedule.plan.held_through = Some(now);
        }
    }
}
