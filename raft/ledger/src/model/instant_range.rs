//! A range of consecutive instants of a schedule, stored as the distances between their names.
//!
//! Instants that did not open are stored as ranges (P8). A backfill may open some of them later, and the range is then
//! split at their names (P1). Only the calendar could compute the names, and an edit may have replaced it by then. So
//! the range stores them. Instants recur, so an outage of days is one distance and a count.

use serde::{Deserialize, Serialize};

use crate::model::{OccurrenceName, Time};

/// Distances from the first name to the following ones. Each name is later than the one before, of the same kind and
/// fold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstantRange(Vec<EqualSteps>);

/// Names at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EqualSteps {
    step_ms: i64,
    times: u32,
}

/// Position of a name relative to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePosition {
    /// Number of names of the range before it.
    pub before: u32,
    /// True if the name is one of the range.
    pub is_member: bool,
}

impl InstantRange {
    /// Returns a range with `times` equal distances.
    pub fn every(step_ms: i64, times: u32) -> InstantRange {
        let mut range = InstantRange::default();
        range.extend(step_ms, times);
        range
    }

    /// Appends `times` names, each `step_ms` after the one before.
    pub fn extend(&mut self, step_ms: i64, times: u32) {
        match self.0.last_mut() {
            _ if times == 0 => {}
            Some(steps) if steps.step_ms == step_ms => steps.times = steps.times.saturating_add(times),
            _ => self.0.push(EqualSteps { step_ms, times }),
        }
    }

    /// Number of names, with the first.
    pub fn count(&self) -> u32 {
        self.0.iter().fold(1, |count: u32, steps| count.saturating_add(steps.times))
    }

    /// Number of stored distances; the size of the range depends on it.
    pub fn stored_distances(&self) -> usize {
        self.0.len()
    }

    /// Returns the last name of the range that begins with `first`.
    pub fn last(&self, first: &OccurrenceName) -> OccurrenceName {
        self.name(first, self.count().saturating_sub(1))
    }

    /// Returns the position of `name` in the range that begins with `first`; `None` if it is outside.
    pub fn position(&self, first: &OccurrenceName, name: &OccurrenceName) -> Option<RangePosition> {
        let mut ahead = distance_ms(first, name)?;
        let mut before: u32 = 0;
        if ahead == 0 {
            return Some(RangePosition { before, is_member: true });
        }
        for EqualSteps { step_ms, times } in &self.0 {
            let length = step_ms.saturating_mul(i64::from(*times));
            if *step_ms <= 0 || ahead < 0 {
                return None;
            }
            if ahead <= length {
                let steps = (ahead / step_ms) as u32;
                let is_member = ahead % step_ms == 0;
                let before = before.saturating_add(steps).saturating_add(u32::from(!is_member));
                return Some(RangePosition { before, is_member });
            }
            ahead -= length;
            before = before.saturating_add(*times);
        }
        None
    }

    /// True if a name of the range that begins with `first` has a time from `from_ms` to `to_ms`, both inclusive. A
    /// civil name has its time as if it were UTC.
    pub fn has_between(&self, first: &OccurrenceName, from_ms: i64, to_ms: i64) -> bool {
        let mut at_ms = match first {
            OccurrenceName::Civil { civil_ms, .. } => *civil_ms,
            OccurrenceName::Instant(instant) => instant.0,
            OccurrenceName::Trigger(_) => return false,
        };
        for EqualSteps { step_ms, times } in &self.0 {
            let length_ms = step_ms.saturating_mul(i64::from(*times));
            let ahead_ms = from_ms.saturating_sub(at_ms);
            if ahead_ms <= 0 || *step_ms <= 0 {
                break;
            }
            if ahead_ms <= length_ms {
                let steps = (ahead_ms - 1) / step_ms + 1;
                return at_ms.saturating_add(step_ms.saturating_mul(steps)) <= to_ms;
            }
            at_ms = at_ms.saturating_add(length_ms);
        }
        (from_ms..=to_ms).contains(&at_ms)
    }

    /// Returns the names from position `from` up to `to`, exclusive; `None` if there are none.
    pub fn part(&self, first: &OccurrenceName, from: u32, to: u32) -> Option<(OccurrenceName, InstantRange)> {
        let to = to.min(self.count());
        if from >= to {
            return None;
        }
        let mut part = InstantRange::default();
        let (mut skipped, mut left) = (from, to - from - 1);
        for EqualSteps { step_ms, times } in &self.0 {
            let skips = skipped.min(*times);
            skipped -= skips;
            let takes = left.min(times - skips);
            left -= takes;
            part.extend(*step_ms, takes);
        }
        Some((self.name(first, from), part))
    }

    fn name(&self, first: &OccurrenceName, position: u32) -> OccurrenceName {
        let mut left = position;
        let mut ahead: i64 = 0;
        for EqualSteps { step_ms, times } in &self.0 {
            let takes = left.min(*times);
            left -= takes;
            ahead = ahead.saturating_add(step_ms.saturating_mul(i64::from(takes)));
        }
        match first {
            OccurrenceName::Civil { civil_ms, fold } => {
                OccurrenceName::Civil { civil_ms: civil_ms.saturating_add(ahead), fold: *fold }
            }
            OccurrenceName::Instant(time) => OccurrenceName::Instant(Time(time.0.saturating_add(ahead))),
            OccurrenceName::Trigger(request) => OccurrenceName::Trigger(request.clone()),
        }
    }
}

/// Distance between two names that can be in one range, in milliseconds; `None` for other names.
pub fn distance_ms(from: &OccurrenceName, to: &OccurrenceName) -> Option<i64> {
    match (from, to) {
        (OccurrenceName::Civil { civil_ms: from, fold: one }, OccurrenceName::Civil { civil_ms: to, fold: other }) => {
            (one == other).then(|| to.checked_sub(*from)).flatten()
        }
        (OccurrenceName::Instant(from), OccurrenceName::Instant(to)) => to.0.checked_sub(from.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> OccurrenceName {
        OccurrenceName::Instant(Time(ms))
    }

    /// The names 100, 110, 120, 130, then 200 and 300.
    fn uneven() -> InstantRange {
        let mut range = InstantRange::every(10, 3);
        range.extend(70, 1);
        range.extend(100, 1);
        range
    }

    #[test]
    fn parts_of_a_range_keep_their_names() {
        let names = [100, 110, 120, 130, 200, 300].map(at);
        let (first, range) = (at(100), uneven());
        assert_eq!((range.count(), range.last(&first)), (6, at(300)));
        for from in 0..7_u32 {
            for to in 0..8_u32 {
                let expected = names.get(from as usize..to.min(6) as usize).unwrap_or_default();
                let part = range.part(&first, from, to);
                let found = part.map_or(Vec::new(), |(first, part)| {
                    (0..part.count()).map(|position| part.name(&first, position)).collect()
                });
                assert_eq!(found, expected, "{from} to {to}");
            }
        }
    }

    #[test]
    fn range_has_a_name_between_two_times() {
        let (first, range) = (at(100), uneven());
        for (from, to, has) in [
            (0, 99, false),
            (0, 100, true),
            (101, 109, false),
            (101, 110, true),
            (130, 130, true),
            (131, 199, false),
            (131, 200, true),
            (201, 299, false),
            (300, 400, true),
            (301, 400, false),
        ] {
            assert_eq!(range.has_between(&first, from, to), has, "{from} to {to}");
        }
        assert!(InstantRange::default().has_between(&first, 100, 100));
        assert!(!InstantRange::default().has_between(&first, 101, 200));
    }

    #[test]
    fn name_is_listed_or_between_two_or_outside() {
        let (first, range) = (at(100), uneven());
        let position = |ms| range.position(&first, &at(ms)).map(|position| (position.before, position.is_member));
        let positions = [100, 110, 120, 130, 200, 300].map(position);
        assert_eq!(positions, [0, 1, 2, 3, 4, 5].map(|before| Some((before, true))));
        assert_eq!([101, 125, 131, 199, 299].map(position), [1, 3, 4, 4, 5].map(|before| Some((before, false))));
        assert_eq!([99, 301, i64::MIN].map(position), [None; 3]);
        let other = OccurrenceName::Civil { civil_ms: 110, fold: 0 };
        assert_eq!(range.position(&first, &other), None);
    }
}
