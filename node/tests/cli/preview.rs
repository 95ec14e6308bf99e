//! `schedule preview` needs no cluster. It is tested with the calendar's test vectors.

use serde_json::json;

use crate::terminal::{Ended, command, run};

async fn preview(arguments: &[&str]) -> Ended {
    let mut all = vec!["schedule", "preview"];
    all.extend_from_slice(arguments);
    run(&mut command(&all)).await
}

async fn locals(cron: &str, zone: &str, from: &str, count: &str) -> Vec<String> {
    let ended = preview(&["--cron", cron, "--zone", zone, "--from", from, "--count", count, "-o", "json"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let json = ended.json();
    json.as_array().expect("an array").iter().map(|one| one["local"].as_str().expect("a text").to_owned()).collect()
}

#[tokio::test]
async fn it_prints_instants_with_their_local_time_and_a_remark() {
    let from = "2026-03-07T12:00:00Z";
    let zone = "America/New_York";
    let ended = preview(&["--cron", "0 2 * * *", "--zone", zone, "--from", from, "--count", "2", "-o", "json"]).await;
    let remark = json!({
        "kind": "INSTANT_REMARK_KIND_MOVED_AFTER_GAP", "wanted": "2026-03-08T02:00:00", "others": 0, "run": "",
        "earlier": "", "change": {
            "time": "2026-03-08T07:00:00Z", "fromLocal": "2026-03-08T02:00:00", "toLocal": "2026-03-08T03:00:00",
        },
    });
    assert_eq!(
        ended.json(),
        json!([
            {"time": "2026-03-08T07:00:00Z", "local": "2026-03-08T03:00:00-04:00", "remarks": [remark]},
            {"time": "2026-03-09T06:00:00Z", "local": "2026-03-09T02:00:00-04:00", "remarks": []},
        ])
    );
    assert_eq!(ended.stderr, "");
    let table = preview(&["--cron", "0 2 * * *", "--zone", zone, "--from", from, "--count", "2"]).await.stdout;
    let words = "02:00 does not exist that day: clocks go forward from 02:00 to 03:00; moved to the end of the gap";
    assert!(table.contains(words), "{table}");
    let twice =
        ["--cron", "30 1 * * *", "--zone", zone, "--from", "2026-11-01T00:00:00-04:00", "--dst-overlap", "both"];
    let twice = preview(&twice).await.stdout;
    for words in ["first of two: clocks go back from 02:00 to 01:00", "second of two: clocks go back"] {
        assert!(twice.contains(words), "{twice}");
    }
}

#[tokio::test]
async fn vectors_of_the_calendar_hold() {
    for (zone, cron, from, expected) in [
        (
            "America/New_York",
            "30 2,9 * * *",
            "2026-03-08T00:00:00-05:00",
            ["2026-03-08T03:00:00-04:00", "2026-03-08T09:30:00-04:00"],
        ),
        (
            "America/New_York",
            "30 1 * * *",
            "2026-11-01T00:00:00-04:00",
            ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
        ),
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            "2026-10-03T12:00:00Z",
            ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
        ),
        (
            "Africa/Cairo",
            "0 0 * * *",
            "2026-04-23T12:00:00Z",
            ["2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"],
        ),
        ("UTC", "0 9 L * *", "2026-02-01T00:00:00Z", ["2026-02-28T09:00:00+00:00", "2026-03-31T09:00:00+00:00"]),
        ("UTC", "0 9 * * 1", "2026-03-02T09:00:00Z", ["2026-03-09T09:00:00+00:00", "2026-03-16T09:00:00+00:00"]),
    ] {
        assert_eq!(locals(cron, zone, from, "2").await, expected, "{cron} in {zone}, strictly after {from}");
    }
}

#[tokio::test]
async fn quarter_hours_fill_both_days_of_a_change() {
    for from in ["2026-03-08T00:00:00-05:00", "2026-11-01T00:00:00-04:00"] {
        let fired = locals("*/15 * * * *", "America/New_York", from, "96").await;
        assert_eq!(fired.len(), 96, "{from}");
    }
}

#[tokio::test]
async fn policies_of_clock_changes_are_flags() {
    let skip = preview(&[
        "--daily",
        "02:30",
        "--zone",
        "Europe/Berlin",
        "--from",
        "2026-03-28T12:00:00Z",
        "--count",
        "1",
        "--dst-gap",
        "skip",
        "-o",
        "name",
    ])
    .await;
    assert_eq!(skip.stdout, "2026-03-30T00:30:00Z\n");
    assert!(
        skip.stderr.starts_with("no instant for 2026-03-29T02:30:00: local time does not exist"),
        "{}",
        skip.stderr
    );
    let both = preview(&[
        "--daily",
        "02:30",
        "--zone",
        "Europe/Berlin",
        "--from",
        "2026-10-24T12:00:00Z",
        "--count",
        "2",
        "--dst-overlap",
        "both",
        "-o",
        "name",
    ])
    .await;
    assert_eq!(both.stdout, "2026-10-25T00:30:00Z\n2026-10-25T01:30:00Z\n");
}

#[tokio::test]
async fn date_that_does_not_exist_is_explained() {
    let ended = preview(&[
        "--cron",
        "0 9 * * *",
        "--zone",
        "Pacific/Apia",
        "--from",
        "2011-12-29T00:00:00Z",
        "--count",
        "2",
        "-o",
        "name",
    ])
    .await;
    assert_eq!(ended.stdout, "2011-12-29T19:00:00Z\n2011-12-30T19:00:00Z\n");
    assert!(ended.stderr.contains("2011-12-30T09:00:00: date does not exist"), "{}", ended.stderr);
}

#[tokio::test]
async fn days_periods_and_single_instants_are_patterns_too() {
    let days = preview(&[
        "--daily",
        "9:00",
        "--days",
        "sat,sun",
        "--zone",
        "UTC",
        "--from",
        "2026-11-20T00:00:00Z",
        "--count",
        "2",
        "-o",
        "name",
    ])
    .await;
    assert_eq!(days.stdout, "2026-11-21T09:00:00Z\n2026-11-22T09:00:00Z\n");
    let every =
        preview(&["--every", "36h", "--zone", "UTC", "--from", "2026-01-01T00:00:00Z", "--count", "2", "-o", "name"])
            .await;
    assert_eq!(every.stdout, "2026-01-02T12:00:00Z\n2026-01-04T00:00:00Z\n");
    let once = preview(&[
        "--at",
        "2026-12-24T09:00:00+01:00",
        "--zone",
        "UTC",
        "--from",
        "2026-01-01T00:00:00Z",
        "-o",
        "name",
    ])
    .await;
    assert_eq!(once.stdout, "2026-12-24T08:00:00Z\n");
    let past = preview(&[
        "--at",
        "2026-12-24T09:00:00+01:00",
        "--zone",
        "UTC",
        "--from",
        "2027-01-01T00:00:00Z",
        "-o",
        "json",
    ])
    .await;
    assert_eq!((past.code, past.json()), (Some(0), json!([])));
}

#[tokio::test]
async fn impossible_arguments_are_usage_errors_with_next_step() {
    let refused = async |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend_from_slice(&["-o", "json"]);
        let ended = preview(&all).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        ended.error()
    };
    let zone = refused(&["--cron", "0 2 * * *", "--zone", "Europe/Berlni"]).await;
    assert_eq!((zone["reason"].as_str(), zone["field"].as_str()), (Some("UNKNOWN_ZONE"), Some("--zone")));
    assert!(zone["message"].as_str().is_some_and(|text| text.contains("did you mean Europe/Berlin")), "{zone}");
    let never = refused(&["--cron", "0 9 31 2 *", "--zone", "UTC"]).await;
    assert!(never["message"].as_str().is_some_and(|text| text.contains("never fires")), "{never}");
    assert_eq!(never["field"], "--cron");
    let seconds = refused(&["--cron", "0 0 9 * * *", "--zone", "UTC"]).await;
    assert!(seconds["message"].as_str().is_some_and(|text| text.starts_with("seconds are not allowed")), "{seconds}");
    assert_eq!(refused(&["--zone", "UTC"]).await["reason"], "USAGE");
    assert_eq!(refused(&["--cron", "@daily", "--daily", "9:00", "--zone", "UTC"]).await["reason"], "USAGE");
    assert_eq!(refused(&["--cron", "@daily", "--days", "mon", "--zone", "UTC"]).await["reason"], "USAGE");
    assert_eq!(refused(&["--daily", "25:00", "--zone", "UTC"]).await["field"], "--daily <HH:MM>");
}

/// `H` has the same value for the same name in the preview and in the cluster. Without a name it has none.
#[tokio::test]
async fn drawn_place_hangs_on_the_name() {
    let named = |name: &'static str, tenant: &'static str| {
        let zone = ["--zone", "UTC", "--from", "2026-11-20T00:00:00Z", "--count", "1"];
        let what = ["--cron", "H H(0-7) * * *", "--name", name, "--tenant", tenant, "-o", "name"];
        async move { preview(&[what.as_slice(), zone.as_slice()].concat()).await }
    };
    let ours = named("backups", "default").await;
    assert_eq!(ours.stdout, "2026-11-20T07:07:00Z\n");
    assert_eq!(ours.stderr, "H H(0-7) * * * is 7 7 * * * for backups\n");
    assert_eq!(named("backups", "default").await.stdout, ours.stdout);
    assert_ne!(named("backups", "acme").await.stdout, ours.stdout);
    assert_ne!(named("letters", "default").await.stdout, ours.stdout);
    let nameless = preview(&["--cron", "H 9 * * *", "--zone", "UTC", "-o", "json"]).await;
    assert_eq!(nameless.code, Some(2), "{nameless:?}");
    let error = nameless.error();
    assert_eq!(error["message"], "`H` is drawn from a schedule's tenant and name, and no name was given");
    assert!(error["next"].as_str().is_some_and(|next| next.contains("--name NAME")), "{error}");
}

/// Each instant opens within its window, at a place derived from the name. `time` stays unchanged.
#[tokio::test]
async fn jitter_says_when_each_opens() {
    let shown = async |name: &str, window: &str| {
        let when = ["--daily", "09:00", "--zone", "UTC", "--from", "2026-11-20T00:00:00Z", "--count", "20"];
        let what = ["--name", name, "--jitter", window, "-o", "json"];
        let json = preview(&[when.as_slice(), &what].concat()).await.json();
        let of = |one: &serde_json::Value, field: &str| {
            one[field].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()).expect("an instant")
        };
        let places = json.as_array().expect("an array").iter();
        places.map(|one| of(one, "openTime").as_second() - of(one, "time").as_second()).collect::<Vec<i64>>()
    };
    let half_an_hour = shown("morning", "30m").await;
    assert!(half_an_hour.iter().all(|place| (0..1_800).contains(place)), "{half_an_hour:?}");
    let places: std::collections::BTreeSet<_> = half_an_hour.iter().collect();
    assert!(places.len() > 15, "another one each day: {half_an_hour:?}");
    assert_eq!(shown("morning", "30m").await, half_an_hour);
    assert_ne!(shown("evening", "30m").await, half_an_hour);
    let nameless = preview(&["--daily", "9:00", "--zone", "UTC", "--jitter", "5m", "-o", "json"]).await;
    assert_eq!(nameless.code, Some(2));
}

#[tokio::test]
async fn people_get_a_table() {
    let ended = preview(&["--cron", "@daily", "--zone", "UTC", "--from", "2026-01-01T00:00:00Z", "--count", "1"]).await;
    let table =
        "LOCAL                      INSTANT               REMARK\n2026-01-02T00:00:00+00:00  2026-01-02T00:00:00Z\n";
    assert_eq!(ended.stdout, table);
}
