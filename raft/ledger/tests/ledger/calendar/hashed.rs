//! `H` in cron fields: a name always has the same value, names spread over the whole field, and invalid forms are
//! refused with what to write instead.

use std::collections::BTreeSet;

use reveille_ledger::calendar::{Field, Pattern, PatternError, When};

use super::support::is_fixed_time;

/// Returns the expression with the values of `H` for a name; checks that it compiles.
fn written_out(expression: &str, name: &str) -> String {
    let when = When::cron(expression, "default", name).unwrap_or_else(|error| panic!("{error}"));
    Pattern::compile(&when).unwrap_or_else(|error| panic!("{when}: {error}"));
    match when {
        When::Hashed { written, expression: out } if *written == *expression => out.to_string(),
        other => panic!("{other:?}"),
    }
}

fn fields(expression: &str, name: &str) -> Vec<String> {
    written_out(expression, name).split(' ').map(str::to_string).collect()
}

fn names() -> impl Iterator<Item = String> {
    (0..2_000).map(|number| format!("schedule-{number}"))
}

/// Recorded values: a build with another hash would show a value that differs from the stored one.
#[test]
fn hashed_place_of_name_is_stable() {
    let places = [
        ("default", "backups", "H H(0-7) * * *"),
        ("default", "backups", "H/15 * * * *"),
        ("default", "backups", "H(0-29)/10 H H H H"),
        ("acme", "backups", "h h * * +H"),
        ("default", "news", "H,H(30-59) 9 * * mon-fri"),
    ];
    let places = places.map(|(tenant, name, expression)| {
        When::cron(expression, tenant, name).map_or_else(|error| error.to_string(), |when| when.to_string())
    });
    let recorded = [
        "cron H H(0-7) * * * (7 7 * * *)",
        "cron H/15 * * * * (1-59/15 * * * *)",
        "cron H(0-29)/10 H H H H (1-29/10 21 6 2 4)",
        "cron h h * * +H (18 17 * * +0)",
        "cron H,H(30-59) 9 * * mon-fri (59,46 9 * * mon-fri)",
    ];
    assert_eq!(places, recorded);
}

#[test]
fn expression_without_h_is_unchanged() {
    for expression in ["0 9 * * thu", "@daily", "30 2 * mar Thu#2", "0 9 L * *"] {
        let plain = When::Cron { expression: expression.into() };
        assert_eq!(When::cron(expression, "default", "x"), Ok(plain));
    }
}

#[test]
fn names_spread_over_the_whole_of_a_field_and_no_further() {
    for (place, least, most) in [(0, 0, 59), (1, 0, 23), (2, 1, 28), (3, 1, 12), (4, 0, 6)] {
        let value = |name: String| fields("H H H H H", &name)[place].parse::<u32>().unwrap();
        let values: BTreeSet<u32> = names().map(value).collect();
        assert_eq!(values, (least..=most).collect(), "field {place}");
    }
    let hours: BTreeSet<String> = names().map(|name| fields("0 H(22-23) * * *", &name)[1].clone()).collect();
    assert_eq!(hours.into_iter().collect::<Vec<_>>(), ["22", "23"]);
}

#[test]
fn fields_and_items_are_drawn_by_themselves() {
    let both = |name: String| fields("H(0-22) H(0-22) * * *", &name);
    let equal = names().filter(|name| both(name.clone())[0] == both(name.clone())[1]).count();
    assert!((40..150).contains(&equal), "{equal} of 2,000 names have equal minute and hour");
    let tenant = |tenant: &str| When::cron("H H * * *", tenant, "x").unwrap();
    assert_ne!(tenant("one"), tenant("two"));
}

/// The four times an hour stay four, whatever the first one is, and clock changes do not matter.
#[test]
fn hashed_step_begins_within_its_first_period() {
    for name in names() {
        let minute = fields("H/15 * * * *", &name)[0].clone();
        let start: u32 = minute.strip_suffix("-59/15").and_then(|start| start.parse().ok()).expect("a start");
        assert!(start < 15, "{minute}");
        let steps = When::cron("H/15 * * * *", "default", &name).unwrap();
        assert!(!is_fixed_time(&Pattern::compile(&steps).unwrap()));
        let once = When::cron("H H * * *", "default", &name).unwrap();
        assert!(is_fixed_time(&Pattern::compile(&once).unwrap()));
    }
    let all: BTreeSet<String> = names().map(|name| fields("H(50-59)/10 * * * *", &name)[0].clone()).collect();
    assert_eq!(all, (50..60).map(|minute| minute.to_string()).collect(), "one value, and no step");
}

#[test]
fn invalid_hash_expression_is_refused_with_advice() {
    for (expression, field, position, words) in [
        ("H/0 9 * * *", Field::Minute, 1, "a step of 0 has no next value"),
        ("H/75 9 * * *", Field::Minute, 1, "a step of 75 is more than the 60 values; write `H`"),
        ("0 H(0-7)/9 * * *", Field::Hour, 3, "a step of 9 is more than the 8 values; write `H(0-7)`"),
        ("0 H(7-0) * * *", Field::Hour, 3, "a range goes from low to high, within 0 to 23"),
        ("0 9 H(0-5) * *", Field::DayOfMonth, 5, "within 1 to 31"),
        ("0 9 * * H(1-7)", Field::Weekday, 9, "within 0 to 6"),
        ("0 9 * * H(mon-fri)", Field::Weekday, 9, "`H` stands alone, with a range as H(0-7)"),
        ("H-5 9 * * *", Field::Minute, 1, "`H` stands alone"),
        ("0-H 9 * * *", Field::Minute, 1, "`H` has no meaning here"),
        ("*/H 9 * * *", Field::Minute, 1, "`H` has no meaning here"),
        ("H(5) 9 * * *", Field::Minute, 1, "`H` stands alone"),
        ("H() 9 * * *", Field::Minute, 1, "`H` stands alone"),
        ("H/ 9 * * *", Field::Minute, 1, "`H` stands alone"),
        ("HH 9 * * *", Field::Minute, 1, "`H` stands alone"),
        ("0 9 HL * *", Field::DayOfMonth, 5, "`H` stands alone"),
        ("0 9 * * H#2", Field::Weekday, 9, "`H` stands alone"),
        ("H 99 * * *", Field::Hour, 3, "it takes 0-23"),
    ] {
        let taken = When::cron(expression, "default", "x").and_then(|when| Pattern::compile(&when));
        let Err(error) = taken else { panic!("{expression} was taken") };
        let place = match &error {
            PatternError::Syntax { field, position, .. } => (*field, *position),
            other => panic!("{expression}: {other}"),
        };
        assert_eq!(place, (field, position), "{expression}: {error}");
        assert!(error.to_string().contains(words), "{expression}: {error}");
    }
    assert_eq!(
        When::cron("H H 31 2 *", "default", "x"),
        Err(PatternError::NeverFires { expression: "H H 31 2 *".to_string() })
    );
}

/// `H` needs a schedule's name. A crontab line and a preview without `--name` have none.
#[test]
fn hash_expression_without_name_is_refused() {
    let error = Pattern::compile(&When::Cron { expression: "0 H * * *".into() }).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("hour field `H` (position 3): `H` is drawn from a schedule's tenant and name"));
}
