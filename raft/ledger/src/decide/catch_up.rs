//! Computes the fire that a leader proposes, from the plan of a schedule and the present time (P8, P16).
//!
//! Each due instant of the plan is either opened or explained, in one entry.

use super::timing::{Calendar, Jitter, JudgedInstant, Zone, first, tell};

use super::overlap;
use crate::calendar::{self, Pattern, Step};
use crate::command::{Fire, Opening};
#[cfg(doc)]
use crate::model::LedgerLimits;
use crate::model::{
    CatchUp, FINISH_MS_MIN, Ledger, NextInstant, Nominal, OpeningCause, Schedule, ScheduleId, Time, UnopenedReason,
};

/// Instants that one fire considers at most; the next fires consider the rest.
pub const STEPS_MAX: usize = 1_024;

/// Returns the fire that moves a schedule's plan to `now`. `None` if nothing is due, or the schedule does not fire.
///
/// After a long outage a fire considers [`STEPS_MAX`] instants, and the next fires consider the rest. The zone's rules
/// may have changed since the plan's next instant was computed: an instant that was moved or removed is explained.
/// Instants that wait for a run stay in the plan; if all of them wait, there is no fire.
pub fn plan_fire(ledger: &Ledger, id: ScheduleId, pattern: &Pattern, zone: &Zone, now: Time) -> Option<Fire> {
    plan(ledger, id, Calendar { pattern, zone }, now, |place| place)
}

/// Like [`plan_fire`], for an edit that ends the timing: a due instant opens now at the latest, whatever its jitter.
pub fn plan_leave(ledger: &Ledger, id: ScheduleId, pattern: &Pattern, zone: &Zone, now: Time) -> Option<Fire> {
    plan(ledger, id, Calendar { pattern, zone }, now, |place| place.min(now))
}

/// `waits` maps the planned opening time of an instant to the time at which it opens.
fn plan(
    ledger: &Ledger,
    id: ScheduleId,
    calendar: Calendar<'_>,
    now: Time,
    waits: impl Fn(Time) -> Time,
) -> Option<Fire> {
    let schedule = ledger.schedules().get(&id)?;
    let next = schedule.plan.next.as_ref().filter(|next| next.due <= now && waits(next.opens()) <= now)?;
    let due = DueSteps::read(schedule, next, calendar, now);
    let opens_at = |step: &Step| opens_at(schedule, calendar, next, step, &waits);
    let more_follow = due.more_follow(schedule, calendar);
    let mut judged = judge(ledger, (id, schedule), (&due.steps, more_follow), (now, opens_at));
    let through = take_ripe(ledger, (id, schedule), next, &due, &mut judged, now)?;
    let following = |after| {
        let bounds = (schedule.start, schedule.end);
        first(calendar.pattern, calendar.zone, &schedule.policies.dst, after, bounds, Jitter::of(schedule))
    };
    let mut fire = Fire {
        schedule: id,
        plan_version: schedule.plan.version,
        from: next.nominal.clone(),
        opened: Vec::new(),
        explained: Vec::new(),
        through,
        next: following(through),
        tzdb: calendar.zone.tzdb.clone(),
    };
    let mut ranges = Ranges::default();
    if !due.steps.iter().any(|step| Nominal::from(step.nominal()) == next.nominal) {
        let has_opened = ledger.has_opened(&(id, next.nominal.clone()));
        let reason = if has_opened { UnopenedReason::OpenedBefore } else { UnopenedReason::DoesNotExist };
        ranges.explain(&mut fire, next.nominal.clone(), reason);
    }
    let to_come = following(through.max(now));
    for JudgedInstant { nominal, due, verdict, .. } in judged {
        match verdict {
            Err(reason) => ranges.explain(&mut fire, nominal, reason),
            Ok(cause) => {
                let finish_by = finish_by(schedule, due, now, to_come.as_ref());
                fire.opened.push(Opening { nominal, due, cause, finish_by });
            }
        }
    }
    stop_at_max_runs(schedule, &mut fire);
    (!fire.opened.is_empty() || !fire.explained.is_empty()).then_some(fire)
}

/// What the calendar has from where the plan stands up to now.
struct DueSteps {
    steps: Vec<Step>,
    /// Up to here the calendar was read.
    end: Time,
    /// False: after [`STEPS_MAX`] steps the rest is left to the next fire.
    complete: bool,
}

impl DueSteps {
    fn read(schedule: &Schedule, next: &NextInstant, calendar: Calendar<'_>, now: Time) -> DueSteps {
        let start = schedule.start.map_or(schedule.plan.fired_through, |start| start.plus_ms(-1));
        let after = schedule.plan.fired_through.max(start).min(next.due.plus_ms(-1));
        let end = schedule.end.map_or(now, |end| now.min(end)).max(next.due);
        let Calendar { pattern, zone } = calendar;
        let (dst, from, to) = (&schedule.policies.dst, after.timestamp(), end.timestamp());
        let missed = calendar::missed(pattern, &zone.rules, dst, from, to, STEPS_MAX);
        DueSteps { steps: missed.steps, end, complete: missed.complete }
    }

    /// Whether an instant is due that was not read.
    fn more_follow(&self, schedule: &Schedule, Calendar { pattern, zone }: Calendar<'_>) -> bool {
        let last = self.steps.last().map_or(self.end, |step| step.instant().into());
        let bounds = (schedule.start, Some(self.end));
        !self.complete && first(pattern, zone, &schedule.policies.dst, last, bounds, Jitter::NONE).is_some()
    }
}

/// When an instant opens. The plan has the place of its next instant, whatever the rules are now.
fn opens_at(
    schedule: &Schedule,
    calendar: Calendar<'_>,
    next: &NextInstant,
    step: &Step,
    waits: impl Fn(Time) -> Time,
) -> Time {
    match step {
        Step::Absent(_) => step.instant().into(),
        Step::Fires(firing) if Nominal::from(firing.nominal) == next.nominal => waits(next.opens()),
        Step::Fires(firing) => {
            let place_ms = Jitter::of(schedule).place_ms(calendar, &schedule.policies.dst, firing);
            waits(Time::from(firing.instant).plus_ms(place_ms))
        }
    }
}

/// Leaves in `judged` what this fire takes: what has reached its place in the window and waits for no run (`overlap`).
/// Returns up to where the plan moves. `None`: all of it waits.
fn take_ripe(
    ledger: &Ledger,
    (id, schedule): (ScheduleId, &Schedule),
    next: &NextInstant,
    due: &DueSteps,
    judged: &mut Vec<JudgedInstant>,
    now: Time,
) -> Option<Time> {
    // Only the last instant can still wait for its jitter: an instant opens before the next one is due.
    let unripe = judged.iter().find(|step| step.opens > now).map(|step| step.due);
    let ripe = unripe.map_or(judged.len(), |due| judged.partition_point(|step| step.due < due));
    let is_busy = ledger.holding(id).any(|(_, run)| run.holds_up(now));
    let ripe = judged.get_mut(..ripe).unwrap_or_default();
    let taken = overlap::fit(schedule.policies.overlap, is_busy, next.due, ripe);
    let first_to_wait = judged.get(taken).map(|step| step.due);
    judged.truncate(taken);
    let last = judged.last().map(|step| step.due);
    match first_to_wait {
        Some(waits) if waits <= next.due => None,
        Some(_) => Some(last.unwrap_or(next.due).max(next.due)),
        None if !due.complete => Some(last.unwrap_or(due.end)),
        None => Some(due.end),
    }
}

/// Judges each step. Of runs that block the schedule it uses only one fact: an instant that waited was not missed.
fn judge(
    ledger: &Ledger,
    (id, schedule): (ScheduleId, &Schedule),
    (steps, more_follow): (&[Step], bool),
    (now, opens_at): (Time, impl Fn(&Step) -> Time),
) -> Vec<JudgedInstant> {
    let steps: Vec<(&Step, Time)> = steps.iter().map(|step| (step, opens_at(step))).collect();
    // An instant that replaces others opens now. So one that still waits for its jitter is no candidate.
    let is_ripe = |(step, opens): &(&Step, Time)| matches!(step, Step::Fires(_)) && *opens <= now;
    let latest = steps.iter().rposition(is_ripe).filter(|_| !more_follow);
    let (held, on_time_ms) = (ledger.held_up(id, now), ledger.limits().on_time_ms);
    let was_missed = |opens: Time| schedule.plan.missed_before.is_some_and(|before| opens < before);
    let judge = |(place, (step, opens)): (usize, (&Step, Time))| {
        let (nominal, due) = (Nominal::from(step.nominal()), Time::from(step.instant()));
        let wait = match held {
            _ if was_missed(opens) => Wait::Missed,
            Some(held) if opens <= held.through => Wait::ForRun,
            _ => Wait::None,
        };
        let verdict = match step {
            _ if ledger.has_opened(&(id, nominal.clone())) => Err(UnopenedReason::OpenedBefore),
            Step::Absent(_) => Err(UnopenedReason::DoesNotExist),
            Step::Fires(_) => verdict(schedule, (now.since_ms(opens), on_time_ms), wait, Some(place) == latest),
        };
        JudgedInstant { nominal, due, opens, verdict }
    };
    steps.into_iter().enumerate().map(judge).collect()
}

/// Why an instant is late.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It is on time, or there was no leader.
    None,
    /// It waited for a run (`buffer_one`), so it was not missed.
    ForRun,
    /// It was due in a pause, or in an outage longer than [`LedgerLimits::on_time_ms`].
    Missed,
}

/// Decides whether an instant opens, and with which cause; or why it does not open (P16).
fn verdict(
    schedule: &Schedule,
    (late_ms, on_time_ms): (i64, i64),
    wait: Wait,
    is_latest: bool,
) -> Result<OpeningCause, UnopenedReason> {
    let policies = &schedule.policies;
    match policies.catch_up {
        _ if late_ms > policies.start_within_ms => Err(UnopenedReason::TooLate),
        CatchUp::One | CatchUp::None if wait == Wait::ForRun && !is_latest => Err(UnopenedReason::Superseded),
        _ if wait == Wait::ForRun || wait == Wait::None && late_ms <= on_time_ms => Ok(OpeningCause::Due),
        CatchUp::All => Ok(OpeningCause::CatchUp),
        CatchUp::One if is_latest => Ok(OpeningCause::CatchUp),
        CatchUp::One => Err(UnopenedReason::Coalesced),
        CatchUp::None => Err(UnopenedReason::NoCatchUp),
    }
}

/// Returns the deadline: `finish_by` after the instant, but not after the next occurrence opens. It leaves at least ten
/// minutes from now, or all of `finish_by` if that is shorter.
fn finish_by(schedule: &Schedule, due: Time, now: Time, next: Option<&NextInstant>) -> Time {
    let wanted = due.plus_ms(schedule.policies.finish_by_ms);
    let until_next = next.map_or(wanted, |next| wanted.min(next.opens()));
    until_next.max(now.plus_ms(FINISH_MS_MIN.min(schedule.policies.finish_by_ms)))
}

/// Collects consecutive instants that did not open for the same reason into one range. So an outage of hours takes a
/// few bytes.
#[derive(Default)]
struct Ranges {
    /// Number of openings when the last range began.
    opened: usize,
    last: Option<Nominal>,
}

impl Ranges {
    fn explain(&mut self, fire: &mut Fire, nominal: Nominal, reason: UnopenedReason) {
        if std::mem::replace(&mut self.opened, fire.opened.len()) != fire.opened.len() {
            self.last = None;
        }
        tell(&mut fire.explained, &mut self.last, nominal, reason);
    }
}

/// Ends the fire at the last run that `max_runs` allows. The plan then has no next instant.
fn stop_at_max_runs(schedule: &Schedule, fire: &mut Fire) {
    let Some(most) = schedule.max_runs else { return };
    let left = most.saturating_sub(schedule.plan.opened) as usize;
    if fire.opened.len() >= left {
        fire.opened.truncate(left);
        if let Some(last) = fire.opened.last() {
            fire.through = last.due.max(schedule.plan.next.as_ref().map_or(last.due, |next| next.due));
        }
        fire.next = None;
    }
}
