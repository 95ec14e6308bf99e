//! What is due, by a model that shares nothing with the product: another time zone library, and a walk over every minute
//! of the local calendar instead of a search.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, Duration, LocalResult, NaiveDateTime, TimeZone, Timelike, Utc};
use chrono_tz::Tz;

/// When something is due, as the workload means it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At local times: these minutes and hours on these days.
    Local(Local),
    /// Each so many milliseconds from an anchor on (milliseconds since 1970).
    Every { period_ms: i64, anchor_ms: i64 },
    /// Once (milliseconds since 1970).
    At(i64),
}

/// Local times of a zone; none of a field means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Each so many minutes of the hour; 0: only `minute`.
    pub every_minutes: u32,
    /// The minute, where it is one.
    pub minute: u32,
    /// The hour.
    pub hour: Option<u32>,
    /// The day of the month.
    pub day: Option<u32>,
    /// The month.
    pub month: Option<u32>,
}

/// What happens to a local time that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// At the first instant after the gap.
    After,
    /// Later by the width of the gap.
    Shift,
    /// Not at all.
    Skip,
}

/// What happens to a local time that exists twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twice {
    /// The first one.
    First,
    /// The second one.
    Second,
    /// Both.
    Both,
}

impl Local {
    fn fits(&self, civil: &NaiveDateTime) -> bool {
        let minute = match self.every_minutes {
            0 => civil.minute() == self.minute,
            every => civil.minute().is_multiple_of(every),
        };
        minute
            && self.hour.is_none_or(|hour| civil.hour() == hour)
            && self.day.is_none_or(|day| civil.day() == day)
            && self.month.is_none_or(|month| civil.month() == month)
    }
}

/// All instants in `after < t <= until`, in milliseconds since 1970.
pub fn due(rule: &Rule, zone: Tz, (gap, twice): (Gap, Twice), after: i64, until: i64) -> BTreeSet<i64> {
    let inside = |instant: &i64| after < *instant && *instant <= until;
    match rule {
        Rule::At(instant) => [*instant].into_iter().filter(inside).collect(),
        Rule::Every { period_ms, anchor_ms } => {
            let first = ((after - anchor_ms).div_euclid(*period_ms) + 1).max(0);
            (first..)
                .map(|n| anchor_ms + n * period_ms)
                .take_while(|instant| *instant <= until)
                .filter(inside)
                .collect()
        }
        Rule::Local(local) => {
            // Wider than any change of clocks.
            let civil =
                |at: i64| DateTime::<Utc>::from_timestamp_millis(at).map(|at| at.with_timezone(&zone).naive_local());
            let (Some(from), Some(to)) = (civil(after), civil(until)) else { return BTreeSet::new() };
            let mut minute =
                from.with_second(0).and_then(|from| from.with_nanosecond(0)).unwrap_or(from) - Duration::hours(26);
            let mut found = BTreeSet::new();
            while minute <= to + Duration::hours(26) {
                if local.fits(&minute) {
                    found.extend(instants(zone, minute, gap, twice).into_iter().filter(inside));
                }
                minute += Duration::minutes(1);
            }
            found
        }
    }
}

fn instants(zone: Tz, civil: NaiveDateTime, gap: Gap, twice: Twice) -> Vec<i64> {
    match (zone.from_local_datetime(&civil), twice) {
        (LocalResult::Single(at), _) => vec![at.timestamp_millis()],
        (LocalResult::Ambiguous(first, _), Twice::First) => vec![first.timestamp_millis()],
        (LocalResult::Ambiguous(_, second), Twice::Second) => vec![second.timestamp_millis()],
        (LocalResult::Ambiguous(first, second), Twice::Both) => {
            vec![first.timestamp_millis(), second.timestamp_millis()]
        }
        (LocalResult::None, _) => in_gap(zone, civil, gap).into_iter().collect(),
    }
}

/// Walks minute by minute to both ends of the gap.
fn in_gap(zone: Tz, civil: NaiveDateTime, gap: Gap) -> Option<i64> {
    let exists = |civil: &NaiveDateTime| zone.from_local_datetime(civil).earliest();
    let minutes = |by: i64| (1..=180).map(move |n| civil + Duration::minutes(by * n));
    let after = minutes(1).find_map(|civil| exists(&civil))?;
    match gap {
        Gap::Skip => None,
        Gap::After => Some(after.timestamp_millis()),
        Gap::Shift => {
            // By the clock that went before the gap, the time exists: it is that instant.
            let before = minutes(-1).find(|civil| exists(civil).is_some())?;
            let since = civil - before;
            Some(exists(&before)?.timestamp_millis() + since.num_milliseconds())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).expect("an instant").timestamp_millis()
    }

    fn daily(hour: u32, minute: u32) -> Rule {
        Rule::Local(Local { minute, hour: Some(hour), ..Local::default() })
    }

    #[test]
    fn a_gap_and_an_overlap_in_new_york() {
        let zone = Tz::America__New_York;
        let day = |from, until, gap, twice| due(&daily(2, 30), zone, (gap, twice), at(from), at(until));
        let spring = |gap| day("2026-03-08T05:00:00Z", "2026-03-08T12:00:00Z", gap, Twice::First);
        assert_eq!(spring(Gap::After), [at("2026-03-08T07:00:00Z")].into());
        assert_eq!(spring(Gap::Shift), [at("2026-03-08T07:30:00Z")].into());
        assert_eq!(spring(Gap::Skip), [].into());
        let autumn = |twice| {
            due(&daily(1, 30), zone, (Gap::After, twice), at("2026-11-01T05:00:00Z"), at("2026-11-01T12:00:00Z"))
        };
        assert_eq!(autumn(Twice::First), [at("2026-11-01T05:30:00Z")].into());
        assert_eq!(autumn(Twice::Second), [at("2026-11-01T06:30:00Z")].into());
        assert_eq!(autumn(Twice::Both).len(), 2);
    }

    #[test]
    fn a_leap_day_and_a_period() {
        let leap = Rule::Local(Local { minute: 5, hour: Some(0), day: Some(29), month: Some(2), ..Local::default() });
        let found =
            due(&leap, Tz::UTC, (Gap::After, Twice::First), at("2028-02-28T23:50:00Z"), at("2028-03-01T00:00:00Z"));
        assert_eq!(found, [at("2028-02-29T00:05:00Z")].into());
        let every = Rule::Every { period_ms: 60_000, anchor_ms: 30_000 };
        assert_eq!(due(&every, Tz::UTC, (Gap::After, Twice::First), 30_000, 150_000), [90_000, 150_000].into());
    }
}
