//! The questions: what fires after an instant, and what comes after that.

use std::collections::VecDeque;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::firing::{CalendarName, Firing, Step};
use super::pattern::{Pattern, Rule};
use super::policy::DstPolicies;
use super::walk::Walk;

/// The first firing strictly after `after`; none when there is none any more (a single instant that
/// is past, or the year 5000).
pub fn next_after(pattern: &Pattern, zone: &TimeZone, policies: &DstPolicies, after: Timestamp) -> Option<Firing> {
    steps_after(pattern, zone, policies, after).find_map(|step| match step {
        Step::Fires(firing) => Some(firing),
        Step::Absent(_) => None,
    })
}

/// All steps strictly after `after`, in order; without end for most patterns.
///
/// An interval pattern has no absences: its names are instants, and every instant exists.
/// Steps of one instant come together: a caller that stops and continues later stops between two instants
/// and passes the last one as `after`.
pub fn steps_after<'a>(
    pattern: &'a Pattern,
    zone: &'a TimeZone,
    policies: &DstPolicies,
    after: Timestamp,
) -> Steps<'a> {
    let source = match &pattern.rule {
        Rule::Once { instant } => Source::Once { next: (*instant > after).then_some(*instant) },
        Rule::Interval { period, anchor } => {
            Source::Interval { next: beat_after(*anchor, *period, after), period: *period }
        }
        Rule::Civil { cron, fixed } => Source::Civil(Box::new(Walk::new(cron, *fixed, zone, *policies, after))),
    };
    Steps { zone, source, ready: VecDeque::new() }
}

/// The iterator of [`steps_after`]. Instants never decrease; those of firings strictly increase.
#[derive(Clone, Debug)]
pub struct Steps<'a> {
    zone: &'a TimeZone,
    source: Source<'a>,
    ready: VecDeque<Step>,
}

#[derive(Clone, Debug)]
enum Source<'a> {
    Once { next: Option<Timestamp> },
    Interval { next: Option<Timestamp>, period: SignedDuration },
    Civil(Box<Walk<'a>>),
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(step) = self.ready.pop_front() {
            return Some(step);
        }
        let instant = match &mut self.source {
            Source::Once { next } => next.take()?,
            Source::Interval { next, period } => {
                let instant = (*next)?;
                *next = instant.checked_add(*period).ok();
                instant
            }
            Source::Civil(walk) => {
                self.ready = walk.next_instant()?.into();
                return self.ready.pop_front();
            }
        };
        Some(Step::Fires(at_instant(instant, self.zone)))
    }
}

/// A firing that is named by its instant and knows no clock changes.
pub(super) fn at_instant(instant: Timestamp, zone: &TimeZone) -> Firing {
    let nominal = CalendarName::Instant(instant);
    Firing { nominal, instant, offset: zone.to_offset(instant), remark: None }
}

/// The first of `anchor`, `anchor + period`, … after `after`.
fn beat_after(anchor: Timestamp, period: SignedDuration, after: Timestamp) -> Option<Timestamp> {
    if after < anchor {
        return Some(anchor);
    }
    beat(anchor, period, beats_through(anchor, period, after))
}

/// How many of `anchor`, `anchor + period`, … lie at or before `through`.
pub(super) fn beats_through(anchor: Timestamp, period: SignedDuration, through: Timestamp) -> i128 {
    let elapsed = through.as_nanosecond() - anchor.as_nanosecond();
    elapsed.div_euclid(period.as_nanos().max(1)).saturating_add(1).max(0)
}

/// `anchor + number * period`, as far as the calendar goes.
pub(super) fn beat(anchor: Timestamp, period: SignedDuration, number: i128) -> Option<Timestamp> {
    let elapsed = period.as_nanos().checked_mul(number)?;
    Timestamp::from_nanosecond(anchor.as_nanosecond().checked_add(elapsed)?).ok()
}
