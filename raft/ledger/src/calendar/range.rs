//! Steps of a bounded range of time, which catch-up opens or explains (P8, P16).
//!
//! Like `fired_through`, ranges exclude their start and include their end: `(after, through]`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::firing::{Firing, Step};
use super::pattern::{Pattern, Rule};
use super::policy::DstPolicies;
use super::resolver::{at_instant, interval_instant, intervals_through, steps_after};

/// The steps of a range, or the first ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The steps, in order. An instant is never split.
    pub steps: Vec<Step>,
    /// True if the range has no further steps. Otherwise they follow the last step's instant.
    pub complete: bool,
}

/// Returns the steps in `(after, through]`. Stops at the first instant at which there are `limit` steps. The steps of
/// an instant stay together, so there may be a few more.
pub fn missed(
    pattern: &Pattern,
    zone: &TimeZone,
    policies: &DstPolicies,
    after: Timestamp,
    through: Timestamp,
    limit: usize,
) -> Missed {
    let mut steps: Vec<Step> = Vec::new();
    for step in steps_after(pattern, zone, policies, after) {
        if step.instant() > through {
            break;
        }
        let same_instant = steps.last().is_some_and(|last| last.instant() == step.instant());
        if steps.len() >= limit && !same_instant {
            return Missed { steps, complete: false };
        }
        steps.push(step);
    }
    Missed { steps, complete: true }
}

/// Number of firings and absences of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of occurrences.
    pub firings: u64,
    /// Number of names without an occurrence.
    pub absences: u64,
    /// First occurrence; `None` if there is none.
    pub first: Option<Firing>,
    /// Last occurrence that was counted; `None` if there is none.
    pub last: Option<Firing>,
    /// True if the whole range was counted. Otherwise the rest follows the last occurrence's instant.
    pub complete: bool,
}

/// Counts the steps in `(after, through]`, up to `limit` occurrences, and does not keep them. An interval is counted by
/// arithmetic, without the limit.
pub fn count(
    pattern: &Pattern,
    zone: &TimeZone,
    policies: &DstPolicies,
    after: Timestamp,
    through: Timestamp,
    limit: u64,
) -> Count {
    if let Rule::Interval { .. } = pattern.rule {
        return count_period(pattern, zone, after, through);
    }
    let mut count = Count::default();
    for step in steps_after(pattern, zone, policies, after) {
        let at = step.instant();
        if at > through {
            break;
        }
        if count.firings >= limit && count.last.is_none_or(|last| last.instant < at) {
            return count;
        }
        match step {
            Step::Absent(_) => count.absences += 1,
            Step::Fires(firing) => {
                count.firings += 1;
                count.first = count.first.or(Some(firing));
                count.last = Some(firing);
            }
        }
    }
    Count { complete: true, ..count }
}

fn count_period(pattern: &Pattern, zone: &TimeZone, after: Timestamp, through: Timestamp) -> Count {
    let Rule::Interval { period, anchor } = pattern.rule else {
        return Count::default();
    };
    let (from, to) = (intervals_through(anchor, period, after), intervals_through(anchor, period, through));
    let firing = |number| interval_instant(anchor, period, number).map(|instant| at_instant(instant, zone));
    let empty = Count { complete: true, ..Count::default() };
    if to <= from {
        return empty;
    }
    let firings = u64::try_from(to - from).unwrap_or(u64::MAX);
    Count { firings, first: firing(from), last: firing(to - 1), ..empty }
}
