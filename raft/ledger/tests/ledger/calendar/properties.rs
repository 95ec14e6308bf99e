//! Properties for random zones, patterns, policies and instants.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use reveille_ledger::calendar::{
    DstGap, DstOverlap, DstPolicies, Pattern, Step, When, count, missed, next_after, spread, steps_after,
};

use super::support::{GAPS, OVERLAPS, at, cron, database, firings};

/// Zones with half-hour changes, changes at midnight, a skipped day, changes for Ramadan, no change at all, and an
/// offset that had seconds.
const ZONES: [&str; 12] = [
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Santiago",
    "America/Nuuk",
    "America/St_Johns",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Asia/Kolkata",
    "Africa/Monrovia",
];

fn zones() -> impl Strategy<Value = TimeZone> {
    prop::sample::select(ZONES.to_vec()).prop_map(|name| database().get(name).unwrap())
}

fn knobs() -> impl Strategy<Value = DstPolicies> {
    (prop::sample::select(GAPS.to_vec()), prop::sample::select(OVERLAPS.to_vec()))
        .prop_map(|(gap, overlap)| DstPolicies { gap, overlap })
}

/// Instants from 1970 to 2040; half of them are within two days of a change of offset.
fn instants(zone: &TimeZone) -> impl Strategy<Value = Timestamp> + use<> {
    let change = zone.following(at("2005-01-01T00:00:00Z")).take(30);
    let changes: Vec<i64> = change.map(|change| change.timestamp().as_millisecond()).collect();
    let anywhere = (0..2_208_988_800_000_i64).boxed();
    let near = if changes.is_empty() {
        anywhere.clone()
    } else {
        let near = (prop::sample::select(changes), -172_800_000..172_800_000_i64);
        near.prop_map(|(change, offset)| change + offset).boxed()
    };
    prop_oneof![anywhere, near].prop_map(|ms| Timestamp::from_millisecond(ms).unwrap())
}

fn numbers(below: u8) -> impl Strategy<Value = String> {
    prop::collection::btree_set(0..below, 1..4)
        .prop_map(|set: BTreeSet<u8>| set.iter().map(u8::to_string).collect::<Vec<_>>().join(","))
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let hours =
        prop_oneof![numbers(24), numbers(4), Just("*".to_string()), Just("*/2".to_string()), Just("0-3".to_string()),];
    let minutes = prop_oneof![numbers(60), Just("0".to_string()), Just("*/20".to_string())];
    let days = prop::sample::select(vec!["*", "1,15,31", "L", "15W"]);
    let weekdays = prop::sample::select(vec!["*", "0", "1-5", "6L", "0#2"]);
    let civil = (minutes, hours, days, weekdays)
        .prop_map(|(minute, hour, day, weekday)| cron(&format!("{minute} {hour} {day} * {weekday}")));
    let period = (1_000..1_000_000_000_u64, 0..2_000_000_000_000_i64)
        .prop_map(|(period_ms, anchor_ms)| Pattern::compile(&When::Every { period_ms, anchor_ms }).unwrap());
    prop_oneof![5 => civil, 1 => period]
}

fn cases() -> impl Strategy<Value = (TimeZone, Pattern, DstPolicies, Timestamp)> {
    zones().prop_flat_map(|zone| {
        let after = instants(&zone);
        (Just(zone), patterns(), knobs(), after)
    })
}

fn some_steps(pattern: &Pattern, zone: &TimeZone, policies: &DstPolicies, after: Timestamp) -> Vec<Step> {
    steps_after(pattern, zone, policies, after).take(40).collect()
}

proptest! {
    #![proptest_config(reveille_fuzz::cases(1_500))]

    #[test]
    fn instants_strictly_increase_and_names_are_never_used_twice((zone, pattern, policies, after) in cases()) {
        let steps = some_steps(&pattern, &zone, &policies, after);
        prop_assert_eq!(steps.len(), 40);
        let instants: Vec<Timestamp> = steps.iter().map(Step::instant).collect();
        prop_assert!(instants.is_sorted() && instants[0] > after);
        prop_assert!(firings(&steps).is_sorted_by(|a, b| a.instant < b.instant));
        for (place, step) in steps.iter().enumerate() {
            prop_assert!(steps[..place].iter().all(|former| former.occurrence() != step.occurrence()));
        }
    }

    #[test]
    fn interrupted_resolution_gives_the_same_instants((zone, pattern, policies, after) in cases()) {
        let steps = some_steps(&pattern, &zone, &policies, after);
        let mut after = after;
        for firing in firings(&steps) {
            prop_assert_eq!(next_after(&pattern, &zone, &policies, after), Some(firing));
            after = firing.instant;
        }
    }

    #[test]
    fn every_instant_before_the_next_firing_gives_that_firing(
        (zone, pattern, policies, after) in cases(),
        part in 0.0..1.0_f64,
    ) {
        let first = next_after(&pattern, &zone, &policies, after).unwrap();
        let room = first.instant.duration_since(after).as_millis() as f64;
        let between = after + SignedDuration::from_millis((room * part) as i64);
        prop_assume!(between < first.instant);
        prop_assert_eq!(next_after(&pattern, &zone, &policies, between), Some(first));
    }

    #[test]
    fn missed_instants_in_pieces_equal_those_at_once(
        (zone, pattern, policies, after) in cases(),
        limit in 1..9_usize,
    ) {
        let through = some_steps(&pattern, &zone, &policies, after)[39].instant();
        let whole = missed(&pattern, &zone, &policies, after, through, usize::MAX);
        prop_assert!(whole.complete && whole.steps.len() >= 40);
        let (mut pieces, mut from) = (Vec::new(), after);
        loop {
            let piece = missed(&pattern, &zone, &policies, from, through, limit);
            prop_assert!(piece.complete || piece.steps.len() >= limit);
            pieces.extend(piece.steps);
            if piece.complete {
                break;
            }
            from = pieces.last().map(Step::instant).unwrap();
        }
        prop_assert_eq!(&pieces, &whole.steps);

        let all = firings(&whole.steps);
        let counted = count(&pattern, &zone, &policies, after, through, u64::MAX);
        prop_assert_eq!(counted.firings as usize, all.len());
        prop_assert_eq!(counted.absences as usize, whole.steps.len() - all.len());
        prop_assert_eq!((counted.first, counted.last), (all.first().copied(), all.last().copied()));
        prop_assert!(counted.complete);
    }

    #[test]
    fn interrupted_count_continues_after_its_last_firing(
        (zone, pattern, policies, after) in cases(),
        limit in 1..9_u64,
    ) {
        let through = some_steps(&pattern, &zone, &policies, after)[39].instant();
        let whole = count(&pattern, &zone, &policies, after, through, u64::MAX);
        let head = count(&pattern, &zone, &policies, after, through, limit);
        if head.complete {
            prop_assert_eq!(head, whole);
        } else {
            prop_assert_eq!(head.firings, limit);
            let from = head.last.unwrap().instant;
            let tail = count(&pattern, &zone, &policies, from, through, u64::MAX);
            prop_assert_eq!(head.firings + tail.firings, whole.firings);
            prop_assert_eq!(head.absences + tail.absences, whole.absences);
        }
    }

    #[test]
    fn spread_stays_in_its_window_and_before_next_instant(
        (zone, pattern, policies, after) in cases(),
        window_ms in 0..10_000_000_u64,
        seed in any::<[u8; 8]>(),
    ) {
        let all = firings(&some_steps(&pattern, &zone, &policies, after));
        let window = Duration::from_millis(window_ms);
        for pair in all.windows(2) {
            let next = Some(pair[1].instant);
            let wait = spread(&seed, &pair[0], next, window);
            prop_assert_eq!(wait, spread(&seed, &pair[0], next, window));
            prop_assert!(wait < window || window_ms == 0 && wait.is_zero());
            prop_assert!(pair[0].instant + wait < pair[1].instant);
        }
    }
}

#[test]
fn spread_fills_its_window_evenly_and_differs_by_schedule() {
    let zone = database().get("UTC").unwrap();
    let after = at("2026-01-01T00:00:00Z");
    let firing = next_after(&cron("0 9 * * *"), &zone, &DstPolicies::default(), after).unwrap();
    let window = Duration::from_secs(600);
    let mut tenths = [0_u32; 10];
    for schedule in 0..10_000_u64 {
        let wait = spread(&schedule.to_be_bytes(), &firing, None, window);
        tenths[wait.as_secs() as usize / 60] += 1;
    }
    assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "{tenths:?}");
}

#[test]
fn count_of_seconds_over_years_is_fast() {
    let when = When::Every { period_ms: 1_000, anchor_ms: 0 };
    let every_second = Pattern::compile(&when).unwrap();
    let zone = database().get("UTC").unwrap();
    let (after, through) = (at("1969-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    let counted = count(&every_second, &zone, &DstPolicies::default(), after, through, 1);
    assert_eq!(counted.firings, 1_767_225_601);
    assert_eq!(counted.first.unwrap().instant, Timestamp::UNIX_EPOCH);
    assert_eq!(counted.last.unwrap().instant, through);
    let none = count(&every_second, &zone, &DstPolicies::default(), through, after, 1);
    assert_eq!((none.firings, none.complete), (0, true));
}

/// At the first and last instants of the calendar there is no panic.
#[test]
fn first_and_last_instant_of_calendar_cause_no_panic() {
    for name in ZONES {
        let zone = database().get(name).unwrap();
        for gap in GAPS {
            let policies = DstPolicies { gap, overlap: DstOverlap::Both };
            for pattern in [cron("0 2 * * *"), cron("*/15 * * * *"), cron("0 9 29 2 +mon")] {
                assert!(next_after(&pattern, &zone, &policies, Timestamp::MIN).is_some());
                assert_eq!(next_after(&pattern, &zone, &policies, Timestamp::MAX), None);
                assert_eq!(next_after(&pattern, &zone, &policies, at("5001-01-01T00:00:00Z")), None);
            }
        }
    }
    let policies = DstPolicies { gap: DstGap::After, overlap: DstOverlap::First };
    let instant_ms = Timestamp::MAX.as_second() * 1_000;
    let last = Pattern::compile(&When::Every { period_ms: 1_000, anchor_ms: instant_ms }).unwrap();
    let utc = database().get("UTC").unwrap();
    assert_eq!(steps_after(&last, &utc, &policies, Timestamp::MIN).count(), 1);
}

/// Zones that no database has: changes closer together than their length, and gaps over half a date and a whole date.
/// The steps must still be in order.
#[test]
fn unusual_zones_give_instants_in_order() {
    let pattern = cron("0,20,40 0,3,9,15,21 * * *");
    let after = at("2026-04-08T00:00:00Z");
    for rules in ["AAA0BBB-24,J100/0,J100/30", "AAA12BBB-24,J100/12,J300/12"] {
        let zone = TimeZone::posix(rules).unwrap();
        for (gap, overlap) in GAPS.into_iter().flat_map(|gap| OVERLAPS.map(|overlap| (gap, overlap))) {
            let steps = steps_after(&pattern, &zone, &DstPolicies { gap, overlap }, after);
            let steps: Vec<Step> = steps.take(200).collect();
            assert!(firings(&steps).is_sorted_by(|a, b| a.instant < b.instant), "{rules} {gap} {overlap}");
            assert!(steps.is_sorted_by_key(Step::instant), "{rules} {gap} {overlap}");
        }
    }
}
