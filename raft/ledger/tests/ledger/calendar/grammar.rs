//! Patterns that are refused at creation, and whether the error says what to do next.

use reveille_ledger::calendar::{Field, Pattern, PatternError, Weekdays, When};

use super::support::{compile, cron, is_fixed_time};

fn refusal(expression: &str) -> PatternError {
    match compile(expression) {
        Ok(_) => panic!("{expression} was accepted"),
        Err(error) => error,
    }
}

#[test]
fn pattern_without_any_date_is_refused() {
    for expression in ["0 9 31 2 *", "0 9 30 2 *", "0 9 31 4,6,9,11 *", "0 9 29 2 +2#1"] {
        let error = refusal(expression);
        assert_eq!(error, PatternError::NeverFires { expression: expression.to_string() });
        assert!(error.to_string().contains("never fires"));
    }
}

#[test]
fn pattern_with_rare_date_is_accepted() {
    for expression in ["0 9 29 2 *", "0 9 29 2 +mon", "0 9 31 2 1", "59 23 31 12 *"] {
        cron(expression);
    }
}

#[test]
fn seconds_and_years_are_refused() {
    for expression in ["0 0 9 * * *", "*/10 * * * * *"] {
        assert_eq!(refusal(expression), PatternError::SecondsNotAllowed);
    }
    for expression in ["0 9 * * * 2027", "0 9 * * * 2026-2028", "0 0 9 * * * *", "0 0 9 * * * 2027"] {
        assert_eq!(refusal(expression), PatternError::YearsNotAllowed);
    }
}

#[test]
fn another_number_of_fields_is_refused() {
    for blank in ["", "   ", "\t\n"] {
        assert_eq!(refusal(blank), PatternError::Empty);
    }
    for (expression, found) in [("9", 1), ("0 9 * *", 4), ("0 0 9 * * * * *", 8)] {
        assert_eq!(refusal(expression), PatternError::FieldCount { found });
    }
    let long = "0,".repeat(400);
    assert_eq!(refusal(&long), PatternError::TooLong { bytes: 800 });
}

#[test]
fn syntax_error_names_field_and_place() {
    for (expression, field, position) in [
        ("60 9 * * *", Field::Minute, 1),
        ("0 24 * * *", Field::Hour, 3),
        (" 0  9 32 * *", Field::DayOfMonth, 7),
        ("0 9 0 * *", Field::DayOfMonth, 5),
        ("0 9 * 13 *", Field::Month, 7),
        ("0 9 * * 8", Field::Weekday, 9),
        ("0 9 * * fri-mon", Field::Weekday, 9),
        ("0 9 * * L", Field::Weekday, 9),
        ("0 9 * * 5#6", Field::Weekday, 9),
        ("0 9 * * monday", Field::Weekday, 9),
        ("0 9 * mon *", Field::Month, 7),
        ("0 9 * * jan", Field::Weekday, 9),
        ("0 9 * * 1mon", Field::Weekday, 9),
        ("0 9 15W5 * *", Field::DayOfMonth, 5),
        ("0 9 5#1 * *", Field::DayOfMonth, 5),
        ("0,,30 9 * * *", Field::Minute, 1),
        ("0, 9 * * *", Field::Minute, 1),
        ("*/0 9 * * *", Field::Minute, 1),
        ("5/15 9 * * *", Field::Minute, 1),
        ("/15 9 * * *", Field::Minute, 1),
        ("30-10 9 * * *", Field::Minute, 1),
        ("-1 9 * * *", Field::Minute, 1),
        ("? 9 * * *", Field::Minute, 1),
        ("H 9 * * *", Field::Minute, 1),
        ("jan 9 * * *", Field::Minute, 1),
        ("0 +9 * * *", Field::Hour, 3),
        ("0 9 * * ++1", Field::Weekday, 9),
        ("0 9 * * \u{661}", Field::Weekday, 9),
        ("0 9 * * lundi", Field::Weekday, 9),
        ("0\u{a0}9 * * * *", Field::Minute, 1),
    ] {
        match refusal(expression) {
            PatternError::Syntax { field: named, position: place, .. } => {
                assert_eq!((named, place), (field, position), "{expression}");
            }
            other => panic!("{expression}: {other}"),
        }
    }
}

#[test]
fn syntax_error_lists_allowed_values_of_field() {
    assert_eq!(
        refusal("0 24 * * *").to_string(),
        "hour field `24` (position 3): number out of bounds; it takes 0-23, lists `9,17`, ranges `9-17` and steps `*/2` or `8-18/2`"
    );
    assert!(refusal("0 9 * mon *").to_string().contains("`MON` has no meaning here"));
}

#[test]
fn nicknames_are_known_and_others_named() {
    for nickname in ["@hourly", "@daily", "@midnight", "@Weekly", " @monthly ", "@yearly", "@ANNUALLY"] {
        cron(nickname);
    }
    for nickname in ["@reboot", "@", "@daily 5", "@every 5m"] {
        let error = refusal(nickname);
        assert_eq!(error, PatternError::UnknownNickname { nickname: nickname.to_string() });
        assert!(error.to_string().contains("@daily"));
    }
}

#[test]
fn only_stars_steps_and_ranges_in_minute_and_hour_make_an_interval() {
    for expression in ["* * * * *", "*/15 * * * *", "0 9-17 * * *", "0-10 9 * * *", "0 */2 * * *", "@hourly"] {
        assert!(!is_fixed_time(&cron(expression)), "{expression}");
    }
    for expression in ["0 9 * * 1-5", "0,30 9,17 */2 * *", "@daily", "0 0 1-7 * *"] {
        assert!(is_fixed_time(&cron(expression)), "{expression}");
    }
}

#[test]
fn periods_times_and_instants_out_of_range_are_refused() {
    let refusal = |when: When| Pattern::compile(&when).err();
    let every = |period_ms| When::Every { period_ms, anchor_ms: 0 };
    assert_eq!(refusal(every(0)), Some(PatternError::ZeroPeriod));
    for period_ms in [1, 999, u64::MAX] {
        assert_eq!(refusal(every(period_ms)), Some(PatternError::PeriodOutOfRange { period_ms }));
    }
    for (hour, minute) in [(24, 0), (0, 60), (255, 255)] {
        let when = When::Daily { hour, minute, weekdays: Weekdays::EVERY_DAY };
        assert_eq!(refusal(when), Some(PatternError::TimeOfDay { hour, minute }));
    }
    let never = When::Daily { hour: 9, minute: 0, weekdays: Weekdays::of(&[]) };
    assert_eq!(refusal(never), Some(PatternError::NoWeekday));
    for instant_ms in [i64::MIN, i64::MAX] {
        let out_of_range = Some(PatternError::InstantOutOfRange { instant_ms });
        assert_eq!(refusal(When::At { instant_ms }), out_of_range);
        assert_eq!(refusal(When::Every { period_ms: 1_000, anchor_ms: instant_ms }), out_of_range);
    }
}
