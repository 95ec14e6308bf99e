//! Calculates when schedules are due, with other zone tables than the product's. A [`Rule`] describes a schedule of the
//! workload and returns its [`Due`](crate::events::Due) instants.
//!
//! The tables of chrono-tz are older than the product's, so use only zones whose rules have not changed since.

use chrono::{DateTime, NaiveDate};
use chrono_tz::Tz;

mod civil;

pub use civil::{Civil, Fold, Gap, Named};

/// Rule by which a schedule is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At the civil times of a zone that match a pattern.
    Civil {
        /// IANA name of the zone.
        zone: String,
        /// The pattern.
        times: Civil,
        /// The policy for times that do not exist.
        gap: Gap,
        /// The policy for times that exist twice.
        fold: Fold,
    },
    /// Periodically.
    Every {
        /// Length of the period, above zero.
        milliseconds: i64,
        /// One of the instants.
        anchor_unix_ms: i64,
    },
    /// Once.
    Once {
        /// The instant.
        at_unix_ms: i64,
    },
}

/// Reason why a rule has no instants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRule {
    /// The tables do not know this zone.
    #[error("there is no zone {0}")]
    Zone(String),
    /// The period is not positive.
    #[error("{0:?} is never due")]
    Never(Rule),
    /// The instant is outside of the calendar.
    #[error("{0} ms since 1970 is outside of the calendar")]
    Outside(i64),
}

impl Rule {
    /// Returns a rule that is due daily at one time of day. If a change of clocks skips that time, it is due at the end
    /// of the gap. If a change repeats that time, it is due at the first of the two times. Nothing is due on a date
    /// that does not exist.
    pub fn daily(zone: &str, hour: u32, minute: u32) -> Rule {
        let times = Civil { minute, hour: Some(hour), ..Civil::default() };
        Rule::Civil { zone: zone.to_owned(), times, gap: Gap::After, fold: Fold::First }
    }

    /// Returns all instants from `from_unix_ms` to `to_unix_ms`, both included, in order.
    ///
    /// # Errors
    /// Fails if the rule has no instants.
    pub fn instants(&self, from_unix_ms: i64, to_unix_ms: i64) -> Result<Vec<i64>, NoRule> {
        let within = |at: &i64| (from_unix_ms..=to_unix_ms).contains(at);
        match self {
            Rule::Once { at_unix_ms } => Ok(Some(*at_unix_ms).into_iter().filter(within).collect()),
            Rule::Every { milliseconds: 1.., .. } => Ok(self.steps(from_unix_ms, to_unix_ms)),
            Rule::Every { .. } => Err(NoRule::Never(self.clone())),
            Rule::Civil { .. } => {
                let mut instants: Vec<i64> =
                    self.named(from_unix_ms, to_unix_ms)?.into_iter().map(|named| named.at_unix_ms).collect();
                // Times within one gap may have the same instant.
                instants.dedup();
                Ok(instants)
            }
        }
    }

    /// Returns the instants of a pattern of civil times, each with all civil times that fall on it. Empty for other
    /// rules.
    ///
    /// # Errors
    /// Fails if the rule has no instants.
    pub fn named(&self, from_unix_ms: i64, to_unix_ms: i64) -> Result<Vec<Named>, NoRule> {
        let Rule::Civil { zone, times, gap, fold } = self else { return Ok(Vec::new()) };
        let tables = tables(zone)?;
        let (first, last) = (date(tables, from_unix_ms)?, date(tables, to_unix_ms)?);
        let mut named = times.between(tables, first, last, (*gap, *fold));
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

/// Returns the local date at an instant.
fn date(zone: Tz, unix_ms: i64) -> Result<NaiveDate, NoRule> {
    let instant = DateTime::from_timestamp_millis(unix_ms).ok_or(NoRule::Outside(unix_ms))?;
    Ok(instant.with_timezone(&zone).date_naive())
}

fn tables(zone: &str) -> Result<Tz, NoRule> {
    zone.parse().map_err(|_| NoRule::Zone(zone.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    fn local(zone: &str, hour: u32, minute: u32, from: &str, to: &str) -> Vec<String> {
        let instants = Rule::daily(zone, hour, minute).instants(at(from), at(to)).unwrap();
        let tables: Tz = zone.parse().unwrap();
        let shown =
            |at: i64| DateTime::from_timestamp_millis(at).unwrap().with_timezone(&tables).fixed_offset().to_string();
        instants.into_iter().map(shown).collect()
    }

    #[test]
    fn skipped_time_is_due_at_end_of_gap() {
        let due_on = |zone, hour, minute, date: &str| {
            local(zone, hour, minute, &format!("{date}T00:00:00Z"), &format!("{date}T23:59:59Z"))
        };
        assert_eq!(due_on("America/New_York", 2, 0, "2026-03-08"), ["2026-03-08 03:00:00 -04:00"]);
        assert_eq!(due_on("America/New_York", 2, 30, "2026-03-08"), ["2026-03-08 03:00:00 -04:00"]);
        assert_eq!(due_on("America/New_York", 1, 30, "2026-11-01"), ["2026-11-01 01:30:00 -04:00"], "the first of two");
        assert_eq!(due_on("Australia/Lord_Howe", 2, 15, "2026-10-03"), ["2026-10-04 02:30:00 +11:00"]);
        let cairo = local("Africa/Cairo", 0, 0, "2026-04-23T12:00:00Z", "2026-04-24T12:00:00Z");
        assert_eq!(cairo, ["2026-04-24 01:00:00 +03:00"]);
        let apia = local("Pacific/Apia", 9, 0, "2011-12-29T10:00:00Z", "2011-12-31T10:00:00Z");
        assert_eq!(apia, ["2011-12-29 09:00:00 -10:00", "2011-12-31 09:00:00 +14:00"], "there was no 30 December");
    }

    #[test]
    fn local_date_has_one_instant() {
        for zone in
            ["Australia/Lord_Howe", "Antarctica/Troll", "America/St_Johns", "Europe/Berlin", "Africa/Cairo", "UTC"]
        {
            for hour in [0, 2, 3, 12] {
                let rule = Rule::daily(zone, hour, 15);
                let instants = rule.instants(at("2026-01-01T00:00:00Z"), at("2027-12-31T23:59:59Z")).unwrap();
                assert!((729..=731).contains(&instants.len()), "{zone} {hour}: {}", instants.len());
                assert!(instants.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }

    #[test]
    fn both_ends_are_included() {
        let noon = Rule::daily("UTC", 12, 0);
        assert_eq!(noon.instants(at("2027-03-01T12:00:00Z"), at("2027-03-02T12:00:00Z")).unwrap().len(), 2);
        let every = Rule::Every { milliseconds: 1_000, anchor_unix_ms: 500 };
        assert_eq!(every.instants(500, 3_499).unwrap(), [500, 1_500, 2_500]);
        assert_eq!(every.instants(-600, 400).unwrap(), [-500]);
        assert_eq!(Rule::Once { at_unix_ms: 7 }.instants(7, 7).unwrap(), [7]);
        assert_eq!(Rule::Once { at_unix_ms: 7 }.instants(8, 9).unwrap(), [0; 0]);
    }

    #[test]
    fn rule_without_instants_is_refused() {
        assert_eq!(
            Rule::daily("Europe/Atlantis", 9, 0).instants(0, 1),
            Err(NoRule::Zone("Europe/Atlantis".to_owned()))
        );
        assert!(Rule::Every { milliseconds: 0, anchor_unix_ms: 0 }.instants(0, 1).is_err());
    }
}
