//! What opens of the instants that are due, where runs of a schedule must not stand side by side (P16).
//!
//! `apply` looks at the runs again: a fire that was computed beside an older state is refused there.

use super::timing::{Calendar, Jitter, JudgedInstant};
use crate::calendar;
use crate::model::{Activity, CatchUp, Overlap, Schedule, Time, UnopenedReason};

/// Instants that were missed, and wait for the runs before them (`buffer_one`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingInstants {
    /// How many of them will open, if nothing else comes in between.
    pub instants: u64,
    /// When the first of them was due.
    pub oldest: Time,
    /// Are these all? Else not more were counted.
    pub is_all: bool,
}

/// When the first instant was due that was missed and may wait its turn: as cheap as [`may_wait`], which it implies.
pub fn oldest_missed(schedule: &Schedule, now: Time) -> Option<Time> {
    let plan = &schedule.plan;
    let before = plan.missed_before.filter(|_| may_wait(schedule))?;
    Some(plan.next.as_ref().filter(|next| next.opens() < before && next.opens() <= now)?.due)
}

/// May anything that was missed wait its turn? The cheap look before [`missed_that_wait`].
pub fn may_wait(schedule: &Schedule) -> bool {
    let Schedule { policies, plan, activity, .. } = schedule;
    policies.overlap == Overlap::BufferOne
        && policies.catch_up != CatchUp::None
        && *activity == Activity::Active
        && plan.missed_before.is_some()
}

/// What was missed of a schedule and waits its turn; `most` instants are counted.
///
/// What has waited longer than `start_within` is explained by the next fire, so the plan begins behind it.
pub fn missed_that_wait(schedule: &Schedule, calendar: Calendar<'_>, now: Time, most: u64) -> Option<WaitingInstants> {
    let (oldest, plan) = (oldest_missed(schedule, now)?, &schedule.plan);
    let before = plan.missed_before?;
    let (dst, zone) = (&schedule.policies.dst, &calendar.zone.rules);
    let until = |time: Time| schedule.end.map_or(time, |end| end.min(time));
    let through = until(before.plus_ms(-1));
    let count = |after: Time, through: Time, most| {
        calendar::count(calendar.pattern, zone, dst, after.timestamp(), through.timestamp(), most)
    };
    let found = count(oldest, through, most.saturating_sub(1));
    // Only the last one can have its place behind the others' end.
    let jitter = Jitter::of(schedule);
    let opens = |last: &calendar::Firing| Time::from(last.instant).plus_ms(jitter.place_ms(calendar, dst, last));
    let only_waited = found.last.as_ref().is_some_and(|last| found.complete && opens(last) >= before);
    let instants = 1 + found.firings - u64::from(only_waited);
    let instants = match schedule.policies.catch_up {
        CatchUp::All => instants,
        // The latest alone opens, and another that has come meanwhile is later.
        CatchUp::One => u64::from(!only_waited && count(through, until(now), 1).firings == 0),
        CatchUp::None => 0,
    };
    let left = schedule.max_runs.map_or(u64::MAX, |most| most.saturating_sub(plan.opened).into());
    let is_all = found.complete || schedule.policies.catch_up == CatchUp::One || left <= instants;
    let instants = instants.min(left);
    (instants > 0).then_some(WaitingInstants { instants, oldest, is_all })
}

/// Leaves one opening of `judged`, which are in order, or none; answers how many of them the fire takes. The
/// others wait. `is_busy`: a former run stands in the way; `planned`: a fire comes
/// at least to here.
pub(super) fn fit(overlap: Overlap, is_busy: bool, planned: Time, judged: &mut [JudgedInstant]) -> usize {
    let opens = |step: &JudgedInstant| step.verdict.is_ok();
    match overlap {
        Overlap::Allow => {}
        Overlap::CancelOther => {
            // Whatever opens before another would be cancelled by it at once.
            let latest = judged.iter().rposition(opens).unwrap_or_default();
            for step in judged.iter_mut().take(latest).filter(|step| opens(step)) {
                step.verdict = Err(UnopenedReason::Superseded);
            }
        }
        Overlap::Skip => {
            let first = judged.iter().position(opens).filter(|_| !is_busy);
            for (place, step) in judged.iter_mut().enumerate() {
                if opens(step) && Some(place) != first {
                    step.verdict = Err(UnopenedReason::Overlap);
                }
            }
        }
        Overlap::BufferOne => {
            // More than one of them only where new rules of a zone have moved instants.
            let before = judged.iter().rposition(|step| opens(step) && step.due <= planned).unwrap_or_default();
            for step in judged.iter_mut().take(before).filter(|step| opens(step)) {
                step.verdict = Err(UnopenedReason::Superseded);
            }
            let mut opening = judged.iter().filter(|step| opens(step));
            let first_to_wait = if is_busy { opening.next() } else { opening.nth(1) };
            if let Some(due) = first_to_wait.map(|step| step.due) {
                return judged.partition_point(|step| step.due < due);
            }
        }
    }
    judged.len()
}
