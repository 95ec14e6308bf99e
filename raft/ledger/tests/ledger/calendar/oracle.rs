//! Brute-force oracle: reads the local clock at every UTC minute around each change of offset of twenty years, and
//! derives from the policies' definitions what must fire. It shares only the zone's offset at an instant with the
//! resolver: no cron search, no segments, no order of iteration.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use reveille_ledger::calendar::{CalendarName, DstGap, DstOverlap, DstPolicies, Fold, Pattern, Step};

use super::support::{
    GAPS, OVERLAPS, at, changes, cron, database, distinct_changes, is_fixed_time, policies, steps_between, zone,
};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Steps within a day on either side are compared. The clocks are read some hours further, more than any overlap is
/// long.
const COMPARED: SignedDuration = SignedDuration::from_hours(24);
const WALKED: SignedDuration = SignedDuration::from_hours(30);

/// A pattern in two forms: as text for the resolver, and as a predicate for the oracle.
struct Sample {
    text: &'static str,
    fixed: bool,
    matches: fn(DateTime) -> bool,
}

const SAMPLES: [Sample; 10] = [
    Sample { text: "0 2 * * *", fixed: true, matches: |t| (t.hour(), t.minute()) == (2, 0) },
    Sample { text: "0 0 * * *", fixed: true, matches: |t| (t.hour(), t.minute()) == (0, 0) },
    Sample { text: "30 2,9 * * *", fixed: true, matches: |t| t.minute() == 30 && [2, 9].contains(&t.hour()) },
    Sample {
        text: "0,7,30,59 0,1,2,3,4,5,22,23 * * *",
        fixed: true,
        matches: |t| [0, 7, 30, 59].contains(&t.minute()) && [0, 1, 2, 3, 4, 5, 22, 23].contains(&t.hour()),
    },
    Sample {
        text: "15 1,2,3 * * 0",
        fixed: true,
        matches: |t| t.minute() == 15 && [1, 2, 3].contains(&t.hour()) && t.weekday() == jiff::civil::Weekday::Sunday,
    },
    Sample {
        text: "30 1,12 13 * 5",
        fixed: true,
        matches: |t| {
            t.minute() == 30
                && [1, 12].contains(&t.hour())
                && (t.day() == 13 || t.weekday() == jiff::civil::Weekday::Friday)
        },
    },
    Sample {
        text: "0 0,3 L * *",
        fixed: true,
        matches: |t| t.minute() == 0 && [0, 3].contains(&t.hour()) && t.day() == t.days_in_month(),
    },
    Sample { text: "*/15 * * * *", fixed: false, matches: |t| t.minute() % 15 == 0 },
    Sample { text: "7 1-3 * * *", fixed: false, matches: |t| t.minute() == 7 && (1..=3).contains(&t.hour()) },
    Sample { text: "10,50 */2 * * *", fixed: false, matches: |t| [10, 50].contains(&t.minute()) && t.hour() % 2 == 0 },
];

/// Facts on which both sides must agree: the instant, the name, and whether it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Expected {
    instant: Timestamp,
    civil_ms: Option<i64>,
    fold: Fold,
    fires: bool,
}

impl From<&Step> for Expected {
    fn from(step: &Step) -> Expected {
        let occurrence = step.occurrence();
        let civil_ms = occurrence.civil_ms();
        if let CalendarName::Instant(instant) = occurrence {
            assert_eq!(instant, step.instant());
        }
        let fires = matches!(step, Step::Fires(_));
        Expected { instant: step.instant(), civil_ms, fold: occurrence.fold(), fires }
    }
}

/// Local time of each minute around an instant.
struct LocalMinutes {
    /// The minutes, in order of time.
    minutes: Vec<(Timestamp, DateTime)>,
    /// Instants at which clocks show each local time.
    shown: BTreeMap<DateTime, Vec<Timestamp>>,
    dates: BTreeSet<jiff::civil::Date>,
}

impl LocalMinutes {
    fn around(zone: &TimeZone, middle: Timestamp) -> LocalMinutes {
        let count = 2 * WALKED.as_mins();
        let instants = (0..count).map(|minute| middle - WALKED + MINUTE * minute as i32);
        let minutes: Vec<(Timestamp, DateTime)> =
            instants.map(|instant| (instant, zone.to_offset(instant).to_datetime(instant))).collect();
        let mut shown: BTreeMap<DateTime, Vec<Timestamp>> = BTreeMap::new();
        for (instant, local) in &minutes {
            assert_eq!(local.second(), 0, "offsets of these years are whole minutes");
            shown.entry(*local).or_default().push(*instant);
        }
        let dates = minutes.iter().map(|(_, local)| local.date()).collect();
        LocalMinutes { minutes, shown, dates }
    }

    /// Iterates over all local minutes from the first to the last, with those that no clock showed.
    fn local_minutes(&self) -> impl Iterator<Item = DateTime> {
        let first = *self.shown.first_key_value().unwrap().0;
        let last = *self.shown.last_key_value().unwrap().0;
        std::iter::successors(Some(first), |local| Some(*local + MINUTE)).take_while(move |local| *local <= last)
    }

    /// Returns the last minute before the gap that contains `missing`, and the first after it.
    fn around_gap(&self, missing: DateTime) -> ((Timestamp, DateTime), (Timestamp, DateTime)) {
        let after = self.minutes.iter().position(|(_, local)| *local > missing).unwrap();
        (self.minutes[after - 1], self.minutes[after])
    }

    /// Returns what a fixed-time pattern must do by the definitions of the policies.
    fn fixed(&self, matched: &[DateTime], policies: &DstPolicies) -> Vec<Expected> {
        let mut own: BTreeMap<Timestamp, (DateTime, Fold)> = BTreeMap::new();
        let mut moved: BTreeMap<Timestamp, Vec<DateTime>> = BTreeMap::new();
        let mut expected = Vec::new();
        for &local in matched {
            match self.shown.get(&local).map(Vec::as_slice) {
                Some([only]) => {
                    own.insert(*only, (local, Fold::First));
                }
                Some([first, second]) => {
                    if policies.overlap != DstOverlap::Second {
                        own.insert(*first, (local, Fold::First));
                    }
                    if policies.overlap != DstOverlap::First {
                        own.insert(*second, (local, Fold::Second));
                    }
                }
                Some(more) => panic!("{local} is shown {} times", more.len()),
                None => {
                    let ((last, shown), (first, _)) = self.around_gap(local);
                    if policies.gap == DstGap::Skip || !self.dates.contains(&local.date()) {
                        expected.push(name(first, local, Fold::First, false));
                    } else if policies.gap == DstGap::After {
                        moved.entry(first).or_default().push(local);
                    } else {
                        let waited = shown.duration_until(local);
                        moved.entry(last + waited).or_default().push(local);
                    }
                }
            }
        }
        for (instant, locals) in &moved {
            for (place, local) in locals.iter().enumerate() {
                let fires = place == 0 && !own.contains_key(instant);
                expected.push(name(*instant, *local, Fold::First, fires));
            }
        }
        expected.extend(own.iter().map(|(instant, (local, fold))| name(*instant, *local, *fold, true)));
        expected
    }

    /// Returns what an interval pattern must do: it fires whenever the clocks show one of its times.
    fn interval(&self, matched: &[DateTime]) -> Vec<Expected> {
        let instants = matched.iter().filter_map(|local| self.shown.get(local)).flatten();
        let expected =
            |instant: &Timestamp| Expected { instant: *instant, civil_ms: None, fold: Fold::First, fires: true };
        instants.map(expected).collect()
    }
}

fn name(instant: Timestamp, local: DateTime, fold: Fold, fires: bool) -> Expected {
    let civil_ms = Offset::UTC.to_timestamp(local).unwrap().as_millisecond();
    Expected { instant, civil_ms: Some(civil_ms), fold, fires }
}

/// Compares both for each sample and policy around `middle`. Returns the number of equal steps.
fn compare(zone: &TimeZone, middle: Timestamp, patterns: &[Pattern], about: &str) -> usize {
    let minutes = LocalMinutes::around(zone, middle);
    let (from, to) = (middle - COMPARED, middle + COMPARED);
    let locals: Vec<DateTime> = minutes.local_minutes().collect();
    let mut agreed = 0;
    for (sample, pattern) in SAMPLES.iter().zip(patterns) {
        assert_eq!(is_fixed_time(pattern), sample.fixed);
        let matched: Vec<DateTime> = locals.iter().copied().filter(|local| (sample.matches)(*local)).collect();
        let interval = minutes.interval(&matched);
        for policies in choices() {
            let mut expected = match sample.fixed {
                true => minutes.fixed(&matched, &policies),
                false => interval.clone(),
            };
            expected.retain(|expected| from <= expected.instant && expected.instant < to);
            expected.sort();
            let steps = steps_between(pattern, zone, &policies, from, to);
            let found: Vec<Expected> = steps.iter().map(Expected::from).collect();
            assert_eq!(found, expected, "{} with {policies:?}, {about}", sample.text);
            agreed += found.len();
        }
    }
    agreed
}

/// Each value of both policies once: at one clock change only one of the two policies applies.
fn choices() -> [DstPolicies; 3] {
    [0, 1, 2].map(|place| policies(GAPS[place], OVERLAPS[place]))
}

fn patterns() -> Vec<Pattern> {
    SAMPLES.iter().map(|sample| cron(sample.text)).collect()
}

#[test]
fn resolver_agrees_with_brute_force_around_zone_changes() {
    let patterns = patterns();
    let found = distinct_changes(at("2007-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    assert!(found.len() > 900, "{} distinct changes", found.len());
    assert!(found.iter().any(|change| change.zone_name == "Pacific/Apia"));
    for change in &found {
        let zone = zone(&change.zone_name);
        let about = format!("{} at {}", change.zone_name, change.at);
        assert!(compare(&zone, change.at, &patterns, &about) > 0);
    }
}

#[test]
fn resolver_agrees_with_brute_force_on_random_days() {
    let names: Vec<String> = database().available().map(|name| name.to_string()).collect();
    let patterns = patterns();
    let first = at("2007-01-01T00:00:00Z");
    // A fixed linear congruential generator: the days are the same in each run.
    let mut state: u64 = 20_260_308;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..150 {
        let name = &names[draw(names.len() as u64) as usize];
        let middle = first + SignedDuration::from_mins(draw(40 * 365 * 24 * 60) as i64);
        let about = format!("{name} at {middle}");
        assert!(compare(&zone(name), middle, &patterns, &about) > 0);
    }
}

/// The resolver assumes this about overlaps (see `segment.rs`).
#[test]
fn no_zone_changes_its_offset_twice_within_three_days() {
    let (since, until) = (at("1900-01-01T00:00:00Z"), at("2060-01-01T00:00:00Z"));
    for name in database().available() {
        let changes = changes(name.as_str(), since, until);
        for pair in changes.windows(2) {
            let apart = pair[1].at.duration_since(pair[0].at);
            assert!(apart >= SignedDuration::from_hours(72), "{pair:?}");
        }
    }
}
