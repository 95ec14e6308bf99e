//! The test vectors of the policies, one by one.

use jiff::civil::{Weekday, date};
use reveille_ledger::calendar::{
    AbsenceReason, CalendarName, DstGap, DstOverlap, DstPolicies, Fold, Pattern, Remark, Step, Weekdays, When,
    next_after,
};

use super::support::{at, cron, fires_on, fires_with, firings, is_fixed_time, policies, steps_between, steps_on, zone};

const NEW_YORK: &str = "America/New_York";

#[test]
fn two_o_clock_fires_at_three_when_two_does_not_exist() {
    let fired = fires_on("0 2 * * *", NEW_YORK, "2026-03-08");
    assert_eq!(fired, ["2026-03-08T03:00:00-04:00"]);
    let firing = next_after(&cron("0 2 * * *"), &zone(NEW_YORK), &DstPolicies::default(), at("2026-03-08T05:00:00Z"));
    let firing = firing.unwrap();
    let local = date(2026, 3, 8).at(2, 0, 0, 0);
    assert_eq!(firing.occurrence, CalendarName::Civil { local, fold: Fold::First });
    assert_eq!(
        firing.remark.unwrap().to_string(),
        "02:00 does not exist that day: clocks go forward from 02:00 to 03:00; moved to the end of the gap"
    );
}

#[test]
fn of_two_times_only_the_one_in_the_gap_moves() {
    let fired = fires_on("30 2,9 * * *", NEW_YORK, "2026-03-08");
    assert_eq!(fired, ["2026-03-08T03:00:00-04:00", "2026-03-08T09:30:00-04:00"]);
}

#[test]
fn repeated_local_time_fires_at_the_first() {
    let fired = fires_on("30 1 * * *", NEW_YORK, "2026-11-01");
    assert_eq!(fired, ["2026-11-01T01:30:00-04:00"]);
}

#[test]
fn quarter_hours_fire_96_times_in_24_hours_on_both_days() {
    for noon in ["2026-03-07T17:00:00Z", "2026-10-31T16:00:00Z"] {
        let from = at(noon);
        for start in 0..24 {
            let from = from + jiff::SignedDuration::from_hours(start);
            let to = from + jiff::SignedDuration::from_hours(24);
            let steps = steps_between(&cron("*/15 * * * *"), &zone(NEW_YORK), &DstPolicies::default(), from, to);
            assert_eq!(steps.len(), 96, "{from}");
            assert_eq!(firings(&steps).len(), 96, "{from}");
        }
    }
}

#[test]
fn lord_howe_moves_by_half_an_hour() {
    let fired = fires_on("15 2 * * *", "Australia/Lord_Howe", "2026-10-04");
    assert_eq!(fired, ["2026-10-04T02:30:00+11:00"]);
}

#[test]
fn midnight_fires_at_one_of_the_same_date_when_midnight_does_not_exist() {
    assert_eq!(fires_on("0 0 * * *", "Africa/Cairo", "2026-04-24"), ["2026-04-24T01:00:00+03:00"]);
    assert_eq!(fires_on("0 0 * * *", "America/Santiago", "2026-09-06"), ["2026-09-06T01:00:00-03:00"]);
}

#[test]
fn missing_date_has_no_firing_and_is_explained() {
    let (from, to) = (at("2011-12-29T12:00:00Z"), at("2011-12-31T12:00:00Z"));
    for gap in [DstGap::After, DstGap::Shift, DstGap::Skip] {
        let policies = policies(gap, DstOverlap::First);
        let apia = zone("Pacific/Apia");
        let steps = steps_between(&cron("0 9 * * *"), &apia, &policies, from, to);
        let [Step::Fires(before), Step::Absent(absent), Step::Fires(after)] = steps[..] else {
            panic!("{steps:?}");
        };
        assert_eq!(before.local_text(), "2011-12-29T09:00:00-10:00");
        assert_eq!(after.local_text(), "2011-12-31T09:00:00+14:00");
        assert_eq!(absent.occurrence.to_string(), "2011-12-30T09:00:00");
        assert!(matches!(absent.reason, AbsenceReason::DateMissing { .. }));
        assert!(absent.reason.to_string().starts_with("date does not exist"), "{}", absent.reason);
    }
}

#[test]
fn last_day_of_month() {
    let steps = steps_between(
        &cron("0 9 L * *"),
        &zone("UTC"),
        &DstPolicies::default(),
        at("2028-01-01T00:00:00Z"),
        at("2028-05-01T00:00:00Z"),
    );
    let days: Vec<i8> = firings(&steps).iter().map(|firing| firing.local().day()).collect();
    assert_eq!(days, [31, 29, 31, 30]);
}

#[test]
fn last_friday_of_month() {
    assert_eq!(days_of_2026("0 9 * * 5L", 1..=3), [(1, 30), (2, 27), (3, 27)]);
    assert_eq!(days_of_2026("0 9 * * friL", 1..=3), [(1, 30), (2, 27), (3, 27)]);
}

#[test]
fn day_of_month_or_weekday_as_vixie_cron_has_it() {
    let january = [(1, 2), (1, 9), (1, 13), (1, 16), (1, 23), (1, 30)];
    assert_eq!(days_of_2026("0 9 13 * 5", 1..=1), january);
}

#[test]
fn one_is_monday() {
    assert_eq!(days_of_2026("0 9 * * 1", 1..=1), [(1, 5), (1, 12), (1, 19), (1, 26)]);
    assert_eq!(date(2026, 1, 5).weekday(), Weekday::Monday);
}

#[test]
fn other_words_of_grammar() {
    assert_eq!(days_of_2026("0 9 * * 5#2", 1..=2), [(1, 9), (2, 13)]);
    assert_eq!(days_of_2026("0 9 15W * *", 2..=3), [(2, 16), (3, 16)]);
    assert_eq!(days_of_2026("0 9 LW * *", 1..=2), [(1, 30), (2, 27)]);
    assert_eq!(days_of_2026("0 9 13 * +fri", 1..=3), [(2, 13), (3, 13)]);
    assert_eq!(days_of_2026("0 9 ? feb 0", 1..=3), days_of_2026("0 9 * 2 7", 1..=3));
    assert_eq!(days_of_2026("@monthly", 1..=3), [(1, 1), (2, 1), (3, 1)]);
    assert_eq!(days_of_2026("@weekly", 1..=1), [(1, 4), (1, 11), (1, 18), (1, 25)]);
}

/// Returns (month, day) of the firings in these months of 2026.
fn days_of_2026(expression: &str, months: std::ops::RangeInclusive<i8>) -> Vec<(i8, i8)> {
    let from = date(2026, *months.start(), 1).to_zoned(zone("UTC")).unwrap().timestamp();
    let to = date(2026, months.end() + 1, 1).to_zoned(zone("UTC")).unwrap().timestamp();
    let pattern = cron(expression);
    let steps = steps_between(&pattern, &zone("UTC"), &DstPolicies::default(), from, to);
    firings(&steps).iter().map(|firing| (firing.local().month(), firing.local().day())).collect()
}

#[test]
fn times_of_one_gap_fall_together_and_each_is_explained() {
    let steps = steps_on(&cron("0,30 2 * * *"), &zone(NEW_YORK), &DstPolicies::default(), "2026-03-08");
    let [Step::Fires(firing), Step::Absent(absent)] = steps[..] else { panic!("{steps:?}") };
    assert_eq!(firing.local_text(), "2026-03-08T03:00:00-04:00");
    assert_eq!(firing.occurrence.to_string(), "2026-03-08T02:00:00");
    assert!(firing.remark.unwrap().to_string().ends_with("together with 1 other time"));
    assert_eq!(absent.occurrence.to_string(), "2026-03-08T02:30:00");
    assert!(matches!(absent.reason, AbsenceReason::FallsTogether { with, .. } if with == firing.occurrence));
}

#[test]
fn skipped_local_time_coincides_with_pattern_time_at_gap_end() {
    let steps = steps_on(&cron("0 2,3,4 * * *"), &zone(NEW_YORK), &DstPolicies::default(), "2026-03-08");
    let [Step::Absent(absent), Step::Fires(three), Step::Fires(four)] = steps[..] else {
        panic!("{steps:?}");
    };
    assert_eq!(absent.occurrence.to_string(), "2026-03-08T02:00:00");
    assert_eq!(three.occurrence.to_string(), "2026-03-08T03:00:00");
    assert!(matches!(three.remark, Some(Remark::JoinedFromGap { others: 1, .. })));
    assert_eq!(absent.at, three.instant);
    assert_eq!((four.local_text().as_str(), four.remark), ("2026-03-08T04:00:00-04:00", None));
}

#[test]
fn shift_moves_by_the_width_of_the_gap_and_keeps_the_order() {
    let shift = policies(DstGap::Shift, DstOverlap::First);
    let fired = fires_with("0,30,45 2,3 * * *", NEW_YORK, "2026-03-08", shift);
    let expected = ["2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00", "2026-03-08T03:45:00-04:00"];
    assert_eq!(fired, expected);
    let fired = fires_with("15,45 2 * * *", NEW_YORK, "2026-03-08", shift);
    assert_eq!(fired, ["2026-03-08T03:15:00-04:00", "2026-03-08T03:45:00-04:00"]);
    let fired = fires_with("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", shift);
    assert_eq!(fired, ["2026-10-04T02:45:00+11:00"]);
}

#[test]
fn skip_policy_omits_missing_time_and_explains_it() {
    let skip = policies(DstGap::Skip, DstOverlap::First);
    let steps = steps_on(&cron("30 2,9 * * *"), &zone(NEW_YORK), &skip, "2026-03-08");
    let [Step::Absent(absent), Step::Fires(firing)] = steps[..] else { panic!("{steps:?}") };
    assert_eq!(absent.reason.to_string(), "local time does not exist: clocks go forward from 02:00 to 03:00");
    assert_eq!(firing.local_text(), "2026-03-08T09:30:00-04:00");
}

#[test]
fn repeated_local_time_fires_second_or_both_by_policy() {
    let second = policies(DstGap::After, DstOverlap::Second);
    let fired = fires_with("30 1 * * *", NEW_YORK, "2026-11-01", second);
    assert_eq!(fired, ["2026-11-01T01:30:00-05:00"]);

    let both = policies(DstGap::After, DstOverlap::Both);
    let steps = steps_on(&cron("30 1 * * *"), &zone(NEW_YORK), &both, "2026-11-01");
    let [Step::Fires(first), Step::Fires(second)] = steps[..] else { panic!("{steps:?}") };
    assert_eq!(first.occurrence.to_string(), "2026-11-01T01:30:00");
    assert_eq!(second.occurrence.to_string(), "2026-11-01T01:30:00 (second)");
    assert_eq!(first.occurrence.civil_ms(), second.occurrence.civil_ms());
    assert_eq!(first.remark.unwrap().to_string(), "first of two: clocks go back from 02:00 to 01:00");
    assert_eq!(second.remark.unwrap().to_string(), "second of two: clocks go back from 02:00 to 01:00");
    assert_eq!(second.instant.duration_since(first.instant).as_hours(), 1);
}

#[test]
fn interval_pattern_ignores_clock_change_policies() {
    for gap in [DstGap::After, DstGap::Shift, DstGap::Skip] {
        let policies = policies(gap, DstOverlap::First);
        assert!(fires_with("*/30 2 * * *", NEW_YORK, "2026-03-08", policies).is_empty());
        let twice = fires_with("*/30 1 * * *", NEW_YORK, "2026-11-01", policies);
        assert_eq!(
            twice,
            [
                "2026-11-01T01:00:00-04:00",
                "2026-11-01T01:30:00-04:00",
                "2026-11-01T01:00:00-05:00",
                "2026-11-01T01:30:00-05:00",
            ]
        );
    }
    let interval = cron("0 9-17 * * *");
    assert!(!is_fixed_time(&interval) && is_fixed_time(&cron("0 9,17 * * *")));
    let next = next_after(&interval, &zone("UTC"), &DstPolicies::default(), at("2026-01-01T10:30:00Z"));
    assert_eq!(next.unwrap().occurrence, CalendarName::Instant(at("2026-01-01T11:00:00Z")));
}

#[test]
fn gap_that_ends_at_midnight_moves_to_next_date() {
    // Nuuk: 23:00 to 24:00 of Saturday, 2024-03-30, do not exist.
    let nuuk = zone("America/Nuuk");
    let pattern = cron("30 23 * * *");
    let next = next_after(&pattern, &nuuk, &DstPolicies::default(), at("2024-03-30T20:00:00Z")).unwrap();
    assert_eq!(next.local_text(), "2024-03-31T00:00:00-01:00");
    assert_eq!(next.occurrence.to_string(), "2024-03-30T23:30:00");
}

#[test]
fn daily_is_the_same_as_its_cron_expression() {
    let weekdays = "mon-fri".parse().unwrap();
    let daily = Pattern::compile(&When::Daily { hour: 9, minute: 30, weekdays }).unwrap();
    assert!(is_fixed_time(&daily));
    let (from, to) = (at("2026-03-01T00:00:00Z"), at("2026-04-01T00:00:00Z"));
    let berlin = zone("Europe/Berlin");
    let steps = steps_between(&daily, &berlin, &DstPolicies::default(), from, to);
    let same = cron("30 9 * * 1-5");
    assert_eq!(steps, steps_between(&same, &berlin, &DstPolicies::default(), from, to));
    assert_eq!(steps.len(), 22);
}

#[test]
fn period_counts_elapsed_time_despite_clock_changes() {
    let anchor_ms = at("2026-03-08T05:30:00Z").as_millisecond();
    let hourly = Pattern::compile(&When::Every { period_ms: 3_600_000, anchor_ms }).unwrap();
    let next = |after: &str| {
        let firing = next_after(&hourly, &zone(NEW_YORK), &DstPolicies::default(), at(after)).unwrap();
        firing.local_text()
    };
    assert_eq!(next("2020-01-01T00:00:00Z"), "2026-03-08T00:30:00-05:00");
    assert_eq!(next("2026-03-08T05:30:00Z"), "2026-03-08T01:30:00-05:00");
    assert_eq!(next("2026-03-08T06:30:00Z"), "2026-03-08T03:30:00-04:00");
    assert_eq!(next("2026-03-08T06:29:59.999Z"), "2026-03-08T01:30:00-05:00");
}

#[test]
fn single_instant_fires_once() {
    let instant = at("2026-05-01T10:00:00.250Z");
    let once = Pattern::compile(&When::At { instant_ms: instant.as_millisecond() }).unwrap();
    let next = |after| next_after(&once, &zone("Asia/Tokyo"), &DstPolicies::default(), after);
    let firing = next(at("2026-05-01T10:00:00Z")).unwrap();
    assert_eq!((firing.instant, firing.occurrence), (instant, CalendarName::Instant(instant)));
    assert_eq!(next(instant), None);
}

#[test]
fn leap_day_on_a_monday_is_found() {
    let next = next_after(
        &cron("0 12 29 2 +mon"),
        &zone("America/Santiago"),
        &DstPolicies::default(),
        at("2026-01-01T00:00:00Z"),
    );
    assert_eq!(next.unwrap().local_text(), "2044-02-29T12:00:00-03:00");
}

#[test]
fn stored_schedule_decodes_to_the_same() {
    for when in [
        When::At { instant_ms: -1 },
        When::Every { period_ms: 60_000, anchor_ms: 7 },
        When::Daily { hour: 23, minute: 59, weekdays: Weekdays::EVERY_DAY },
        When::Cron { expression: "0 9 * * mon-fri".into() },
    ] {
        let bytes = postcard::to_stdvec(&when).unwrap();
        assert_eq!(postcard::from_bytes::<When>(&bytes).unwrap(), when);
        assert!(Pattern::compile(&when).is_ok());
        assert!(!when.to_string().is_empty());
    }
}
