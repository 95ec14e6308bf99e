//! `schedule update`: it sends only the given fields, shows the changes, and applies them to the version that was read.

use prost::Message;
use reveille_proto::admin::v1;

use crate::fake::{Fake, one, refusal, unknown};

/// Starts a fake cluster with a schedule that has priority 1 and etag v1. A change makes it 7 and v2.
async fn schedule() -> Fake {
    Fake::start(|method, bytes| {
        if method != "UpdateSchedule" {
            return Err(unknown(method));
        }
        let request = v1::UpdateScheduleRequest::decode(bytes).expect("a request");
        if !matches!(request.etag.as_str(), "" | "v1") {
            return Err(refusal(tonic::Code::Aborted, "ETAG_MISMATCH", "its etag is v1"));
        }
        let next = |local: &str| {
            let kind = v1::InstantRemarkKind::InsideMinGap.into();
            let remarks = vec![v1::InstantRemark { kind, run: "r9.0".into(), ..Default::default() }];
            vec![v1::Instant { local: local.to_owned(), remarks, ..v1::Instant::default() }]
        };
        let former = v1::Schedule {
            name: "morning".into(),
            etag: "v1".into(),
            priority: 1,
            next_instants: next("2026-03-02T09:00"),
            ..v1::Schedule::default()
        };
        let schedule =
            v1::Schedule { priority: 7, etag: "v2".into(), next_instants: next("2026-03-02T08:30"), ..former.clone() };
        one(v1::UpdateScheduleResponse {
            schedule: Some(schedule),
            former: Some(former),
            opens_count: 1,
            ..v1::UpdateScheduleResponse::default()
        })
    })
    .await
}

fn requested(fake: &Fake) -> Vec<v1::UpdateScheduleRequest> {
    fake.requests("UpdateSchedule")
}

fn paths(request: &v1::UpdateScheduleRequest) -> Vec<&str> {
    request.update_mask.iter().flat_map(|mask| &mask.paths).map(String::as_str).collect()
}

#[tokio::test]
async fn change_is_shown_and_made_on_the_etag_that_was_read() {
    let fake = schedule().await;
    let ended = fake.reveille("schedule update morning --priority 7 -o json").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("priority: 1 → 7"), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 instant of the former timing, due by now"), "{}", ended.stderr);
    let json = ended.json();
    let priorities = (&json["former"]["priority"], &json["schedule"]["priority"]);
    assert_eq!((priorities, &json["schedule"]["etag"]), ((&1.into(), &7.into()), &"v2".into()));
    let requested = requested(&fake);
    let how: Vec<(bool, &str)> =
        requested.iter().map(|requested| (requested.validate_only, requested.etag.as_str())).collect();
    assert_eq!(how, [(true, ""), (false, "v1")]);
    assert!(requested.iter().all(|requested| paths(requested) == ["priority"]), "{requested:?}");
}

#[tokio::test]
async fn dry_run_of_update_prints_old_and_new_instants_only() {
    let fake = schedule().await;
    let ended = fake.reveille("schedule update morning --priority 7 --dry-run").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = ended.stdout.lines().find(|line| line.contains("09:00")).expect("the instants");
    assert!(line.contains("2026-03-02T09:00") && line.contains("2026-03-02T08:30"), "{}", ended.stdout);
    assert!(line.contains("inside the min gap of r9.0: "), "what the new one means: {}", ended.stdout);
    assert_eq!(requested(&fake).iter().filter(|requested| !requested.validate_only).count(), 0);
}

#[tokio::test]
async fn stale_etag_ends_with_4_before_anything_is_changed() {
    let fake = schedule().await;
    let ended = fake.reveille("schedule update morning --priority 7 --etag v0").await;
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("its etag is v1"), "{}", ended.stderr);
    assert_eq!(fake.methods().len(), 1);
}

#[tokio::test]
async fn each_flag_names_its_own_field_and_defaults_name_none() {
    let fake = schedule().await;
    let line = "schedule update morning --daily 08:30 --days mon-fri --zone Europe/Berlin --max-attempts 3 \
                --catch-up one --min-gap 18h --jitter none --to ann@example.com --sender me@example.com --variable a=b --clear end-time,html";
    assert_eq!(fake.reveille(line).await.code, Some(0));
    let requested = requested(&fake);
    let mut named = paths(requested.first().expect("asked"));
    named.sort_unstable();
    let expected = [
        "audience",
        "content.html",
        "content.sender",
        "content.variables",
        "end_time",
        "policies.catch_up",
        "policies.jitter",
        "policies.max_attempts",
        "policies.min_gap",
        "timing.daily.days",
        "timing.daily.hour",
        "timing.daily.minute",
        "zone",
    ];
    assert_eq!(named, expected);
}

#[tokio::test]
async fn update_without_change_or_with_conflicting_flags_sends_no_request() {
    let fake = schedule().await;
    for line in ["", "--dry-run", "--etag v1", "--daily 09:00 --cron @daily", "--to a@x.org --recipients f.csv"] {
        let ended = fake.reveille(&format!("schedule update morning {line}")).await;
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
    }
    assert_eq!(fake.methods().len(), 0);
}

#[tokio::test]
async fn rows_that_are_left_out_are_named() {
    let fake = Fake::start(|method, _| match method {
        "UpdateSchedule" => one(v1::UpdateScheduleResponse::default()),
        "TriggerSchedule" => one(v1::TriggerScheduleResponse::default()),
        _ => Err(unknown(method)),
    })
    .await;
    let people = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(people.path(), "email\nann@example.com\npostmaster\n").expect("written");
    for verb in ["update", "trigger"] {
        let line = format!("schedule {verb} morning --recipients {}", people.path().display());
        let refused = fake.reveille(&line).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("so nothing was done") && refused.stderr.contains("--skip-bad-rows"));
        let ended = fake.reveille(&format!("{line} --skip-bad-rows")).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("left out: line 3: "), "{ended:?}");
    }
}

#[tokio::test]
async fn people_read_a_change_once_and_instants_only_where_they_move() {
    let fake = schedule().await;
    let moved = fake.reveille("schedule update morning --priority 7").await;
    let both = format!("{}{}", moved.stdout, moved.stderr);
    assert_eq!(both.matches("priority: 1 → 7").count(), 1, "{moved:?}");
    assert!(moved.stdout.contains("NEXT, OLD"), "{moved:?}");

    let next = vec![v1::Instant { local: "2026-03-02T09:00".to_owned(), ..v1::Instant::default() }];
    let former = v1::Schedule { name: "morning".into(), priority: 1, next_instants: next, ..v1::Schedule::default() };
    let schedule = Some(v1::Schedule { priority: 7, ..former.clone() });
    let answer = v1::UpdateScheduleResponse { schedule, former: Some(former), ..Default::default() };
    let stays = Fake::answering("UpdateSchedule", answer).await.reveille("schedule update morning --priority 7").await;
    assert_eq!((stays.stdout.as_str(), stays.stderr.as_str()), ("priority: 1 → 7\n", ""), "{stays:?}");
}

#[tokio::test]
async fn empty_etag_is_no_etag() {
    let fake = schedule().await;
    let mut command = crate::terminal::command(&[
        "--endpoint",
        &fake.address().to_string(),
        "schedule",
        "update",
        "morning",
        "--priority",
        "7",
        "--etag",
        "",
    ]);
    let ended = crate::terminal::run(&mut command).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--etag"), "{}", ended.stderr);
    assert_eq!(fake.methods(), [""; 0], "nothing was asked");
}

#[tokio::test]
async fn timing_part_alone_is_named_alone() {
    let fake = schedule().await;
    for (line, expected) in [
        ("--daily 10:00", vec!["timing.daily.hour", "timing.daily.minute"]),
        ("--days sat", vec!["timing.daily.days"]),
        ("--every 48h", vec!["timing.every.period"]),
        ("--anchor-time 2026-11-24T09:00:00Z", vec!["timing.every.anchor_time"]),
        ("--cron @daily", vec!["timing"]),
        ("--clear days", vec!["timing.daily.days"]),
    ] {
        let ended = fake.reveille(&format!("schedule update morning {line} --dry-run")).await;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        assert_eq!(requested(&fake).last().map(paths), Some(expected), "{line}");
    }
    let anchor = prost_types::Timestamp { seconds: 1_795_510_800, nanos: 0 };
    let period = Some(prost_types::Duration { seconds: 48 * 3_600, nanos: 0 });
    let every = v1::when::Pattern::Every(v1::Every { period, anchor_time: Some(anchor) });
    let schedule = v1::Schedule { timing: Some(v1::When { pattern: Some(every) }), ..v1::Schedule::default() };
    let answer = v1::GetScheduleResponse { schedule: Some(schedule), ..Default::default() };
    let shown = Fake::answering("GetSchedule", answer).await.reveille("schedule show morning").await;
    assert!(shown.stdout.contains("every 2d from 2026-11-24T09:00:00Z"), "{shown:?}");
}

#[tokio::test]
async fn change_is_named_as_diff_names_it() {
    let gap = |hours: i64| Some(prost_types::Duration { seconds: hours * 3_600, nanos: 0 });
    let of = |hours, zone: &str| v1::Schedule {
        policies: Some(v1::Policies { min_gap: gap(hours), ..Default::default() }),
        zone: zone.to_owned(),
        audience_hash: format!("{hours}{:062}", 0),
        ..v1::Schedule::default()
    };
    let (former, schedule) = (Some(of(20, "UTC")), Some(of(18, "Asia/Tokyo")));
    let answer = v1::UpdateScheduleResponse { schedule, former, ..Default::default() };
    let fake = Fake::answering("UpdateSchedule", answer).await;
    let shown = fake.reveille("schedule update morning --min-gap 18h --zone Asia/Tokyo").await;
    for line in
        ["policies.minGap: 72000s → 64800s", "zone: UTC → Asia/Tokyo", "audienceHash: 200000000000 → 180000000000"]
    {
        assert!(shown.stdout.lines().any(|shown| shown == line), "{line}: {shown:?}");
    }
}
