//! Fire (P8): a compare-and-set on a schedule's plan, and the pages that it opens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Context;
use super::bounds::{bounded, inside_window, refuse_if};
use crate::command::{Fire, Opening};
use crate::effect::Effect;
use crate::injected_bugs::{self, Bug};
use crate::model::{
    Bitmap, BlockCause, BlockingRun, BounceBreaker, CHUNK, CanaryState, Chunk, CommandOutcome, CommandRefusal,
    EventKind, Hash, Impossible, Ledger, LedgerLimits, LimitedQuantity, NextInstant, OccurrenceName, OpeningCause,
    Overlap, Page, PageId, Policies, RecipientCounts, RecipientState, Run, RunId, RunState, Schedule, ScheduleId,
    ScheduleState, Time,
};

/// An occurrence that opens, before it has a page.
pub(super) struct OpeningOccurrence {
    pub schedule: ScheduleId,
    pub opening: Opening,
    /// The run that the occurrence waited for; `None` if it did not wait.
    pub waited_for: Option<RunId>,
    /// What it sends, with a reference to each of its blobs. `None`: what the schedule sends.
    pub source: Option<RunSource>,
}

impl OpeningOccurrence {
    /// An occurrence that did not wait, and sends what its schedule sends.
    pub(super) fn of_schedule(schedule: ScheduleId, opening: Opening) -> OpeningOccurrence {
        OpeningOccurrence { schedule, opening, waited_for: None, source: None }
    }
}

/// What a run sends, to which recipients, and how.
pub(super) struct RunSource {
    /// Name of the schedule.
    pub name: Arc<str>,
    pub content: Hash,
    pub audience: Hash,
    pub recipients: u32,
    pub policies: Arc<Policies>,
    pub pool: Arc<str>,
    pub priority: u8,
    /// See [`Run::body_hash`].
    pub body_hash: Option<Hash>,
}

impl RunSource {
    /// What a schedule sends.
    pub(super) fn of(schedule: &Schedule) -> RunSource {
        RunSource {
            name: schedule.name.clone(),
            content: schedule.content,
            audience: schedule.audience,
            recipients: schedule.recipients,
            policies: schedule.settings.policies.clone(),
            pool: schedule.settings.pool.clone(),
            priority: schedule.settings.priority,
            body_hash: None,
        }
    }
}

/// Occurrences by schedule and name.
pub(super) type OpenedNames = BTreeSet<(ScheduleId, OccurrenceName)>;

/// Occurrences with equal keys share a page. Pages open in the order of their keys, so the order of the fields must not
/// change.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PageKey {
    tenant: Arc<str>,
    pool: Arc<str>,
    priority: u8,
    due: Time,
    /// Late occurrences share pages only with late ones (P16).
    is_late: bool,
    /// The number of a large occurrence, so that it has a page of its own. `None`: a small one.
    large: Option<usize>,
}

impl Ledger {
    pub(super) fn fire(&mut self, context: &mut Context, fires: &[Fire]) -> CommandOutcome {
        let (mut occurrences, mut opened_names) = (Vec::new(), OpenedNames::new());
        let mut answers: Vec<Result<(), CommandRefusal>> = Vec::with_capacity(fires.len());
        for fire in fires {
            let before = self.due_key(fire.schedule);
            let checked = self
                .check_opening_time(fire, context.now)
                .and_then(|()| self.check_only_fire_of_entry(fire, &opened_names));
            let opened = checked.and_then(|()| self.compare_and_move_plan(context, fire, &mut opened_names));
            answers.push(match opened {
                Ok(opened) => {
                    if opened.is_empty() {
                        self.alarm_missed_campaign(context, fire.schedule);
                    }
                    occurrences.extend(opened);
                    Ok(())
                }
                Err(refusal) => {
                    self.count_fire_refusal(context, fire, &refusal);
                    Err(refusal)
                }
            });
            self.index_due(context, fire.schedule, before);
        }
        let mut runs_by_schedule: BTreeMap<ScheduleId, Vec<RunId>> = BTreeMap::new();
        for (schedule, run) in self.open_runs(context, occurrences) {
            runs_by_schedule.entry(schedule).or_default().push(run);
        }
        let runs_of = |fire: &Fire| runs_by_schedule.get(&fire.schedule).cloned().unwrap_or_default();
        let answers = answers.into_iter().zip(fires).map(|(answer, fire)| answer.map(|()| runs_of(fire)));
        CommandOutcome::Fired(answers.collect())
    }

    /// An instant opens at its time in the jitter window, not before. An edit that ends the timing does not wait for
    /// the instant, so only fires are checked.
    fn check_opening_time(&self, fire: &Fire, now: Time) -> Result<(), CommandRefusal> {
        let plan = self.schedules.get(&fire.schedule).map(|schedule| &schedule.plan);
        let planned = plan.filter(|plan| plan.version == fire.plan_version).and_then(|plan| plan.next.as_ref());
        match planned.filter(|next| next.occurrence == fire.from).map(NextInstant::opens) {
            Some(opens) if opens > now => Err(CommandRefusal::NotDue(opens)),
            _ => Ok(()),
        }
    }

    /// Refuses a second fire of a schedule in one entry if its runs must not overlap. The runs of an entry open after
    /// its last fire, so `check_overlap` does not see the runs of the first fire.
    fn check_only_fire_of_entry(&self, fire: &Fire, opened_names: &OpenedNames) -> Result<(), CommandRefusal> {
        let first = (fire.schedule, OccurrenceName::LOWEST);
        let has_opened = opened_names.range(first..).next().is_some_and(|(schedule, _)| *schedule == fire.schedule);
        let overlap = self.schedules.get(&fire.schedule).map(|schedule| schedule.settings.policies.overlap);
        refuse_if(has_opened && !fire.opened.is_empty() && overlap != Some(Overlap::Allow), CommandRefusal::StalePlan)
    }

    /// Compares one fire with the plan and moves the plan. Returns the occurrences that the fire opens, and adds their
    /// names to `opened_names`, those of the entry.
    pub(super) fn compare_and_move_plan(
        &mut self,
        context: &mut Context,
        fire: &Fire,
        opened_names: &mut OpenedNames,
    ) -> Result<Vec<OpeningOccurrence>, CommandRefusal> {
        let fresh = self.compare_plan(fire, opened_names, context.now)?;
        opened_names.extend(fresh);
        let waited_for = self.waited_for(fire, context.now);
        self.record_explained(context, fire.schedule, &fire.explained);
        self.move_plan(fire);
        let of_schedule = |opening: &Opening| OpeningOccurrence::of_schedule(fire.schedule, opening.clone());
        let opened = fire.opened.iter().map(|opening| OpeningOccurrence { waited_for, ..of_schedule(opening) });
        Ok(opened.collect())
    }

    /// Compares a fire with the plan (P8). Returns the names that it opens.
    fn compare_plan(&self, fire: &Fire, opened_names: &OpenedNames, now: Time) -> Result<OpenedNames, CommandRefusal> {
        let id = fire.schedule;
        let schedule = self.schedules.get(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        let plan = &schedule.plan;
        let next = plan.next.as_ref().ok_or(CommandRefusal::StalePlan)?;
        refuse_unless_trusted(
            plan.version != fire.plan_version || next.occurrence != fire.from,
            CommandRefusal::StalePlan,
        )?;
        refuse_if(schedule.state != ScheduleState::Active, CommandRefusal::NotActive(schedule.state.kind()))?;
        refuse_if(!self.head.epoch.is_some_and(|epoch| epoch.clocks_agree), CommandRefusal::ClocksDisagree)?;
        check_instants(schedule, next.due, fire, now)?;
        if let Some(through) = self.maybe_sent_through() {
            let is_maybe_sent = fire.opened.iter().any(|opening| opening.due <= through);
            refuse_if(is_maybe_sent, CommandRefusal::MaybeSent(through))?;
        }
        bounded(LimitedQuantity::Openings, opened_names.len() + fire.opened.len(), self.limits().entry_openings_max)?;
        let fresh: OpenedNames = fire.opened.iter().map(|opening| (id, opening.occurrence.clone())).collect();
        let is_new = |name: &(ScheduleId, OccurrenceName)| !opened_names.contains(name) && !self.has_opened(name);
        refuse_unless_trusted(
            fresh.len() < fire.opened.len() || !fresh.iter().all(is_new),
            CommandRefusal::FiredThrough,
        )?;
        self.check_overlap(id, fire, now)?;
        Ok(fresh)
    }

    /// Returns the run that the opened instant waited for.
    fn waited_for(&self, fire: &Fire, now: Time) -> Option<RunId> {
        let opens = self.schedules.get(&fire.schedule)?.plan.next.as_ref()?.opens();
        let was_due = |blocking: &BlockingRun| {
            opens <= blocking.through && fire.opened.iter().all(|one| one.due <= blocking.through)
        };
        self.blocking_run(fire.schedule, now).filter(was_due).map(|blocking| blocking.run)
    }

    fn move_plan(&mut self, fire: &Fire) {
        if let Some(schedule) = self.schedules.edit(&fire.schedule) {
            schedule.plan.fired_through = fire.through;
            schedule.plan.next = fire.next.clone();
            schedule.plan.opened = schedule.plan.opened.saturating_add(fire.opened.len() as u32);
            schedule.plan.tzdb = fire.tzdb.as_str().into();
            self.derived.shared.texts.intern(&mut schedule.plan.tzdb);
            schedule.plan.refusals = 0;
            schedule.plan.forget_what_is_past();
            if fire.next.is_none() {
                schedule.state = ScheduleState::Done;
            }
        }
    }

    /// The second refusal of an unchanged plan blocks the schedule (P8). These do not count: a stale plan, a schedule
    /// that is deleted or not active, clocks that disagree, an open former run, and an entry that other fires filled.
    fn count_fire_refusal(&mut self, context: &mut Context, fire: &Fire, refusal: &CommandRefusal) {
        match refusal {
            CommandRefusal::StalePlan
            | CommandRefusal::NoSuchSchedule(_)
            | CommandRefusal::NotActive(_)
            | CommandRefusal::ClocksDisagree
            | CommandRefusal::RunOpen(_) => return,
            CommandRefusal::TooLarge { .. } if fire.opened.len() <= self.limits().entry_openings_max => return,
            _ => {}
        }
        let Some(schedule) = self.schedules.edit(&fire.schedule) else { return };
        schedule.plan.refusals = schedule.plan.refusals.saturating_add(1);
        if schedule.plan.refusals >= 2 {
            let cause = BlockCause::FireRefused(Box::new(refusal.clone()));
            context.alarm(format!("schedule {} is blocked: {cause}", schedule.name));
            let event = EventKind::ScheduleBlocked(cause.clone());
            schedule.state = ScheduleState::Blocked { cause };
            schedule.plan.version += 1;
            self.add_blocked_event(context, fire.schedule, event);
        }
    }

    /// Opens occurrences, small ones together on shared pages. Returns their runs.
    pub(super) fn open_runs(
        &mut self,
        context: &mut Context,
        occurrences: Vec<OpeningOccurrence>,
    ) -> Vec<(ScheduleId, RunId)> {
        let limits = self.limits();
        let mut groups: BTreeMap<PageKey, Vec<(OpeningOccurrence, RunSource)>> = BTreeMap::new();
        for (number, mut occurrence) in occurrences.into_iter().enumerate() {
            let Some(schedule) = self.schedules.get(&occurrence.schedule) else { continue };
            let tenant = schedule.settings.tenant.clone();
            let source = match occurrence.source.take() {
                Some(source) => source,
                None => {
                    let source = RunSource::of(schedule);
                    self.retain_blob(&source.content);
                    self.retain_blob(&source.audience);
                    source
                }
            };
            let Opening { due, cause, .. } = occurrence.opening;
            let key = PageKey {
                tenant,
                pool: source.pool.clone(),
                priority: source.priority,
                due,
                is_late: cause.is_late(),
                large: (source.recipients > limits.small_audience_max).then_some(number),
            };
            groups.entry(key).or_default().push((occurrence, source));
        }
        let mut runs = Vec::new();
        for (PageKey { tenant, pool, priority, due, .. }, mut group) in groups {
            while !group.is_empty() {
                let rest = group.split_off(group.len().min(limits.page_runs_max));
                let id = PageId(RunId { index: context.index, place: runs.len() as u32 });
                let page = Page {
                    tenant: tenant.clone(),
                    pool: pool.clone(),
                    priority,
                    due,
                    opened_at: context.now,
                    cluster_incarnation: self.head.cluster_incarnation,
                    // Most pages of small schedules have a single run; a growing list would take room for four.
                    runs: Vec::with_capacity(group.len()),
                    slots: 0,
                };
                runs.extend(self.open_page(context, id, page, std::mem::replace(&mut group, rest)));
            }
        }
        runs
    }

    fn open_page(
        &mut self,
        context: &mut Context,
        id: PageId,
        mut page: Page,
        group: Vec<(OpeningOccurrence, RunSource)>,
    ) -> Vec<(ScheduleId, RunId)> {
        let mut runs = Vec::with_capacity(group.len());
        let limits = self.limits();
        for (OpeningOccurrence { schedule, opening, waited_for, .. }, source) in group {
            let run_id = RunId { index: id.0.index, place: id.0.place + page.runs.len() as u32 };
            if opening.cause != OpeningCause::Backfill {
                self.resolve_overlap(context, schedule, run_id);
            }
            let run = Run { waited_for, ..open_run(schedule, source, &opening, (run_id, page.slots), limits) };
            page.slots += run.count;
            if self.derived.seals.contains(&run.audience) {
                self.derived.to_seals.insert((run.content, run_id));
            }
            context.events.add((id, &page.tenant), &run, EventKind::RunOpened(run.count));
            page.runs.push(run);
            self.record_opened((schedule, opening.occurrence), run_id, opening.cause);
            runs.push((schedule, run_id));
        }
        for chunk_number in 0..page.slots.div_ceil(CHUNK) {
            let mut chunk = Chunk::default();
            chunk.sets[RecipientState::Pending as usize] = Bitmap::range(0, page.slots - chunk_number * CHUNK);
            self.chunks.put(id.chunk(chunk_number), chunk);
        }
        self.derived.open_pages.insert((page.starts_at(), id));
        self.pages.put(id, page);
        context.emit(Effect::WorkAppeared(id));
        for (schedule, run) in &runs {
            self.update_overlap_indexes(context, *schedule, *run);
        }
        self.suppress_inside_gap(context, id);
        runs
    }
}

fn open_run(
    schedule: ScheduleId,
    source: RunSource,
    opening: &Opening,
    (id, first): (RunId, u32),
    limits: &LedgerLimits,
) -> Run {
    Run {
        place: id.place,
        schedule,
        name: source.name,
        occurrence: opening.occurrence.clone(),
        due: opening.due,
        cause: opening.cause,
        content: source.content,
        audience: source.audience,
        first,
        count: source.recipients,
        finish_by: opening.finish_by,
        state: RunState::Open,
        counts: RecipientCounts::pending(source.recipients),
        finished_index: None,
        finished_at: None,
        unattributed_refusals: Vec::new(),
        known_duplicates: 0,
        contradictions: 0,
        assumptions_disproved: 0,
        resent: 0,
        waited_for: None,
        blocked: None,
        bounce_breaker: BounceBreaker::new(&limits.bounce_breaker),
        reopened: false,
        previous: None,
        canary: source.policies.canary.map(|canary| CanaryState::new(canary, source.recipients, id)),
        policies: source.policies,
        body_hash: source.body_hash,
    }
}

/// Refuses a fire that differs from the plan, unless an injected bug trusts the leader.
fn refuse_unless_trusted(differs: bool, refusal: CommandRefusal) -> Result<(), CommandRefusal> {
    refuse_if(differs && !injected_bugs::is(Bug::TimerTrustsLeader), refusal)
}

/// Checks that no instant opens early or at or before `fired_through`, and that the plan moves forward (P7, P8).
fn check_instants(schedule: &Schedule, due: Time, fire: &Fire, now: Time) -> Result<(), CommandRefusal> {
    if injected_bugs::is(Bug::TimerTrustsLeader) {
        return Ok(());
    }
    refuse_if(due > now, CommandRefusal::NotDue(due))?;
    inside_window(fire.next.as_ref(), &schedule.settings.policies)?;
    refuse_if(fire.through > now, CommandRefusal::NotDue(fire.through))?;
    refuse_if(fire.opened.is_empty() && fire.explained.is_empty(), Impossible::EmptyFire)?;
    let opened = u64::from(schedule.plan.opened) + fire.opened.len() as u64;
    refuse_if(schedule.timing.max_runs.is_some_and(|most| opened > u64::from(most)), Impossible::RunsUsedUp)?;
    let inside = |opening: &Opening| opening.due > schedule.plan.fired_through && opening.due <= fire.through;
    let ahead = fire.next.as_ref().is_none_or(|next| next.due > fire.through);
    let onward = fire.through >= due && fire.through > schedule.plan.fired_through;
    refuse_if(!fire.opened.iter().all(inside) || !ahead || !onward, CommandRefusal::FiredThrough)?;
    refuse_if(!fire.opened.is_sorted_by(|one, other| one.due < other.due), Impossible::Unordered)
}
