//! Decides which due instants open if runs of a schedule must not overlap (P16).
//!
//! `apply` checks the runs again and refuses a fire that was computed from an older state.

use super::explained_ranges::JudgedInstant;
use super::timing::{Calendar, Jitter};
use crate::calendar;
use crate::model::{CatchUp, Overlap, Schedule, ScheduleState, Time, UnopenedReason};

/// Missed instants that wait for the runs before them (`buffer_one`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingInstants {
    /// Number of instants that will open, if no other instant comes in between.
    pub instants: u64,
    /// When the first of them was due.
    pub oldest: Time,
    /// True if all are counted; false if the count stopped at its limit.
    pub is_all: bool,
}

/// Returns when the first instant was due that was missed and may wait. It is the cheap test before
/// [`missed_that_wait`].
pub fn oldest_missed(schedule: &Schedule, now: Time) -> Option<Time> {
    let Schedule { settings, plan, state, .. } = schedule;
    let may_wait = settings.policies.overlap == Overlap::BufferOne
        && settings.policies.catch_up != CatchUp::None
        && *state == ScheduleState::Active;
    let before = plan.missed_before.filter(|_| may_wait)?;
    Some(plan.next.as_ref().filter(|next| next.opens() < before && next.opens() <= now)?.due)
}

/// Returns the missed instants of a schedule that wait. At most `most` instants are counted.
///
/// Instants that have waited longer than `start_within` are explained by the next fire, so they are no longer in the
/// plan.
pub fn missed_that_wait(schedule: &Schedule, calendar: Calendar<'_>, now: Time, most: u64) -> Option<WaitingInstants> {
    let (oldest, plan) = (oldest_missed(schedule, now)?, &schedule.plan);
    let before = plan.missed_before?;
    let (dst, zone) = (&schedule.settings.policies.dst, &calendar.zone.rules);
    let until = |time: Time| schedule.timing.end.map_or(time, |end| end.min(time));
    let through = until(before.plus_ms(-1));
    let count = |after: Time, through: Time, most| {
        calendar::count(calendar.pattern, zone, dst, after.timestamp(), through.timestamp(), most)
    };
    let found = count(oldest, through, most.saturating_sub(1));
    // Only the last instant can open at or after `before`, because of its jitter.
    let jitter = Jitter::of(schedule);
    let opens = |last: &calendar::Firing| Time::from(last.instant).plus_ms(jitter.delay_ms(calendar, dst, last));
    let only_waited = found.last.as_ref().is_some_and(|last| found.complete && opens(last) >= before);
    let instants = 1 + found.firings - u64::from(only_waited);
    let instants = match schedule.settings.policies.catch_up {
        CatchUp::All => instants,
        // Only the latest instant opens. If another one is due by now, that one is later.
        CatchUp::One => u64::from(!only_waited && count(through, until(now), 1).firings == 0),
        CatchUp::None => 0,
    };
    let left = schedule.timing.max_runs.map_or(u64::MAX, |most| most.saturating_sub(plan.opened).into());
    let is_all = found.complete || schedule.settings.policies.catch_up == CatchUp::One || left <= instants;
    let instants = instants.min(left);
    (instants > 0).then_some(WaitingInstants { instants, oldest, is_all })
}

/// Applies the overlap policy to instants that would open, oldest first. Unless the policy allows overlap, at most one
/// of them still opens afterwards. Returns how many of the instants belong to this fire; with `buffer_one` the later
/// ones wait. `is_busy`: an earlier run blocks the schedule. `planned`: instants up to here do not wait.
pub(super) fn apply_policy(overlap: Overlap, is_busy: bool, planned: Time, judged: &mut [JudgedInstant]) -> usize {
    let opens = |step: &JudgedInstant| step.verdict.is_ok();
    match overlap {
        Overlap::Allow => {}
        Overlap::CancelOther => {
            // An earlier opening would be cancelled at once by the latest one.
            let latest = judged.iter().rposition(opens).unwrap_or_default();
            for step in judged.iter_mut().take(latest).filter(|step| opens(step)) {
                step.verdict = Err(UnopenedReason::Superseded);
            }
        }
        Overlap::Skip => {
            let first = judged.iter().position(opens).filter(|_| !is_busy);
            for (number, step) in judged.iter_mut().enumerate() {
                if opens(step) && Some(number) != first {
                    step.verdict = Err(UnopenedReason::Overlap);
                }
            }
        }
        Overlap::BufferOne => {
            // There are several of them only if new rules of a zone have moved instants.
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
