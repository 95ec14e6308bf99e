//! Computes the fire that a leader proposes, from the plan of a schedule and the present time (P8, P16).
//!
//! Each due instant of the plan is either opened or explained, in one entry.

use super::explained_ranges::{ExplainedRanges, JudgedInstant};
use super::overlap;
use super::timing::{Calendar, Jitter, Zone, first_instant_after};
use crate::calendar::{self, Pattern, Step};
use crate::command::{Fire, Opening};
#[cfg(doc)]
use crate::model::LedgerLimits;
use crate::model::{
    BlockingRun, CatchUp, FINISH_MS_MIN, Ledger, NextInstant, OccurrenceName, OpeningCause, Schedule, ScheduleId, Time,
    UnopenedReason,
};

/// Maximum number of instants that one fire considers; the next fires consider the rest.
pub const STEPS_MAX: usize = 1_024;

/// Returns the fire that moves a schedule's plan to `now`. `None` if nothing is due, or the schedule does not fire.
///
/// After a long outage a fire considers [`STEPS_MAX`] instants, and the next fires consider the rest. The zone's rules
/// may have changed since the plan's next instant was computed: an instant that was moved or removed is explained.
/// Instants that wait for a run stay in the plan; if all of them wait, there is no fire.
pub fn plan_fire(ledger: &Ledger, id: ScheduleId, pattern: &Pattern, zone: &Zone, now: Time) -> Option<Fire> {
    FirePlanner::new(ledger, id, Calendar { pattern, zone }, now, false)?.plan()
}

/// Like [`plan_fire`], before an edit of the timing: a due instant opens now at the latest, whatever its jitter.
pub fn plan_last_fire_of_old_timing(
    ledger: &Ledger,
    id: ScheduleId,
    pattern: &Pattern,
    zone: &Zone,
    now: Time,
) -> Option<Fire> {
    FirePlanner::new(ledger, id, Calendar { pattern, zone }, now, true)?.plan()
}

/// A schedule whose next instant is due, and what its fire depends on.
struct FirePlanner<'a> {
    ledger: &'a Ledger,
    id: ScheduleId,
    schedule: &'a Schedule,
    /// The plan's next instant.
    next: &'a NextInstant,
    calendar: Calendar<'a>,
    now: Time,
    /// True before an edit that changes the timing.
    before_edit: bool,
}

/// Steps of the calendar from the plan's next instant up to now.
struct DueSteps {
    steps: Vec<Step>,
    /// The calendar was read up to here.
    end: Time,
    /// False if the rest, after [`STEPS_MAX`] steps, is left to the next fire.
    complete: bool,
}

/// The instants that one fire opens or explains.
struct PlannedInstants {
    judged: Vec<JudgedInstant>,
    /// The plan moves up to here.
    through: Time,
}

impl<'a> FirePlanner<'a> {
    /// Returns `None` if nothing of the schedule opens yet.
    fn new(
        ledger: &'a Ledger,
        id: ScheduleId,
        calendar: Calendar<'a>,
        now: Time,
        before_edit: bool,
    ) -> Option<FirePlanner<'a>> {
        let schedule = ledger.schedules().get(&id)?;
        let next = schedule.plan.next.as_ref().filter(|next| next.due <= now)?;
        let planner = FirePlanner { ledger, id, schedule, next, calendar, now, before_edit };
        (planner.opening_time(next.opens()) <= now).then_some(planner)
    }

    fn plan(&self) -> Option<Fire> {
        let due_steps = self.read();
        let PlannedInstants { judged, through } = self.select(&due_steps, self.judge(&due_steps))?;
        let mut explained = ExplainedRanges::default();
        if !due_steps.steps.iter().any(|step| OccurrenceName::from(step.occurrence()) == self.next.occurrence) {
            let has_opened = self.ledger.has_opened(&(self.id, self.next.occurrence.clone()));
            let reason = if has_opened { UnopenedReason::OpenedBefore } else { UnopenedReason::DoesNotExist };
            explained.add(self.next.occurrence.clone(), reason);
        }
        let mut opened = Vec::new();
        let to_come = self.following(through.max(self.now));
        for JudgedInstant { occurrence, due, verdict, .. } in judged {
            match verdict {
                Err(reason) => explained.add(occurrence, reason),
                Ok(cause) => {
                    explained.end_range();
                    opened.push(Opening { occurrence, due, cause, finish_by: self.finish_by(due, to_come.as_ref()) });
                }
            }
        }
        let mut fire = Fire {
            schedule: self.id,
            plan_version: self.schedule.plan.version,
            from: self.next.occurrence.clone(),
            opened,
            explained: explained.ranges,
            through,
            next: self.following(through),
            tzdb: self.calendar.zone.tzdb.clone(),
        };
        stop_at_max_runs(self.schedule, &mut fire);
        (!fire.opened.is_empty() || !fire.explained.is_empty()).then_some(fire)
    }

    fn read(&self) -> DueSteps {
        let FirePlanner { schedule, next, calendar: Calendar { pattern, zone }, now, .. } = *self;
        let start = schedule.timing.start.map_or(schedule.plan.fired_through, |start| start.plus_ms(-1));
        let after = schedule.plan.fired_through.max(start).min(next.due.plus_ms(-1));
        let end = schedule.timing.end.map_or(now, |end| now.min(end)).max(next.due);
        let (dst, from, to) = (&schedule.settings.policies.dst, after.timestamp(), end.timestamp());
        let missed = calendar::missed(pattern, &zone.rules, dst, from, to, STEPS_MAX);
        DueSteps { steps: missed.steps, end, complete: missed.complete }
    }

    /// True if an instant is due that was not read.
    fn more_follow(&self, due_steps: &DueSteps) -> bool {
        let last = due_steps.steps.last().map_or(due_steps.end, |step| step.instant().into());
        !due_steps.complete && self.first_after(last, Some(due_steps.end), Jitter::NONE).is_some()
    }

    /// The next instant of the plan if it has moved to `through`.
    fn following(&self, through: Time) -> Option<NextInstant> {
        self.first_after(through, self.schedule.timing.end, Jitter::of(self.schedule))
    }

    fn first_after(&self, after: Time, end: Option<Time>, jitter: Jitter<'_>) -> Option<NextInstant> {
        let FirePlanner { schedule, calendar, .. } = *self;
        first_instant_after(calendar, &schedule.settings.policies.dst, after, (schedule.timing.start, end), jitter)
    }

    /// When an instant opens whose jitter ends at `planned`.
    fn opening_time(&self, planned: Time) -> Time {
        if self.before_edit { planned.min(self.now) } else { planned }
    }

    /// When a step opens. The plan has the jitter of its next instant, whatever the rules are now.
    fn opens_at(&self, step: &Step) -> Time {
        match step {
            Step::Absent(_) => step.instant().into(),
            Step::Fires(firing) if OccurrenceName::from(firing.occurrence) == self.next.occurrence => {
                self.opening_time(self.next.opens())
            }
            Step::Fires(firing) => {
                let jitter = Jitter::of(self.schedule);
                let delay_ms = jitter.delay_ms(self.calendar, &self.schedule.settings.policies.dst, firing);
                self.opening_time(Time::from(firing.instant).plus_ms(delay_ms))
            }
        }
    }

    /// Selects the instants of this fire: their jitter is over, and they wait for no run (`overlap`). `None`: all wait.
    fn select(&self, due_steps: &DueSteps, mut judged: Vec<JudgedInstant>) -> Option<PlannedInstants> {
        let FirePlanner { ledger, id, schedule, next, now, .. } = *self;
        // Only the last instant can still wait for its jitter: an instant opens before the next one is due.
        let in_jitter = judged.iter().find(|step| step.opens > now).map(|step| step.due);
        let open_now = in_jitter.map_or(judged.len(), |due| judged.partition_point(|step| step.due < due));
        let is_busy = ledger.blocking_runs(id).any(|(_, run)| run.has_work_left(now));
        let open_now = judged.get_mut(..open_now).unwrap_or_default();
        let taken = overlap::apply_policy(schedule.settings.policies.overlap, is_busy, next.due, open_now);
        let first_to_wait = judged.get(taken).map(|step| step.due);
        judged.truncate(taken);
        let last = judged.last().map(|step| step.due);
        let through = match first_to_wait {
            Some(waits) if waits <= next.due => return None,
            Some(_) => last.unwrap_or(next.due).max(next.due),
            None if !due_steps.complete => last.unwrap_or(due_steps.end),
            None => due_steps.end,
        };
        Some(PlannedInstants { judged, through })
    }

    /// Judges each step. Of runs that block the schedule it uses only one fact: an instant that waited was not missed.
    fn judge(&self, due_steps: &DueSteps) -> Vec<JudgedInstant> {
        let steps: Vec<(&Step, Time)> = due_steps.steps.iter().map(|step| (step, self.opens_at(step))).collect();
        // An instant that replaces others opens now. So one that still waits for its jitter is no candidate.
        let opens_now = |(step, opens): &(&Step, Time)| matches!(step, Step::Fires(_)) && *opens <= self.now;
        let latest = steps.iter().rposition(opens_now).filter(|_| !self.more_follow(due_steps));
        let blocking = self.ledger.blocking_run(self.id, self.now);
        let steps = steps.into_iter().enumerate();
        steps.map(|(number, (step, opens))| self.judge_step(step, opens, blocking, Some(number) == latest)).collect()
    }

    fn judge_step(&self, step: &Step, opens: Time, blocking: Option<BlockingRun>, is_latest: bool) -> JudgedInstant {
        let (occurrence, due) = (OccurrenceName::from(step.occurrence()), Time::from(step.instant()));
        let timeliness = match blocking {
            _ if self.schedule.plan.missed_before.is_some_and(|before| opens < before) => Timeliness::Missed,
            Some(blocking) if opens <= blocking.through => Timeliness::WaitedForRun,
            _ if self.now.since_ms(opens) <= self.ledger.limits().on_time_ms => Timeliness::OnTime,
            _ => Timeliness::Missed,
        };
        let verdict = match step {
            _ if self.ledger.has_opened(&(self.id, occurrence.clone())) => Err(UnopenedReason::OpenedBefore),
            Step::Absent(_) => Err(UnopenedReason::DoesNotExist),
            Step::Fires(_) if Some(due) <= self.ledger.maybe_sent_through() => Err(UnopenedReason::Restored),
            Step::Fires(_) => self.verdict(opens, timeliness, is_latest),
        };
        JudgedInstant { occurrence, due, opens, verdict }
    }

    /// Decides whether an instant opens, and with which cause; or why it does not open (P16).
    fn verdict(&self, opens: Time, timeliness: Timeliness, is_latest: bool) -> Result<OpeningCause, UnopenedReason> {
        let policies = &self.schedule.settings.policies;
        let waited = timeliness == Timeliness::WaitedForRun;
        match policies.catch_up {
            _ if self.now.since_ms(opens) > policies.start_within_ms => Err(UnopenedReason::TooLate),
            CatchUp::One | CatchUp::None if waited && !is_latest => Err(UnopenedReason::Superseded),
            _ if timeliness != Timeliness::Missed => Ok(OpeningCause::Due),
            CatchUp::All => Ok(OpeningCause::CatchUp),
            CatchUp::One if is_latest => Ok(OpeningCause::CatchUp),
            CatchUp::One => Err(UnopenedReason::Coalesced),
            CatchUp::None => Err(UnopenedReason::NoCatchUp),
        }
    }

    /// Returns the deadline: `finish_by` after the instant, but not after the next occurrence opens. It leaves at least
    /// ten minutes from now, or all of `finish_by` if that is shorter.
    fn finish_by(&self, due: Time, next: Option<&NextInstant>) -> Time {
        let finish_by_ms = self.schedule.settings.policies.finish_by_ms;
        let wanted = due.plus_ms(finish_by_ms);
        let until_next = next.map_or(wanted, |next| wanted.min(next.opens()));
        until_next.max(self.now.plus_ms(FINISH_MS_MIN.min(finish_by_ms)))
    }
}

/// Whether an instant opens in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timeliness {
    /// It is at most [`LedgerLimits::on_time_ms`] late.
    OnTime,
    /// It waited for a run (`buffer_one`), so it was not missed.
    WaitedForRun,
    /// It was due in a pause or in an outage.
    Missed,
}

/// Ends the fire at the last run that `max_runs` allows. The plan then has no next instant.
fn stop_at_max_runs(schedule: &Schedule, fire: &mut Fire) {
    let Some(most) = schedule.timing.max_runs else { return };
    let left = most.saturating_sub(schedule.plan.opened) as usize;
    if fire.opened.len() >= left {
        fire.opened.truncate(left);
        if let Some(last) = fire.opened.last() {
            fire.through = last.due.max(schedule.plan.next.as_ref().map_or(last.due, |next| next.due));
        }
        fire.next = None;
    }
}
