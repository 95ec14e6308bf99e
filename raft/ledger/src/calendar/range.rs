//! The steps of a stretch of time: what catch-up opens or explains (P8, P16), always bounded.
//!
//! Ranges are open below and closed above, as `fired_through` is: `(after, through]`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::firing::{Firing, Step};
use super::pattern::{Pattern, Rule};
use super::policy::DstPolicies;
use super::resolver::{at_instant, beat, beats_through, steps_after};

/// The steps of a range, or its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// In order. All steps of an instant, or none.
    pub steps: Vec<Step>,
    /// Whether these are all. Otherwise the rest follows the last step's instant.
    pub complete: bool,
}

/// The steps in `(after, through]`. It stops at the first instant by which there are `limit` of
/// them; those of the last instant are never torn apart, so it may hold a few more.
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

/// How much a range holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Occurrences.
    pub firings: u64,
    /// Names without one.
    pub absences: u64,
    /// The first occurrence.
    pub first: Option<Firing>,
    /// The last occurrence that was counted.
    pub last: Option<Firing>,
    /// Whether the whole range was counted. Otherwise the rest follows the last occurrence's instant.
    pub complete: bool,
}

/// Counts `(after, through]` without keeping it, up to `limit` occurrences. A period is counted by
/// arithmetic, whatever the limit.
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
    let (from, to) = (beats_through(anchor, period, after), beats_through(anchor, period, through));
    let firing = |number| beat(anchor, period, number).map(|instant| at_instant(instant, zone));
    let empty = Count { complete: true, ..Count::default() };
    if to <= from {
        return empty;
    }
    let firings = u64::try_from(to - from).unwrap_or(u64::MAX);
    Count { firings, first: firing(from), last: firing(to - 1), ..empty }
}
