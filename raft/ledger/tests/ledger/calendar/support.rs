//! Helpers of the tests: zones of the bundled database, patterns, and the local times of a day.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use reveille_ledger::calendar::{
    CalendarName, DstGap, DstOverlap, DstPolicies, Firing, Pattern, PatternError, Step, When, next_after, steps_after,
};

pub fn database() -> TimeZoneDatabase {
    TimeZoneDatabase::bundled()
}

pub fn zone(name: &str) -> TimeZone {
    database().get(name).unwrap()
}

pub fn compile(expression: &str) -> Result<Pattern, PatternError> {
    Pattern::compile(&When::Cron { expression: expression.into() })
}

pub fn cron(expression: &str) -> Pattern {
    compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// True if the pattern names its occurrences by civil date-time, and the policies for clock changes apply to it.
pub fn is_fixed_time(pattern: &Pattern) -> bool {
    let next = next_after(pattern, &zone("UTC"), &DstPolicies::default(), at("2026-01-01T00:00:00Z"));
    matches!(next.expect("an instant").occurrence, CalendarName::Civil { .. })
}

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn policies(gap: DstGap, overlap: DstOverlap) -> DstPolicies {
    DstPolicies { gap, overlap }
}

pub const GAPS: [DstGap; 3] = [DstGap::After, DstGap::Shift, DstGap::Skip];
pub const OVERLAPS: [DstOverlap; 3] = [DstOverlap::First, DstOverlap::Second, DstOverlap::Both];

/// Returns all steps in `[from, to)`.
pub fn steps_between(
    pattern: &Pattern,
    zone: &TimeZone,
    policies: &DstPolicies,
    from: Timestamp,
    to: Timestamp,
) -> Vec<Step> {
    let after = from - SignedDuration::from_nanos(1);
    steps_after(pattern, zone, policies, after).take_while(|step| step.instant() < to).collect()
}

/// Returns all steps whose instant is on the local date `date` (`2026-03-08`).
pub fn steps_on(pattern: &Pattern, zone: &TimeZone, policies: &DstPolicies, date: &str) -> Vec<Step> {
    let date: jiff::civil::Date = date.parse().unwrap();
    let from = date.to_zoned(zone.clone()).unwrap().timestamp();
    let to = date.tomorrow().unwrap().to_zoned(zone.clone()).unwrap().timestamp();
    steps_between(pattern, zone, policies, from, to)
}

pub fn firings(steps: &[Step]) -> Vec<Firing> {
    let fires = |step: &Step| match step {
        Step::Fires(firing) => Some(*firing),
        Step::Absent(_) => None,
    };
    steps.iter().filter_map(fires).collect()
}

/// Returns the firings of a local date, in RFC 3339 with the local offset.
pub fn fires_on(expression: &str, zone_name: &str, date: &str) -> Vec<String> {
    fires_with(expression, zone_name, date, DstPolicies::default())
}

pub fn fires_with(expression: &str, zone_name: &str, date: &str, policies: DstPolicies) -> Vec<String> {
    let steps = steps_on(&cron(expression), &zone(zone_name), &policies, date);
    firings(&steps).iter().map(Firing::local_text).collect()
}

/// A change of a zone's offset. It is found without the calendar, by reading the offset before and after it.
#[derive(Clone, Debug)]
pub struct Change {
    pub zone_name: String,
    pub at: Timestamp,
    pub from: DateTime,
    pub to: DateTime,
}

/// Returns every change of offset in `[since, until)`, one for each pair of local times. Zones with the same change at
/// the same local time count once.
pub fn distinct_changes(since: Timestamp, until: Timestamp) -> Vec<Change> {
    let mut found = BTreeMap::new();
    for name in database().available() {
        for change in changes(name.as_str(), since, until) {
            found.entry((change.from, change.to)).or_insert(change);
        }
    }
    found.into_values().collect()
}

/// Returns every change of offset of one zone in `[since, until)`.
pub fn changes(zone_name: &str, since: Timestamp, until: Timestamp) -> Vec<Change> {
    let zone = zone(zone_name);
    let instants = zone.following(since).map(|change| change.timestamp());
    instants
        .take_while(|at| *at < until)
        .map(|at| {
            let before = zone.to_offset(at - SignedDuration::from_nanos(1));
            let (from, to) = (before.to_datetime(at), zone.to_datetime(at));
            Change { zone_name: zone_name.to_string(), at, from, to }
        })
        .filter(|change| change.from != change.to)
        .collect()
}
