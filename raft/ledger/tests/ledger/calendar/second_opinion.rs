//! Compares with chrono-tz, an independent implementation of the same rules. Its tables are older. So it is only used
//! for years and zones in which both have the same offsets.

use std::time::Duration;

use chrono_tz::{GapInfo, TZ_VARIANTS, Tz};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use reveille_ledger::calendar::{CalendarName, DstPolicies, Remark};

use super::support::{Change, at, changes, cron, database, firings, steps_between};

/// Returns the local time of chrono-tz at `instant` (after 1990): `2026-03-08T03:00:00`.
///
/// chrono is not a dependency. Its types are only reachable through chrono-tz, from a known instant: the end of a gap
/// in New York.
fn shown(zone: Tz, instant: Timestamp) -> String {
    let in_gap = "1990-04-01T02:30:00".parse().unwrap();
    let known = GapInfo::new(&in_gap, &Tz::America__New_York).unwrap().end.unwrap();
    let later = Duration::from_secs((instant.as_second() - known.timestamp()) as u64);
    (known.with_timezone(&zone) + later).naive_local().to_string().replace(' ', "T")
}

/// Returns the end of the gap that contains `local` by chrono-tz, in seconds since the Unix epoch.
fn gap_end(zone: Tz, local: jiff::civil::DateTime) -> i64 {
    let gap = GapInfo::new(&local.to_string().parse().unwrap(), &zone).unwrap();
    gap.end.unwrap().timestamp()
}

/// True if both have the same local time before and after a change.
fn agree(zone: &TimeZone, theirs: Tz, change: &Change) -> bool {
    [change.at - SignedDuration::from_secs(1), change.at]
        .into_iter()
        .all(|instant| zone.to_datetime(instant).to_string() == shown(theirs, instant))
}

#[test]
fn firings_show_the_local_times_that_chrono_tz_shows() {
    let pattern = cron("0,30 0,2,12,23 * * *");
    let (mut asked, mut differ, mut gaps) = (0, 0, 0);
    for theirs in TZ_VARIANTS {
        let Ok(zone) = database().get(theirs.name()) else { continue };
        let (since, until) = (at("2007-01-01T00:00:00Z"), at("2025-01-01T00:00:00Z"));
        for change in changes(theirs.name(), since, until).into_iter().step_by(5) {
            if !agree(&zone, theirs, &change) {
                differ += 1;
                continue;
            }
            asked += 1;
            let day = SignedDuration::from_hours(24);
            let (from, to) = (change.at - day, change.at + day);
            let steps = steps_between(&pattern, &zone, &DstPolicies::default(), from, to);
            for firing in firings(&steps) {
                assert_eq!(shown(theirs, firing.instant), firing.local().to_string());
                let CalendarName::Civil { local: named, .. } = firing.occurrence else { unreachable!() };
                if let Some(Remark::MovedAfterGap { .. }) = firing.remark {
                    gaps += 1;
                    assert_eq!(firing.instant.as_second(), gap_end(theirs, named), "{change:?}");
                } else {
                    assert_eq!(firing.local(), named, "{change:?}");
                }
            }
        }
    }
    assert!(asked > 1_000 && gaps > 300, "{asked} changes asked, {gaps} gaps");
    assert!(differ * 10 < asked, "{differ} of {asked} changes differ");
}
