//! `overlap`: what happens to an instant while an earlier run of its schedule is not finished (P16).
//!
//! A waiting instant is not stored: it stays the plan's next one. Only the time at which the leader acts changes
//! (`Schedule::wakes_at`): when the run finishes, or when the instant has waited too long. So a new leader, a pause, an
//! edit and a delete handle it like any other instant.
//!
//! An instant that only waited was not missed. An instant that was missed stays missed while it waits
//! (`Plan::missed_before`): it was late before the run opened, or it was due in an outage or a pause.
//!
//! The leader proposes by the state that it read; `apply` checks again with the present runs.

use std::collections::BTreeSet;

use super::Context;
use super::bounds::refuse_if;
use crate::command::Fire;
use crate::model::{
    BlockingRun, CancelledRun, CancelledRuns, CommandRefusal, Impossible, Ledger, NextInstant, Overlap, RecipientState,
    Run, RunId, RunState, ScheduleId, Time,
};

impl Ledger {
    /// Returns the run that delays a schedule's instants, or did so until a moment ago, and the time until which it did
    /// (`buffer_one`). An instant that could have opened for longer than that was missed.
    pub(crate) fn blocking_run(&self, id: ScheduleId, now: Time) -> Option<BlockingRun> {
        let schedule = self.schedules.get(&id)?;
        let waits = schedule.settings.policies.overlap == Overlap::BufferOne;
        let runs = self.blocking_runs(id).filter(|_| waits).map(|(run, known)| BlockingRun {
            through: if known.has_work_left(now) { now } else { known.finish_by },
            run,
        });
        let blocking = runs.max_by_key(|blocking| blocking.through).or(schedule.plan.blocked_by.as_deref().copied())?;
        (now.since_ms(blocking.through) <= self.limits().on_time_ms).then_some(blocking)
    }

    /// Records that instants which should have opened by now were missed, even if they have to wait from now on (P16).
    pub(super) fn mark_missed(&mut self, id: ScheduleId, now: Time) {
        self.mark_missed_before(id, now.plus_ms(-self.limits().on_time_ms));
    }

    /// Records at the end of a pause which instants were missed (P16): all that were due in it, except at its very end.
    /// An instant from before the pause, or one that waits for a run, is missed if it is late.
    pub(super) fn mark_missed_in_pause(&mut self, id: ScheduleId, since: Option<Time>, now: Time) {
        let next = self.schedules.get(&id).and_then(|schedule| schedule.plan.next.as_ref()).map(NextInstant::opens);
        let came_before = since.zip(next).is_some_and(|(since, opens)| opens < since);
        match self.blocking_run(id, now) {
            None if !came_before => self.mark_missed_before(id, now.plus_ms(-self.limits().pause_end_ms)),
            _ => self.mark_missed(id, now),
        }
    }

    fn mark_missed_before(&mut self, id: ScheduleId, before: Time) {
        let is_late = |next: &NextInstant| next.opens() < before;
        if self.schedules.get(&id).is_some_and(|schedule| schedule.plan.next.as_ref().is_some_and(is_late))
            && let Some(schedule) = self.schedules.edit(&id)
        {
            schedule.plan.missed_before = schedule.plan.missed_before.max(Some(before));
        }
    }

    /// Records that ledger time made a large step, so there was no leader (P16). Due instants were missed, also those
    /// that a run delays. Other schedules find this out when they fire.
    pub(super) fn mark_missed_by_leap(&mut self, from: Time, now: Time) {
        if now.since_ms(from) > self.limits().on_time_ms {
            let blocked: BTreeSet<ScheduleId> = self.derived.blocking.iter().map(|(schedule, _)| *schedule).collect();
            blocked.into_iter().for_each(|schedule| self.mark_missed(schedule, now));
        }
    }

    /// Checks that a triggered run may open beside unfinished runs. A paused or triggered run forbids it too: the
    /// operator who triggers can decide about that run first.
    pub fn may_trigger(&self, id: ScheduleId, now: Time) -> Result<(), CommandRefusal> {
        match self.unfinished(id).find(|(_, run)| run.has_work_left(now)) {
            Some((run, _)) if self.forbids_overlap(id) => Err(CommandRefusal::RunOpen(run)),
            _ => Ok(()),
        }
    }

    fn forbids_overlap(&self, id: ScheduleId) -> bool {
        self.schedules.get(&id).is_some_and(|schedule| match schedule.settings.policies.overlap {
            Overlap::BufferOne | Overlap::Skip => true,
            Overlap::Allow | Overlap::CancelOther => false,
        })
    }

    /// Checks that a fire opens one run at a time, and none beside another, where `overlap` forbids it.
    pub(super) fn check_overlap(&self, id: ScheduleId, fire: &Fire, now: Time) -> Result<(), CommandRefusal> {
        let Some(schedule) = self.schedules.get(&id).filter(|_| !fire.opened.is_empty()) else { return Ok(()) };
        refuse_if(
            schedule.settings.policies.overlap != Overlap::Allow && fire.opened.len() > 1,
            Impossible::SeveralOpenings,
        )?;
        match self.blocking_runs(id).find(|(_, run)| run.has_work_left(now)) {
            Some((run, _)) if self.forbids_overlap(id) => Err(CommandRefusal::RunOpen(run)),
            _ => Ok(()),
        }
    }

    /// Before `run` opens: expires runs that are past their deadline, and cancels the others for `cancel_other`.
    pub(super) fn resolve_overlap(&mut self, context: &mut Context, id: ScheduleId, run: RunId) {
        let overlap = self.schedules.get(&id).map(|schedule| schedule.settings.policies.overlap).unwrap_or_default();
        if overlap == Overlap::Allow {
            return;
        }
        let late: Vec<RunId> = self.unfinished(id).map(|(run, _)| run).collect();
        self.expire(context, &late);
        let others: Vec<RunId> = self.runs_to_cancel(id, context.now).map(|(run, _)| run).collect();
        for other in others {
            let _ = self.run_cancel(context, other, Some(run));
        }
    }

    /// Iterates over the runs that another run of the schedule cancels when it opens at `now` (`cancel_other`). Expired
    /// and cancelled runs release their claims anyway.
    fn runs_to_cancel(&self, id: ScheduleId, now: Time) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        let cancels =
            self.schedules.get(&id).is_some_and(|schedule| schedule.settings.policies.overlap == Overlap::CancelOther);
        let goes_on = move |run: &Run| {
            cancels && matches!(run.state, RunState::Open | RunState::Paused { .. }) && run.finish_by > now
        };
        self.unfinished(id).filter(move |(_, run)| goes_on(run))
    }

    /// Returns what a run of the schedule would cancel if it opened at `now`.
    pub fn would_cancel(&self, id: ScheduleId, now: Time) -> CancelledRuns {
        let mut cancelled = CancelledRuns::default();
        for (run, known) in self.runs_to_cancel(id, now) {
            if cancelled.runs.len() >= CancelledRuns::NAMED {
                cancelled.more = cancelled.more.saturating_add(1);
                continue;
            }
            let count = |state| known.counts.get(state);
            cancelled.runs.push(CancelledRun {
                run,
                cancelled: count(RecipientState::Pending),
                claimed: count(RecipientState::Claimed),
            });
        }
        cancelled
    }

    /// Updates the indexes of unfinished runs after a run was opened or changed. Records when the schedule's next
    /// instant begins or ends to wait for a run.
    pub(super) fn update_overlap_indexes(&mut self, context: &mut Context, id: ScheduleId, run: RunId) {
        let Some(known) = self.run(run) else { return };
        let (takes_part, is_exempt_from_overlap) = (known.takes_part_in_overlap(), known.is_exempt_from_overlap());
        let may_block_next = known.may_block_next();
        let key = (id, run);
        let before = self.due_key(id);
        for (is_in, index) in [
            (takes_part, &mut self.derived.unfinished),
            (is_exempt_from_overlap, &mut self.derived.exempt_from_overlap),
        ] {
            let _ = if is_in { index.insert(key) } else { index.remove(&key) };
        }
        if may_block_next && !self.derived.blocking.contains(&key) {
            if self.blocking_run(id, context.now).is_none() {
                self.mark_missed(id, context.now);
            }
            self.derived.blocking.insert(key);
        } else if !may_block_next && self.derived.blocking.remove(&key) && self.blocking_runs(id).next().is_none() {
            self.record_blocking_run(id, run, context.now);
        }
        self.index_due(context, id, before);
    }

    /// Records that a due instant waited for a run that is finished, or for which it no longer waits.
    pub(super) fn record_blocking_run(&mut self, id: ScheduleId, run: RunId, now: Time) {
        let is_due = |schedule: &crate::model::Schedule| {
            let waits = schedule.wakes_at(true) != schedule.wakes_at(false);
            waits && schedule.plan.next.as_ref().is_some_and(|next| next.opens() <= now)
        };
        if self.schedules.get(&id).is_some_and(is_due)
            && let Some(schedule) = self.schedules.edit(&id)
        {
            schedule.plan.blocked_by = Some(Box::new(BlockingRun { through: now, run }));
        }
    }
}
