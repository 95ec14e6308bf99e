//! Schedules: create, pause, resume, delete, and trigger a run.
//!
//! Each change of `next` except by a fire raises `plan.version` (P8).

use super::bounds::{check_labels, gap_needs_a_list, gap_within_retention, inside_window, refuse_if};
use super::fire::{OpeningOccurrence, RunSource};
use super::message::FirstCall;
use super::{Context, StoredRequest};
use crate::command::{Opening, ScheduleCreate, ScheduleDelete, SchedulePause, ScheduleResume, Trigger};
use crate::effect::Effect;
use crate::fingerprint::fingerprint;
use crate::model::{
    Audience, AudienceChoice, Blob, CancelledRuns, CommandOutcome, CommandRefusal, Hash, Impossible, Ledger,
    MESSAGES_NAME, OccurrenceName, OpeningCause, RunId, Schedule, ScheduleCreation, ScheduleId, ScheduleState, Time,
};

impl Ledger {
    pub(super) fn schedule_create(
        &mut self,
        context: &mut Context,
        create: &ScheduleCreate,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let created = self.create_unless_known(context, 0, create)?;
        if let ScheduleCreation::Existed(id) = created {
            context.repeats = Some(id.index());
        }
        Ok(CommandOutcome::Schedule(created.id()))
    }

    /// Creates each schedule by itself: one that is refused does not affect the others. No answers are stored, so
    /// request ids have no effect; a repeat finds the schedules by their names.
    pub(super) fn schedules_create(
        &mut self,
        context: &mut Context,
        creates: &[ScheduleCreate],
    ) -> Result<CommandOutcome, CommandRefusal> {
        refuse_if(creates.len() > ScheduleId::PER_ENTRY, Impossible::TooManySchedules)?;
        let create = |(place, create): (usize, &ScheduleCreate)| {
            self.check_name_is_free_of_campaigns(create)?;
            self.create_unless_known(context, place, create)
        };
        Ok(CommandOutcome::Schedules(creates.iter().enumerate().map(create).collect()))
    }

    /// Creates a schedule at `place` of the entry, unless one with this name and definition exists.
    fn create_unless_known(
        &mut self,
        context: &mut Context,
        place: usize,
        create: &ScheduleCreate,
    ) -> Result<ScheduleCreation, CommandRefusal> {
        if let Some((id, known)) = self.schedule_named(&create.tenant, &create.name) {
            return match known.definition_hash() == create.definition_hash() {
                true => Ok(ScheduleCreation::Existed(id)),
                false => Err(CommandRefusal::NameTaken(create.name.clone())),
            };
        }
        self.check_create(create)?;
        let content = self.retain_content(&create.tenant, &create.content);
        let audience = self.retain_audience(&create.audience);
        let id = ScheduleId::new(context.index, place);
        let mut schedule = create.to_schedule((content, audience), context.index, context.now);
        schedule.intern(&mut self.derived.shared);
        self.derived.name_schedule(id, &schedule);
        self.schedules.put(id, schedule);
        self.index_due(context, id, None);
        Ok(ScheduleCreation::Created(id))
    }

    /// Checks that this schedule can be created. Does not check that its name is free.
    pub(super) fn check_create(&self, create: &ScheduleCreate) -> Result<(), CommandRefusal> {
        refuse_if(create.name == MESSAGES_NAME, Impossible::NoName)?;
        self.check_pool(&create.tenant, &create.pool)?;
        self.check_content(&create.tenant, &create.content)?;
        self.check_audience(&create.tenant, &create.audience)?;
        refuse_if(create.timing.max_runs == Some(0), Impossible::NoRuns)?;
        check_labels(&create.labels)?;
        gap_within_retention(&create.policies)?;
        gap_needs_a_list(&create.policies, matches!(create.audience, AudienceChoice::Sealed(_)))?;
        inside_window(create.next.as_ref(), &create.policies)
    }

    /// Changes the state of a schedule and raises the plan's version.
    pub(super) fn change_state(
        &mut self,
        context: &mut Context,
        id: ScheduleId,
        change: impl FnOnce(&Schedule) -> ScheduleState,
    ) -> Result<(), CommandRefusal> {
        let before = self.due_key(id);
        let schedule = self.schedules.edit(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        schedule.state = change(schedule);
        schedule.plan.version += 1;
        schedule.plan.refusals = 0;
        schedule.index = context.index;
        self.index_due(context, id, before);
        Ok(())
    }

    pub(super) fn schedule_pause(
        &mut self,
        context: &mut Context,
        pause: &SchedulePause,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let since = context.now;
        self.change_state(context, pause.schedule, |schedule| match &schedule.state {
            // A repeated pause without a reason keeps the former reason.
            paused @ ScheduleState::Paused { .. } if pause.reason.is_empty() => paused.clone(),
            ScheduleState::Paused { since, .. } => {
                ScheduleState::Paused { reason: pause.reason.as_str().into(), since: *since }
            }
            _ => ScheduleState::Paused { reason: pause.reason.as_str().into(), since },
        })?;
        Ok(CommandOutcome::Done)
    }

    pub(super) fn schedule_resume(
        &mut self,
        context: &mut Context,
        resume: &ScheduleResume,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let id = resume.schedule;
        let schedule = self.schedules.get(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        refuse_if(schedule.plan.version != resume.plan_version, CommandRefusal::StalePlan)?;
        let since = match &schedule.state {
            ScheduleState::Paused { since, .. } => Some(*since),
            ScheduleState::Blocked { .. } => None,
            state => return Err(CommandRefusal::NotActive(state.kind())),
        };
        // Instants of the pause are between `next` and now: the next fire opens or explains them.
        self.change_state(context, id, |schedule| match schedule.plan.next {
            Some(_) => ScheduleState::Active,
            None => ScheduleState::Done,
        })?;
        self.mark_missed_in_pause(id, since, context.now);
        Ok(CommandOutcome::Done)
    }

    pub(super) fn check_schedule_delete(&self, delete: &ScheduleDelete) -> Result<(), CommandRefusal> {
        let ScheduleDelete { schedule: id, expected } = delete;
        self.check_not_of_campaign(*id)?;
        let schedule = self.schedules.get(id).ok_or(CommandRefusal::NoSuchSchedule(*id))?;
        refuse_if(expected.is_some_and(|expected| expected != schedule.plan.version), CommandRefusal::StalePlan)
    }

    pub(super) fn schedule_delete(
        &mut self,
        context: &mut Context,
        id: ScheduleId,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let before = self.due_key(id);
        let schedule = self.schedules.remove(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        self.derived.unname_schedule(&schedule);
        self.index_due(context, id, before);
        self.release_content(&schedule.settings.tenant, &schedule.content, schedule.settings.template.as_ref());
        self.release_blob(&schedule.audience);
        Ok(CommandOutcome::Done)
    }

    /// Opens a run that is named by its request (P7). The same request opens no second run until its name is removed,
    /// 30 days after its run was archived. If the schedule was deleted and created again, it is refused while its answer
    /// is stored. Recipients that the trigger brings replace those of the schedule in this run.
    pub(super) fn trigger(
        &mut self,
        context: &mut Context,
        trigger: &Trigger,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let id = trigger.schedule;
        let occurrence = OccurrenceName::Trigger(trigger.request.clone());
        let list = trigger.audience.as_ref().map(Audience::blob);
        let body_hash = list.as_ref().map(|list| list.hash);
        if let Some(run) = self.run_of_first_trigger(trigger, body_hash)? {
            context.repeats = Some(run.index);
            return Ok(self.answer_of_first_trigger(trigger, run));
        }
        let schedule = self.schedules.get(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        let request = StoredRequest::of_trigger(schedule, trigger);
        if let Some(outcome) = self.answered_again(context, &request)? {
            return Ok(repeated(outcome));
        }
        self.check_not_held()?;
        refuse_if(
            matches!(schedule.state, ScheduleState::Blocked { .. }),
            CommandRefusal::NotActive(schedule.state.kind()),
        )?;
        let finish_by = context.now.plus_ms(schedule.settings.policies.finish_by_ms);
        self.may_trigger(id, context.now)?;
        let source = self.source_of_trigger(trigger, list, context.now)?;
        let opening = Opening { occurrence, due: context.now, cause: OpeningCause::Trigger, finish_by };
        let cancelled = self.would_cancel(id, context.now);
        let runs =
            self.open_runs(context, vec![OpeningOccurrence { source, ..OpeningOccurrence::of_schedule(id, opening) }]);
        let opened = runs.first().map(|(_, run)| *run).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        let outcome = CommandOutcome::Run { run: opened, cancelled, is_repeat: false };
        self.remember(context, request, &outcome);
        Ok(outcome)
    }

    /// Checks whether a trigger repeats an earlier one, and changes nothing. Returns the run of the first call; `None`:
    /// the request id is new for the schedule.
    ///
    /// # Errors
    /// Returns the refusal of `apply`, if the rule does not allow the repeat, or another call has used the request id.
    pub fn check_trigger_repeat(&self, trigger: &Trigger) -> Result<Option<RunId>, CommandRefusal> {
        let list = trigger.audience.as_ref().map(Audience::blob);
        if let Some(run) = self.run_of_first_trigger(trigger, list.map(|list| list.hash))? {
            return Ok(Some(run));
        }
        let id = trigger.schedule;
        let schedule = self.schedules.get(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        let answer = self.answer_to(&StoredRequest::of_trigger(schedule, trigger))?;
        Ok(answer.and_then(|answer| match &answer.outcome {
            CommandOutcome::Run { run, .. } => Some(*run),
            _ => None,
        }))
    }

    fn run_of_first_trigger(
        &self,
        trigger: &Trigger,
        body_hash: Option<Hash>,
    ) -> Result<Option<RunId>, CommandRefusal> {
        let name = (trigger.schedule, OccurrenceName::Trigger(trigger.request.clone()));
        let Some((run, first)) = self.first_call(&name) else { return Ok(None) };
        first.check_repeat(&FirstCall { body_hash, send_at: None }, trigger.rule, &trigger.request)?;
        Ok(Some(run))
    }

    /// Stores the recipients that a trigger brings, and returns what its run sends. `None`: the schedule has them.
    fn source_of_trigger(
        &mut self,
        trigger: &Trigger,
        list: Option<Blob>,
        now: Time,
    ) -> Result<Option<RunSource>, CommandRefusal> {
        let (Some(audience), Some(list)) = (&trigger.audience, list) else {
            return self.check_gap_leaves_recipient(trigger.schedule, now, None).map(|()| None);
        };
        self.check_list(audience)?;
        let schedule = self.schedules.get(&trigger.schedule);
        let schedule = schedule.ok_or(CommandRefusal::NoSuchSchedule(trigger.schedule))?;
        let (hash, recipients) = (list.hash, audience.recipients.len() as u32);
        let source = RunSource { audience: hash, recipients, body_hash: Some(hash), ..RunSource::of(schedule) };
        let former = self.blobs.get(&hash).filter(|stored| stored.bytes[..] != list.bytes).cloned();
        self.store_blob(list);
        if let Err(refusal) = self.check_gap_leaves_recipient(trigger.schedule, now, Some((hash, recipients))) {
            match former {
                // The stored list is without the erased recipient, and the caller's list still has the address. A refused
                // trigger changes nothing, so the former row comes back.
                Some(former) => drop(self.blobs.put(hash, former)),
                None => self.release_blob(&hash),
            }
            return Err(refusal);
        }
        self.retain_blob(&source.content);
        Ok(Some(source))
    }

    /// Returns the first answer to a trigger whose run exists. Without the cancelled runs if that answer is no longer
    /// stored.
    fn answer_of_first_trigger(&self, trigger: &Trigger, opened: RunId) -> CommandOutcome {
        let stored = self.schedules.get(&trigger.schedule);
        let stored = stored.and_then(|schedule| self.answer_to(&StoredRequest::of_trigger(schedule, trigger)).ok()?);
        match stored.map(|answer| &answer.outcome) {
            Some(outcome @ CommandOutcome::Run { run, .. }) if *run == opened => repeated(outcome.clone()),
            _ => CommandOutcome::Run { run: opened, cancelled: CancelledRuns::default(), is_repeat: true },
        }
    }

    /// The time of the schedule in the due index; `None` if it is not active.
    pub(super) fn due_key(&self, id: ScheduleId) -> Option<Time> {
        self.schedules.get(&id)?.wakes_at(self.blocking_runs(id).next().is_some())
    }

    /// Updates the due index for a schedule that was at `before`, and notifies the leader's timer.
    pub(super) fn index_due(&mut self, context: &mut Context, id: ScheduleId, before: Option<Time>) {
        let due = self.due_key(id);
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.derived.due.remove(&(before, id));
        }
        if let Some(due) = due {
            self.derived.due.insert((due, id));
        }
        context.emit(Effect::DueChanged { schedule: id, due });
    }
}

impl<'c> StoredRequest<'c> {
    fn of_trigger(schedule: &Schedule, trigger: &'c Trigger) -> StoredRequest<'c> {
        let body_hash = fingerprint(&("trigger", trigger.schedule));
        StoredRequest::new(&schedule.settings.tenant, ("trigger", &schedule.name), &trigger.request, body_hash)
    }
}

/// Returns the stored answer to a trigger as the answer to its repeat.
fn repeated(answer: CommandOutcome) -> CommandOutcome {
    match answer {
        CommandOutcome::Run { run, cancelled, .. } => CommandOutcome::Run { run, cancelled, is_repeat: true },
        other => other,
    }
}
