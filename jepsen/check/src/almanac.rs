//! When schedules are due, by an arithmetic of its own on the zone tables of another library than the product's. What
//! the workload creates is described here as well, and [`Due`](crate::history::Due) lines come from here.
//!
//! Under the default policies a time that a change of the clocks leaves out is due at the end of the gap, and one that
//! is told twice at its first telling; [`Rule::Civil`] knows the others too. On a date that does not exist nothing is
//! due. The tables are those of chrono-tz, which are older than the product's: use zones whose rules have not changed
//! since (see [`ZONES`]).

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, Weekday};
use chrono_tz::Tz;

mod civil;

pub use civil::{Civil, Gap, Named, Twice};

/// Zones in which both tables agree: half-hour changes and a change of two hours, offsets of quarters of an hour, both
/// hemispheres, midnight changes, and UTC.
pub const ZONES: [&str; 12] = [
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "America/St_Johns",
    "Pacific/Chatham",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Africa/Cairo",
    "Pacific/Apia",
    "Asia/Kolkata",
    "UTC",
];

/// When something is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At one time of day of a zone.
    Daily {
        /// IANA name.
        zone: String,
        /// 0 to 23.
        hour: u32,
        /// 0 to 59.
        minute: u32,
        /// On these days of the week; empty: on all.
        days: Vec<Weekday>,
    },
    /// At the times of a zone that a pattern names, by these policies.
    Civil {
        /// IANA name.
        zone: String,
        /// Which.
        times: Civil,
        /// For times that do not exist.
        gap: Gap,
        /// For times that exist twice.
        twice: Twice,
    },
    /// Each so many milliseconds, one of them at `anchor_unix_ms`.
    Every {
        /// Above zero.
        milliseconds: i64,
        /// Any instant of it.
        anchor_unix_ms: i64,
    },
    /// Once.
    Once {
        /// When.
        at_unix_ms: i64,
    },
}

/// A rule that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRule {
    /// The tables do not know this zone.
    #[error("there is no zone {0}")]
    Zone(String),
    /// No such time of day, or no distance.
    #[error("{0:?} is never due")]
    Never(Rule),
    /// An instant that no calendar reaches.
    #[error("{0} ms since 1970 is outside of the calendar")]
    Outside(i64),
}

impl Rule {
    /// All instants from `from_unix_ms` to `to_unix_ms`, both included, in order.
    ///
    /// # Errors
    /// [`NoRule`].
    pub fn instants(&self, from_unix_ms: i64, to_unix_ms: i64) -> Result<Vec<i64>, NoRule> {
        let within = |at: &i64| (from_unix_ms..=to_unix_ms).contains(at);
        match self {
            Rule::Once { at_unix_ms } => Ok(Some(*at_unix_ms).into_iter().filter(within).collect()),
            Rule::Every { milliseconds: 1.., .. } => Ok(self.steps(from_unix_ms, to_unix_ms)),
            Rule::Every { .. } => Err(NoRule::Never(self.clone())),
            Rule::Civil { .. } => {
                let mut instants: Vec<i64> =
                    self.named(from_unix_ms, to_unix_ms)?.into_iter().map(|named| named.at_unix_ms).collect();
                // Times of one gap may fall together.
                instants.dedup();
                Ok(instants)
            }
            Rule::Daily { zone, hour, minute, days } => {
                let tables = tables(zone)?;
                let time = NaiveTime::from_hms_opt(*hour, *minute, 0).ok_or_else(|| NoRule::Never(self.clone()))?;
                let first = date(tables, from_unix_ms)?;
                let last = date(tables, to_unix_ms)?;
                let dates = std::iter::successors(Some(first), |date| date.checked_add_days(Days::new(1)));
                let dates = dates.take_while(|date| *date <= last);
                let dates = dates.filter(|date| days.is_empty() || days.contains(&date.weekday()));
                Ok(dates.filter_map(|date| on(tables, date, time)).filter(within).collect())
            }
        }
    }

    /// The same of a pattern of civil times, each instant with every civil time that falls on it; nothing of other
    /// rules, whose instants have no other name.
    ///
    /// # Errors
    /// [`NoRule`].
    pub fn named(&self, from_unix_ms: i64, to_unix_ms: i64) -> Result<Vec<Named>, NoRule> {
        let Rule::Civil { zone, times, gap, twice } = self else { return Ok(Vec::new()) };
        let tables = tables(zone)?;
        let (first, last) = (date(tables, from_unix_ms)?, date(tables, to_unix_ms)?);
        let mut named = times.between(tables, first, last, (*gap, *twice));
        named.retain(|named| (from_unix_ms..=to_unix_ms).contains(&named.at_unix_ms));
        named.sort_unstable();
        Ok(named)
    }

    fn steps(&self, from: i64, to: i64) -> Vec<i64> {
        let Rule::Every { milliseconds, anchor_unix_ms } = *self else { return Vec::new() };
        let behind = (anchor_unix_ms - from).rem_euclid(milliseconds);
        std::iter::successors(Some(from + behind), |at| at.checked_add(milliseconds))
            .take_while(|at| *at <= to)
            .collect()
    }
}

/// The local date at an instant.
fn date(zone: Tz, unix_ms: i64) -> Result<NaiveDate, NoRule> {
    let instant = DateTime::from_timestamp_millis(unix_ms).ok_or(NoRule::Outside(unix_ms))?;
    Ok(instant.with_timezone(&zone).date_naive())
}

fn tables(zone: &str) -> Result<Tz, NoRule> {
    zone.parse().map_err(|_| NoRule::Zone(zone.to_owned()))
}

/// The instant of a local date's time under the default policies; none where the date does not exist.
fn on(zone: Tz, date: NaiveDate, time: NaiveTime) -> Option<i64> {
    civil::instants(zone, date.and_time(time), (Gap::After, Twice::First)).first().map(|(instant, _)| *instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    fn daily(zone: &str, hour: u32, minute: u32) -> Rule {
        Rule::Daily { zone: zone.to_owned(), hour, minute, days: Vec::new() }
    }

    fn local(zone: &str, hour: u32, minute: u32, from: &str, to: &str) -> Vec<String> {
        let instants = daily(zone, hour, minute).instants(at(from), at(to)).unwrap();
        let tables: Tz = zone.parse().unwrap();
        let shown =
            |at: i64| DateTime::from_timestamp_millis(at).unwrap().with_timezone(&tables).fixed_offset().to_string();
        instants.into_iter().map(shown).collect()
    }

    #[test]
    fn a_time_that_is_left_out_is_due_at_the_end_of_the_gap() {
        let of = |zone, hour, minute, date: &str| {
            local(zone, hour, minute, &format!("{date}T00:00:00Z"), &format!("{date}T23:59:59Z"))
        };
        assert_eq!(of("America/New_York", 2, 0, "2026-03-08"), ["2026-03-08 03:00:00 -04:00"]);
        assert_eq!(of("America/New_York", 2, 30, "2026-03-08"), ["2026-03-08 03:00:00 -04:00"]);
        assert_eq!(of("America/New_York", 1, 30, "2026-11-01"), ["2026-11-01 01:30:00 -04:00"], "the first of two");
        assert_eq!(of("Australia/Lord_Howe", 2, 15, "2026-10-03"), ["2026-10-04 02:30:00 +11:00"]);
        let cairo = local("Africa/Cairo", 0, 0, "2026-04-23T12:00:00Z", "2026-04-24T12:00:00Z");
        assert_eq!(cairo, ["2026-04-24 01:00:00 +03:00"]);
        let apia = local("Pacific/Apia", 9, 0, "2011-12-29T10:00:00Z", "2011-12-31T10:00:00Z");
        assert_eq!(apia, ["2011-12-29 09:00:00 -10:00", "2011-12-31 09:00:00 +14:00"], "there was no 30 December");
    }

    #[test]
    fn a_local_date_has_one_instant() {
        for zone in ZONES {
            for hour in 0..24 {
                let rule = daily(zone, hour, 15);
                let instants = rule.instants(at("2026-01-01T00:00:00Z"), at("2027-12-31T23:59:59Z")).unwrap();
                assert!((729..=731).contains(&instants.len()), "{zone} {hour}: {}", instants.len());
                assert!(instants.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }

    #[test]
    fn both_ends_belong_to_it() {
        let noon = daily("UTC", 12, 0);
        assert_eq!(noon.instants(at("2027-03-01T12:00:00Z"), at("2027-03-02T12:00:00Z")).unwrap().len(), 2);
        let every = Rule::Every { milliseconds: 1_000, anchor_unix_ms: 500 };
        assert_eq!(every.instants(500, 3_499).unwrap(), [500, 1_500, 2_500]);
        assert_eq!(every.instants(-600, 400).unwrap(), [-500]);
        assert_eq!(Rule::Once { at_unix_ms: 7 }.instants(7, 7).unwrap(), [7]);
        assert_eq!(Rule::Once { at_unix_ms: 7 }.instants(8, 9).unwrap(), [0; 0]);
        let mondays = Rule::Daily { zone: "UTC".to_owned(), hour: 9, minute: 0, days: vec![Weekday::Mon] };
        assert_eq!(mondays.instants(at("2026-03-01T00:00:00Z"), at("2026-03-31T00:00:00Z")).unwrap().len(), 5);
    }

    #[test]
    fn what_is_never_due_is_refused() {
        assert_eq!(daily("Europe/Atlantis", 9, 0).instants(0, 1), Err(NoRule::Zone("Europe/Atlantis".to_owned())));
        assert!(daily("UTC", 24, 0).instants(0, 1).is_err());
        assert!(Rule::Every { milliseconds: 0, anchor_unix_ms: 0 }.instants(0, 1).is_err());
    }
}
