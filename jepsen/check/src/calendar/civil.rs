//! Civil times of a zone, found minute by minute in the local calendar, and their instants.

use chrono::{
    DateTime, Datelike, Days, Duration, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Timelike,
};
use chrono_tz::{GapInfo, Tz};

/// A pattern of civil times. `None` in a field matches any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Civil {
    /// Period in minutes within the hour. 0: only `minute`.
    pub every_minutes: u32,
    /// The minute, unless `every_minutes` is set.
    pub minute: u32,
    /// The hour.
    pub hour: Option<u32>,
    /// The day of the month.
    pub day: Option<u32>,
    /// The month.
    pub month: Option<u32>,
}

/// Policy for a civil time that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// At the first instant after the gap.
    After,
    /// Later by the length of the gap.
    Shift,
    /// At no instant.
    Skip,
}

/// Policy for a civil time that exists twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// At the first of the two times.
    First,
    /// At the second of the two times.
    Second,
    /// At both times.
    Both,
}

/// An instant and a civil time that falls on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// The instant.
    pub at_unix_ms: i64,
    /// The civil time, in milliseconds since 1970-01-01T00:00 of the same calendar.
    pub civil_ms: i64,
    /// True if this is the second of two equal civil times.
    pub is_second: bool,
}

impl Civil {
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

    /// Returns the instants on these dates and the dates beside them, unsorted. A pattern for every hour is not
    /// affected by clock changes: no instant is skipped or moved, and an hour that occurs twice has its times twice.
    pub(super) fn between(&self, zone: Tz, first: NaiveDate, last: NaiveDate, changes: (Gap, Fold)) -> Vec<Named> {
        let changes = if self.hour.is_none() { (Gap::Skip, Fold::Both) } else { changes };
        // A day is longer than any change of the clocks.
        let from = first.checked_sub_days(Days::new(1)).unwrap_or(first).and_time(NaiveTime::MIN);
        let until = last.checked_add_days(Days::new(2)).unwrap_or(last).and_time(NaiveTime::MIN);
        let minutes = std::iter::successors(Some(from), |civil| civil.checked_add_signed(Duration::minutes(1)));
        let fitting = minutes.take_while(|civil| *civil < until).filter(|civil| self.fits(civil));
        let named = |civil: NaiveDateTime| {
            let civil_ms = civil.and_utc().timestamp_millis();
            let found = instants(zone, civil, changes).into_iter();
            found.map(move |(at_unix_ms, is_second)| Named { at_unix_ms, civil_ms, is_second })
        };
        fitting.flat_map(named).collect()
    }
}

/// Returns the instants of a civil time. True marks the second of two instants.
pub(super) fn instants(zone: Tz, civil: NaiveDateTime, (gap, fold): (Gap, Fold)) -> Vec<(i64, bool)> {
    let ms = |at: DateTime<Tz>| at.timestamp_millis();
    match (zone.from_local_datetime(&civil), fold) {
        (LocalResult::Single(at), _) => vec![(ms(at), false)],
        (LocalResult::Ambiguous(one, other), fold) => {
            let (first, second) = ((ms(one.min(other)), false), (ms(one.max(other)), true));
            match fold {
                Fold::First => vec![first],
                Fold::Second => vec![second],
                Fold::Both => vec![first, second],
            }
        }
        (LocalResult::None, _) => in_gap(zone, civil, gap).map(|at| (at, false)).into_iter().collect(),
    }
}

/// Returns the instant of a civil time in a gap. `None`: the policy skips it, or the whole date does not exist.
fn in_gap(zone: Tz, civil: NaiveDateTime, policy: Gap) -> Option<i64> {
    let gap = GapInfo::new(&civil, &zone)?;
    let (begin, end) = (gap.begin?.0, gap.end?);
    // The whole date does not exist if a gap begins at or before its start and ends on another date.
    if begin <= civil.date().and_time(NaiveTime::MIN) && end.date_naive() > civil.date() {
        return None;
    }
    match policy {
        Gap::Skip => None,
        Gap::After => Some(end.timestamp_millis()),
        // The time counts from the start of the gap, by the offset before the gap.
        Gap::Shift => Some(end.timestamp_millis() + (civil - begin).num_milliseconds()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rule;
    use super::*;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    fn rule(zone: &str, times: Civil, gap: Gap, fold: Fold) -> Rule {
        Rule::Civil { zone: zone.to_owned(), times, gap, fold }
    }

    fn daily(hour: u32, minute: u32) -> Civil {
        Civil { minute, hour: Some(hour), ..Civil::default() }
    }

    #[test]
    fn gap_and_overlap_in_new_york() {
        let zone = "America/New_York";
        let spring = |gap| {
            let rule = rule(zone, daily(2, 30), gap, Fold::First);
            rule.instants(at("2026-03-08T05:00:00Z"), at("2026-03-08T12:00:00Z")).unwrap()
        };
        assert_eq!(spring(Gap::After), [at("2026-03-08T07:00:00Z")]);
        assert_eq!(spring(Gap::Shift), [at("2026-03-08T07:30:00Z")]);
        assert_eq!(spring(Gap::Skip), [0; 0]);
        let autumn = |fold| {
            let rule = rule(zone, daily(1, 30), Gap::After, fold);
            rule.instants(at("2026-11-01T05:00:00Z"), at("2026-11-01T12:00:00Z")).unwrap()
        };
        assert_eq!(autumn(Fold::First), [at("2026-11-01T05:30:00Z")]);
        assert_eq!(autumn(Fold::Second), [at("2026-11-01T06:30:00Z")]);
        assert_eq!(autumn(Fold::Both).len(), 2);
    }

    #[test]
    fn times_of_one_gap_fall_together_and_keep_their_names() {
        let every_ten = Civil { every_minutes: 10, hour: Some(2), ..Civil::default() };
        let rule = rule("Europe/Berlin", every_ten, Gap::After, Fold::First);
        let (from, to) = (at("2026-03-29T00:00:00Z"), at("2026-03-29T02:00:00Z"));
        assert_eq!(rule.instants(from, to).unwrap(), [at("2026-03-29T01:00:00Z")]);
        let named = rule.named(from, to).unwrap();
        assert_eq!(named.len(), 6);
        assert_eq!(named[0].civil_ms, at("2026-03-29T02:00:00Z"), "as if it were UTC");
    }

    #[test]
    fn times_of_every_hour_know_no_change_of_clocks() {
        let half_hours = Civil { every_minutes: 30, ..Civil::default() };
        let rule = rule("America/New_York", half_hours, Gap::After, Fold::First);
        let count = |from, to| rule.instants(at(from), at(to)).unwrap().len();
        assert_eq!(count("2026-11-01T04:00:00Z", "2026-11-01T07:30:00Z"), 8, "an hour that comes twice");
        assert_eq!(count("2026-03-08T05:00:00Z", "2026-03-08T08:30:00Z"), 8, "and one that does not come");
    }

    #[test]
    fn leap_day_is_due_every_four_years() {
        let leap = Civil { minute: 5, hour: Some(0), day: Some(29), month: Some(2), ..Civil::default() };
        let rule = rule("UTC", leap, Gap::After, Fold::First);
        let found = rule.instants(at("2026-01-01T00:00:00Z"), at("2031-12-31T00:00:00Z")).unwrap();
        assert_eq!(found, [at("2028-02-29T00:05:00Z")]);
    }
}
