//! The edit of a schedule: a compare-and-set on its plan, like a fire (P8).
//!
//! Open runs do not change: they refer to content and audience by hash, and have their own policies. Due instants of
//! the former timing open in the same entry, with the schedule as it was before. So no instant is lost between two
//! timings, and none fires twice. `fired_through` only grows (P7): an edit to a time that has passed today begins
//! tomorrow.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Context;
use super::bounds::{check_labels, gap_needs_a_list, gap_within_retention, inside_window, refuse_if};
use crate::command::{ExplainedRange, ScheduleEdit, TimingChange};
use crate::model::{
    AudienceChoice, CommandOutcome, CommandRefusal, Impossible, Ledger, Overlap, Schedule, ScheduleId, ScheduleState,
    Time, UnopenedReason,
};

impl Ledger {
    pub(super) fn schedule_edit(
        &mut self,
        context: &mut Context,
        edit: &ScheduleEdit,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let id = edit.schedule;
        let schedule = self.schedules.get(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        refuse_if(schedule.plan.version != edit.plan_version, CommandRefusal::StalePlan)?;
        if let Some(pool) = &edit.pool {
            self.check_pool(&schedule.settings.tenant, pool)?;
        }
        if let Some(content) = &edit.content {
            self.check_content(&schedule.settings.tenant, content)?;
        }
        edit.policies.as_ref().map_or(Ok(()), gap_within_retention)?;
        let is_sealed = match &edit.audience {
            Some(to) => matches!(to, AudienceChoice::Sealed(_)),
            None => self.derived.seals.contains(&schedule.audience),
        };
        gap_needs_a_list(edit.policies.as_ref().unwrap_or(&schedule.settings.policies), is_sealed)?;
        edit.labels.as_ref().map_or(Ok(()), check_labels)?;
        edit.audience.iter().try_for_each(|audience| self.check_audience(&schedule.settings.tenant, audience))?;
        match &edit.timing {
            Some(timing) => {
                check_timing(schedule, edit, timing, self.waits_at(id, timing.through), context.now)?;
                self.check_ranges(id, &timing.explained)?;
            }
            None => refuse_if(edit.moves_instants(schedule), Impossible::CalendarWithoutPlan)?,
        }
        if let Some(timing) = &edit.timing {
            self.end_timing(context, timing, edit)?;
        }
        let before = self.due_key(id);
        if edit.policies.as_ref().is_some_and(|policies| policies.overlap != Overlap::BufferOne)
            && let Some(run) = self.waits_for(id)
        {
            self.record_blocking_run(id, run, context.now);
        }
        let former = self
            .schedules
            .get(&id)
            .map(|schedule| (Arc::clone(&schedule.settings), schedule.content, schedule.audience));
        // New references come before the former ones are released: an edit may name the same content again.
        if let (Some(content), Some((settings, ..))) = (&edit.content, &former) {
            self.retain_content(&settings.tenant, content);
        }
        if let Some(audience) = &edit.audience {
            self.retain_audience(audience);
        }
        if let Some(schedule) = self.schedules.edit(&id) {
            schedule.take(edit, context.index);
            schedule.intern(&mut self.derived.shared);
        }
        if let Some((settings, content, audience)) = former {
            if edit.content.is_some() {
                self.release_content(&settings.tenant, &content, settings.template.as_ref());
            }
            if edit.audience.is_some() {
                self.release_blob(&audience);
            }
        }
        self.index_due(context, id, before);
        Ok(CommandOutcome::Schedule(id))
    }

    /// Refuses an explained range whose first instant has opened. The history keeps a range in the row of its first
    /// instant, and that row holds the run already (P1), so the range could not be stored.
    fn check_ranges(&self, id: ScheduleId, explained: &[ExplainedRange]) -> Result<(), CommandRefusal> {
        let lost = |range: &ExplainedRange| {
            range.reason != UnopenedReason::OpenedBefore && self.has_opened(&(id, range.first.clone()))
        };
        refuse_if(explained.iter().any(lost), Impossible::RangeBeginsWithRun)
    }

    /// Opens or explains the instants of the former timing up to `through` (P8).
    fn end_timing(
        &mut self,
        context: &mut Context,
        timing: &TimingChange,
        edit: &ScheduleEdit,
    ) -> Result<(), CommandRefusal> {
        if let Some(fire) = &timing.due {
            let before = self.due_key(fire.schedule);
            let opened =
                self.compare_and_move_plan(context, fire, &mut BTreeSet::new()).map_err(|refusal| match refusal {
                    // A run has opened since the edit was computed.
                    CommandRefusal::RunOpen(_) => CommandRefusal::StalePlan,
                    other => other,
                })?;
            self.index_due(context, fire.schedule, before);
            self.open_runs(context, opened);
        }
        self.record_explained(context, edit.schedule, &timing.explained);
        Ok(())
    }
}

impl ScheduleEdit {
    /// True if the edit has a change.
    pub fn changes_something(&self) -> bool {
        self.timing.is_some()
            || self.policies.is_some()
            || self.pool.is_some()
            || self.priority.is_some()
            || self.content.is_some()
            || self.audience.is_some()
            || self.labels.is_some()
    }

    /// True if its policies change the instants of the calendar.
    pub fn moves_instants(&self, schedule: &Schedule) -> bool {
        self.policies.as_ref().is_some_and(|policies| {
            policies.dst != schedule.settings.policies.dst || policies.jitter_ms != schedule.settings.policies.jitter_ms
        })
    }
}

impl Schedule {
    /// Applies an edit to this schedule. Indexes and reference counts are not updated here. Dry runs use it too.
    pub fn take(&mut self, edit: &ScheduleEdit, index: u64) {
        if let Some(change) = &edit.timing {
            self.timing = Arc::new(change.timing.clone());
            self.plan.fired_through = self.plan.fired_through.max(change.through);
            self.plan.next = change.next.clone();
            self.plan.tzdb = change.tzdb.as_str().into();
            self.plan.forget_what_is_past();
            self.state = match (&self.state, &change.next) {
                (ScheduleState::Active | ScheduleState::Done, Some(_)) => ScheduleState::Active,
                (ScheduleState::Active | ScheduleState::Done, None) => ScheduleState::Done,
                (stopped, _) => stopped.clone(),
            };
        }
        if let Some(content) = &edit.content {
            self.content = content.hash();
        }
        if let Some(audience) = &edit.audience {
            self.audience = audience.hash();
            self.recipients = audience.count();
        }
        let settings = Arc::make_mut(&mut self.settings);
        if let Some(content) = &edit.content {
            settings.template = content.template();
        }
        if let Some(policies) = &edit.policies {
            settings.policies = Arc::new(policies.clone());
        }
        if let Some(pool) = &edit.pool {
            settings.pool = pool.as_str().into();
        }
        settings.priority = edit.priority.unwrap_or(settings.priority);
        self.labels = edit.labels.clone().unwrap_or_else(|| self.labels.clone());
        self.plan.version += 1;
        self.plan.refusals = 0;
        self.index = index;
    }
}

/// Checks that the former timing is settled, and that the new one is after it (P7, P8).
fn check_timing(
    schedule: &Schedule,
    edit: &ScheduleEdit,
    change: &TimingChange,
    waits: bool,
    now: Time,
) -> Result<(), CommandRefusal> {
    let plan = &schedule.plan;
    let wrong = |what: Impossible| Err(what.into());
    refuse_if(change.through > now, CommandRefusal::NotDue(change.through))?;
    inside_window(change.next.as_ref(), edit.policies.as_ref().unwrap_or(&schedule.settings.policies))?;
    let is_due = plan.next.as_ref().is_some_and(|next| next.due <= change.through);
    match &change.due {
        Some(fire) if fire.schedule != edit.schedule || !change.explained.is_empty() => {
            return wrong(Impossible::FiresElse);
        }
        Some(fire) if fire.through > change.through || fire.next.iter().any(|next| next.due <= change.through) => {
            return wrong(Impossible::MoreIsDue);
        }
        // The instant waited for a run when the edit was computed, and the run has finished since.
        None if is_due && schedule.state == ScheduleState::Active && !waits => return Err(CommandRefusal::StalePlan),
        None if is_due && change.explained.is_empty() => {
            return wrong(Impossible::DueUnexplained);
        }
        None if !is_due && !change.explained.is_empty() => return wrong(Impossible::NothingMissed),
        _ => {}
    }
    refuse_if(
        change.next.iter().any(|next| next.due <= plan.fired_through.max(change.through)),
        CommandRefusal::FiredThrough,
    )?;
    let opened = u64::from(plan.opened) + change.due.as_ref().map_or(0, |fire| fire.opened.len() as u64);
    if change.timing.max_runs.is_some_and(|most| u64::from(most) <= opened) && change.next.is_some() {
        return wrong(Impossible::RunsUsedUp);
    }
    Ok(())
}
