//! From a schedule's plan and the time of day to the fire that a leader proposes (P8, P16).
//!
//! Every instant that has come since the plan last moved is either opened or explained, in one entry.

use super::timing::{Calendar, Jitter, JudgedInstant, Zone, first, tell};

use super::overlap;
use crate::calendar::{self, Firing, Pattern, Step};
use crate::command::{Fire, Opening};
#[cfg(doc)]
use crate::model::Limits;
use crate::model::{
    CatchUp, FINISH_MS_MIN, Ledger, NextInstant, Nominal, OpeningCause, Schedule, ScheduleId, Time, UnopenedReason,
};

/// Instants that one fire looks at; the rest follows in the next.
pub const STEPS_MAX: usize = 1_024;

/// The fire that moves a schedule's plan to `now`; none when nothing is due, or the schedule does not fire.
///
/// Of a long outage it looks at [`STEPS_MAX`] instants; the fires after it look at the rest. The rules may
/// have changed since the plan's next instant was computed: an instant that has moved or gone is explained.
/// What waits for a run stays in the plan, and there is no fire where all of it does.
pub fn plan_fire(ledger: &Ledger, id: ScheduleId, pattern: &Pattern, zone: &Zone, now: Time) -> Option<Fire> {
    plan(ledger, id, Calendar { pattern, zone }, now, |place| place)
}

/// The same for an edit that leaves the timing: what is due opens now at the latest, wherever its place in the
/// window is.
pub fn plan_leave(ledger: &Ledger, id: ScheduleId, pattern: &Pattern, zone: &Zone, now: Time) -> Option<Fire> {
    plan(ledger, id, Calendar { pattern, zone }, now, |place| place.min(now))
}

/// `waits`: when what has its place then opens.
fn plan(
    ledger: &Ledger,
    id: ScheduleId,
    calendar: Calendar<'_>,
    now: Time,
    waits: impl Fn(Time) -> Time,
) -> Option<Fire> {
    let Calendar { pattern, zone } = calendar;
    let schedule = ledger.schedules().get(&id)?;
    let jitter = Jitter::of(schedule);
    let opens = |next: &NextInstant| waits(next.opens());
    let next = schedule.plan.next.as_ref().filter(|next| next.due <= now && opens(next) <= now)?;
    let from_start = schedule.start.map_or(schedule.plan.fired_through, |start| start.plus_ms(-1));
    let after = schedule.plan.fired_through.max(from_start).min(next.due.plus_ms(-1));
    let end = schedule.end.map_or(now, |end| now.min(end)).max(next.due);
    let dst = &schedule.policies.dst;
    let missed = calendar::missed(pattern, &zone.rules, dst, after.timestamp(), end.timestamp(), STEPS_MAX);
    let found = missed.steps;
    let more_to_come = !missed.complete && {
        let last = found.last().map_or(end, |step| step.instant().into());
        first(pattern, zone, dst, last, (schedule.start, Some(end)), Jitter::NONE).is_some()
    };
    let is_busy = ledger.holding(id).any(|(_, run)| run.holds_up(now));
    let opens_at = |firing: &Firing| match Nominal::from(firing.nominal) == next.nominal {
        // The plan has its place, whatever rules it is by.
        true => opens(next),
        false => waits(Time::from(firing.instant).plus_ms(jitter.place_ms(calendar, dst, firing))),
    };
    let mut judged = judge(ledger, (id, schedule), (&found, more_to_come), (now, opens_at));
    // Only the last one can be before its place, since that lies before the next instant.
    let unripe = judged.iter().find(|step| step.opens > now).map(|step| step.due);
    let ripe = unripe.map_or(judged.len(), |due| judged.partition_point(|step| step.due < due));
    let kept = overlap::fit(schedule.policies.overlap, is_busy, next.due, judged.get_mut(..ripe).unwrap_or_default());
    let first_to_wait = judged.get(kept).map(|step| step.due);
    judged.truncate(kept);
    let through = match (first_to_wait, judged.last()) {
        (Some(due), _) if due <= next.due => return None,
        (Some(_), last) => last.map_or(next.due, |last| last.due.max(next.due)),
        (None, Some(last)) if !missed.complete => last.due,
        (None, _) => end,
    };
    let bounds = (schedule.start, schedule.end);
    let following = |after| first(pattern, zone, dst, after, bounds, Jitter::of(schedule));
    let mut fire = Fire {
        schedule: id,
        plan_version: schedule.plan.version,
        from: next.nominal.clone(),
        opened: Vec::new(),
        explained: Vec::new(),
        through,
        next: following(through),
        tzdb: zone.tzdb.clone(),
    };
    let mut ranges = Ranges::default();
    if !found.iter().any(|step| Nominal::from(step.nominal()) == next.nominal) {
        let reason = if ledger.has_opened(&(id, next.nominal.clone())) {
            UnopenedReason::OpenedBefore
        } else {
            UnopenedReason::DoesNotExist
        };
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

/// Each step by itself; nothing of a run that stands in the way but that what was not missed has waited for it.
fn judge(
    ledger: &Ledger,
    (id, schedule): (ScheduleId, &Schedule),
    (steps, more_to_come): (&[Step], bool),
    (now, opens_at): (Time, impl Fn(&Firing) -> Time),
) -> Vec<JudgedInstant> {
    let opens_at = |step: &Step| match step {
        Step::Fires(firing) => opens_at(firing),
        Step::Absent(_) => step.instant().into(),
    };
    let steps: Vec<(&Step, Time)> = steps.iter().map(|step| (step, opens_at(step))).collect();
    // An instant that stands for others opens now, so one before its place in the window does not count yet.
    let is_ripe = |(step, opens): &(&Step, Time)| matches!(step, Step::Fires(_)) && *opens <= now;
    let latest = steps.iter().rposition(is_ripe).filter(|_| !more_to_come);
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

/// Why an instant is late, as far as the plan knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It is on time, or no leader was there.
    None,
    /// A run stood in its way (`buffer_one`): it was not missed.
    ForRun,
    /// It came in a pause, or in an outage that is longer than an instant on time may be late ([`Limits::on_time_ms`]).
    Missed,
}

/// P16: does an instant open, and as what; or why not.
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

/// `finish_by`, at most until the next occurrence that is still to come opens; and from now on ten minutes at least, or
/// all of `finish_by` where that is less.
fn finish_by(schedule: &Schedule, due: Time, now: Time, next: Option<&NextInstant>) -> Time {
    let wanted = due.plus_ms(schedule.policies.finish_by_ms);
    let until_next = next.map_or(wanted, |next| wanted.min(next.opens()));
    until_next.max(now.plus_ms(FINISH_MS_MIN.min(schedule.policies.finish_by_ms)))
}

/// Instants that did not open for one reason, with none in between that did, are one range: an outage of hours
/// takes some bytes.
#[derive(Default)]
struct Ranges {
    /// What had opened when the last range began.
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

/// The last allowed run is the last one that opens; nothing comes after it.
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
