//! Computes how a new timing changes a schedule's plan (P8). The proposer of an edit calls it; `apply` checks the
//! result.

use super::explained_ranges::ExplainedRanges;
use super::timing::{Calendar, Jitter, first_instant_after};
use crate::calendar::{self, Step};
use crate::command::{ExplainedRange, Fire, TimingChange};
use crate::model::{
    NextInstant, OccurrenceName, Policies, Schedule, ScheduleState, ScheduleTiming, Time, UnopenedReason,
};

/// Maximum number of missed instants that one edit considers: what a schedule with one instant a minute misses in six
/// weeks.
const MISSED_MAX: u64 = 65_536;

/// Why an edit must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// More instants are due than one entry can settle; the timer is working on them.
    #[error("the schedule is catching up with missed instants; try again in a moment")]
    CatchingUp,
    /// More instants were missed than an edit can explain.
    #[error("more than 65,536 instants were missed since it stopped; resume it first")]
    TooMuchMissed,
}

/// A change of a schedule's timing at `through`.
#[derive(Debug)]
pub struct TimingEdit<'a> {
    /// The schedule, before the edit.
    pub schedule: &'a Schedule,
    /// For an active schedule with due instants: the fire that moves the plan to `through`.
    pub due: Option<Fire>,
    /// The calendar before the edit; `None` if its time zone is no longer known.
    pub former: Option<Calendar<'a>>,
    /// The new timing.
    pub timing: ScheduleTiming,
    /// The policies after the edit.
    pub policies: &'a Policies,
    /// The calendar of the new timing.
    pub calendar: Calendar<'a>,
    /// The former timing is valid up to here.
    pub through: Time,
    /// True if the due instants wait for a run (`overlap`). They are explained and do not open.
    pub waits: bool,
}

/// Computes the change of a schedule's timing. `has_opened` knows the names of the schedule's runs.
///
/// # Errors
/// Fails if the due or missed instants do not fit into the entry.
pub fn plan_timing_change(
    edit: TimingEdit<'_>,
    has_opened: impl Fn(&OccurrenceName) -> bool,
) -> Result<TimingChange, NotYet> {
    let TimingEdit { schedule, due, former, timing, policies, calendar, through, waits } = edit;
    let due = due.filter(|_| !waits);
    if due.as_ref().and_then(|fire| fire.next.as_ref()).is_some_and(|next| next.due <= through) {
        return Err(NotYet::CatchingUp);
    }
    let explained = match schedule.state {
        ScheduleState::Active if !waits => Vec::new(),
        _ => missed(schedule, former, through, has_opened)?,
    };
    let fired_through = schedule.plan.fired_through.max(through);
    let bounds = (timing.start, timing.end);
    let jitter = Jitter { window_ms: policies.jitter_ms, ..Jitter::of(schedule) };
    let next = first_instant_after(calendar, &policies.dst, fired_through, bounds, jitter);
    let opened = schedule.plan.opened as usize + due.as_ref().map_or(0, |fire| fire.opened.len());
    Ok(TimingChange {
        next: next.filter(|_| timing.max_runs.is_none_or(|most| most as usize > opened)),
        timing,
        through,
        due,
        explained,
        tzdb: calendar.zone.tzdb.clone(),
    })
}

/// Returns the instants up to `through` that an inactive schedule missed, or that wait for a run; usually one range.
/// Names that have opened already come first. They exist after an edit of the zone: nine o'clock is due again, later.
/// These names keep their runs.
fn missed(
    schedule: &Schedule,
    former: Option<Calendar<'_>>,
    through: Time,
    has_opened: impl Fn(&OccurrenceName) -> bool,
) -> Result<Vec<ExplainedRange>, NotYet> {
    let Some(mut next) = schedule.plan.next.clone().filter(|next| next.due <= through) else { return Ok(Vec::new()) };
    let end = schedule.timing.end.map_or(through, |end| through.min(end)).max(next.due);
    let dst = &schedule.settings.policies.dst;
    let after = |next: &NextInstant| {
        first_instant_after(former?, dst, next.due, (schedule.timing.start, Some(end)), Jitter::NONE)
    };
    let mut explained = ExplainedRanges::default();
    while has_opened(&next.occurrence) {
        explained.add(next.occurrence.clone(), UnopenedReason::OpenedBefore);
        match after(&next) {
            Some(following) => next = following,
            None => return Ok(explained.ranges),
        }
    }
    explained.add(next.occurrence.clone(), UnopenedReason::Edited);
    if let Some(Calendar { pattern, zone }) = former {
        let from = next.due.timestamp();
        let later = calendar::count(pattern, &zone.rules, dst, from, end.timestamp(), MISSED_MAX);
        if !later.complete {
            return Err(NotYet::TooMuchMissed);
        }
        match pattern.period_ms() {
            // There can be millions of them, so they are counted by arithmetic.
            Some(period_ms) => {
                let first = later.first.map(|firing| firing.occurrence.into());
                first.into_iter().for_each(|first| explained.add(first, UnopenedReason::Edited));
                let rest = u32::try_from(later.firings.saturating_sub(1)).unwrap_or(u32::MAX - 2);
                explained.ranges.last_mut().into_iter().for_each(|range| range.instants.extend(period_ms, rest));
            }
            None => {
                let steps = calendar::steps_after(pattern, &zone.rules, dst, from);
                let steps = steps.take_while(|step| step.instant() <= end.timestamp());
                for step in steps.filter(|step| matches!(step, Step::Fires(_))) {
                    let name = step.occurrence().into();
                    let reason = if has_opened(&name) { UnopenedReason::OpenedBefore } else { UnopenedReason::Edited };
                    explained.add(name, reason);
                }
            }
        }
    }
    Ok(explained.ranges)
}
