//! Finds the firings and absences of a pattern after an instant.

use std::collections::VecDeque;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::civil_iterator::CivilIterator;
use super::firing::{CalendarName, Firing, Step};
use super::pattern::{Pattern, Rule};
use super::policy::DstPolicies;

/// Returns the first firing strictly after `after`. `None` if there is none: a single instant has passed, or the year
/// 5000 is reached.
pub fn next_after(pattern: &Pattern, zone: &TimeZone, policies: &DstPolicies, after: Timestamp) -> Option<Firing> {
    steps_after(pattern, zone, policies, after).find_map(|step| match step {
        Step::Fires(firing) => Some(firing),
        Step::Absent(_) => None,
    })
}

/// Iterates over all steps strictly after `after`, in order; endless for most patterns.
///
/// An interval pattern has no absences: its names are instants, and each instant exists. The steps of one instant come
/// together. A caller that stops and continues later must stop between two instants and pass the last one as `after`.
pub fn steps_after<'a>(
    pattern: &'a Pattern,
    zone: &'a TimeZone,
    policies: &DstPolicies,
    after: Timestamp,
) -> Steps<'a> {
    let source = match &pattern.rule {
        Rule::Once { instant } => Source::Once { next: (*instant > after).then_some(*instant) },
        Rule::Interval { period, anchor } => {
            Source::Interval { next: interval_instant_after(*anchor, *period, after), period: *period }
        }
        Rule::Civil { cron, fixed } => {
            Source::Civil(Box::new(CivilIterator::new(cron, *fixed, zone, *policies, after)))
        }
    };
    Steps { zone, source, ready: VecDeque::new() }
}

/// Iterator of [`steps_after`]. Instants never decrease; those of firings strictly increase.
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
    Civil(Box<CivilIterator<'a>>),
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
            Source::Civil(iterator) => {
                self.ready = iterator.next_instant()?.into();
                return self.ready.pop_front();
            }
        };
        Some(Step::Fires(at_instant(instant, self.zone)))
    }
}

/// Returns a firing that is named by its instant, without a remark.
pub(super) fn at_instant(instant: Timestamp, zone: &TimeZone) -> Firing {
    let occurrence = CalendarName::Instant(instant);
    Firing { occurrence, instant, offset: zone.to_offset(instant), remark: None }
}

/// Returns the first of `anchor`, `anchor + period`, … that is after `after`.
fn interval_instant_after(anchor: Timestamp, period: SignedDuration, after: Timestamp) -> Option<Timestamp> {
    if after < anchor {
        return Some(anchor);
    }
    interval_instant(anchor, period, intervals_through(anchor, period, after))
}

/// Number of the instants `anchor`, `anchor + period`, … that are not after `through`.
pub(super) fn intervals_through(anchor: Timestamp, period: SignedDuration, through: Timestamp) -> i128 {
    let elapsed = through.as_nanosecond() - anchor.as_nanosecond();
    elapsed.div_euclid(period.as_nanos().max(1)).saturating_add(1).max(0)
}

/// Returns `anchor + number * period`; `None` if it is outside the calendar.
pub(super) fn interval_instant(anchor: Timestamp, period: SignedDuration, number: i128) -> Option<Timestamp> {
    let elapsed = period.as_nanos().checked_mul(number)?;
    Timestamp::from_nanosecond(anchor.as_nanosecond().checked_add(elapsed)?).ok()
}
