//! Labels: set, changed and removed by flags and documents, and used as selectors.

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, refusal_of, unknown};
use crate::terminal::{command, run};

const WHAT: &str = "--daily 09:00 --zone UTC --to a@example.com --sender b@example.com --subject s --inline-text t";

/// Starts a fake cluster that has a schedule with labels.
async fn labelled() -> Fake {
    Fake::start(|method, bytes| {
        let schedule = v1::Schedule {
            name: "morning".into(),
            labels: [("team".to_owned(), "ops".to_owned()), ("tier".to_owned(), String::new())].into(),
            ..v1::Schedule::default()
        };
        match method {
            "CreateSchedule" => {
                let requested = v1::CreateScheduleRequest::decode(bytes).expect("a request");
                let labels = requested.schedule.expect("a body").labels;
                one(v1::CreateScheduleResponse {
                    schedule: Some(v1::Schedule { labels, ..schedule }),
                    created: true,
                    ..Default::default()
                })
            }
            "UpdateSchedule" => {
                let changed =
                    v1::Schedule { labels: [("team".to_owned(), "books".to_owned())].into(), ..schedule.clone() };
                one(v1::UpdateScheduleResponse {
                    schedule: Some(changed),
                    former: Some(schedule),
                    ..Default::default()
                })
            }
            "GetSchedule" => one(v1::GetScheduleResponse { schedule: Some(schedule), ..Default::default() }),
            "ListSchedules" => {
                let selector = v1::ListSchedulesRequest::decode(bytes).expect("a request").selector;
                if selector.contains(' ') {
                    return Err(refusal_of("INVALID_FIELD", "selector", "no key of a label"));
                }
                one(v1::ListSchedulesResponse { schedules: vec![schedule], ..Default::default() })
            }
            "ListRuns" => one(v1::ListRunsResponse::default()),
            _ => Err(unknown(method)),
        }
    })
    .await
}

#[tokio::test]
async fn schedule_is_created_with_labels_and_shows_them() {
    let fake = labelled().await;
    let ended = fake.reveille(&format!("schedule create morning {WHAT} --label team=ops --label tier= -o json")).await;
    assert_eq!(ended.json()["schedule"]["labels"], json!({ "team": "ops", "tier": "" }));
    let bare = fake.reveille(&format!("schedule create morning {WHAT} -o json")).await;
    assert_eq!(bare.json()["schedule"]["labels"], json!({}), "zeros are present");
    let shown = fake.reveille("schedule show morning").await.stdout;
    assert!(shown.lines().any(|line| line.starts_with("labels") && line.ends_with("team=ops, tier=")), "{shown}");
}

#[tokio::test]
async fn bad_label_is_refused_before_any_request() {
    let fake = labelled().await;
    for (labels, why) in [
        ("--label team", "KEY=VALUE"),
        ("--label te/am=a", "is not the key of a label"),
        ("--label team=a/b", "is not the value of a label"),
        ("--label team=a --label team=b", "given twice"),
    ] {
        let ended = fake.reveille(&format!("schedule create morning {WHAT} {labels}")).await;
        assert_eq!(ended.code, Some(2), "{labels}: {ended:?}");
        assert!(ended.stderr.contains(why), "{labels}: {}", ended.stderr);
    }
    for line in ["schedule update morning --label team", "schedule list --selector=", "run list -l="] {
        assert_eq!(fake.reveille(line).await.code, Some(2), "{line}");
    }
    assert_eq!(fake.methods(), [""; 0]);
}

#[tokio::test]
async fn update_names_each_label_and_leaves_the_others() {
    let fake = labelled().await;
    let ended = fake.reveille("schedule update morning --label team=books --label tier- -o json").await;
    assert!(ended.stderr.contains("labels.team: ops → books"), "{}", ended.stderr);
    assert!(ended.stderr.contains("labels.tier: \"\" → none"), "{}", ended.stderr);
    let requested: Vec<v1::UpdateScheduleRequest> = fake.requests("UpdateSchedule");
    for request in requested {
        assert_eq!(request.update_mask.expect("a mask").paths, ["labels.team", "labels.tier"]);
        assert_eq!(request.schedule.expect("a body").labels, [("team".to_owned(), "books".to_owned())].into());
    }
    fake.reveille("schedule update morning --clear label").await;
    let cleared: Vec<v1::UpdateScheduleRequest> = fake.requests("UpdateSchedule");
    let last = cleared.last().expect("asked");
    assert_eq!(last.update_mask.as_ref().map(|mask| mask.paths.as_slice()), Some(&["labels".to_owned()][..]));
}

#[tokio::test]
async fn lists_are_chosen_by_the_cluster() {
    let fake = labelled().await;
    assert_eq!(fake.reveille("schedule list -l team=ops,!old -o name").await.stdout, "morning\n");
    assert_eq!(fake.reveille("run list --selector env!=dev").await.code, Some(0));
    let requested: Vec<v1::ListSchedulesRequest> = fake.requests("ListSchedules");
    assert_eq!(requested.first().map(|request| request.selector.as_str()), Some("team=ops,!old"));
    let requested: Vec<v1::ListRunsRequest> = fake.requests("ListRuns");
    assert_eq!(requested.first().map(|request| request.selector.as_str()), Some("env!=dev"));
    let address = fake.address().to_string();
    let ended = run(&mut command(&["--endpoint", &address, "schedule", "list", "-l", "te am", "-o", "json"])).await;
    assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(2), Some("--selector")), "{ended:?}");
}

/// Starts a fake cluster with three schedules: two are active and one is paused. `bad` cannot be paused.
async fn three() -> Fake {
    Fake::start(|method, bytes| match method {
        "ListSchedules" => {
            let selector = v1::ListSchedulesRequest::decode(bytes).expect("a request").selector;
            let one_of = |(name, state): (&str, v1::ScheduleState)| v1::Schedule {
                name: name.into(),
                state: state.into(),
                ..v1::Schedule::default()
            };
            use v1::ScheduleState::{Active, Paused};
            let all = [("good", Active), ("rested", Paused), ("bad", Active)].map(one_of);
            let schedules = if selector == "team=none" { Vec::new() } else { all.into() };
            one(v1::ListSchedulesResponse { schedules, ..Default::default() })
        }
        "PauseSchedule" => {
            let request = v1::PauseScheduleRequest::decode(bytes).expect("a request");
            assert_eq!(request.reason, "look");
            match request.name.as_str() {
                "bad" => Err(refusal_of("NOT_POSSIBLE", "name", "it is done")),
                _ => one(v1::PauseScheduleResponse::default()),
            }
        }
        "ResumeSchedule" => {
            let request = v1::ResumeScheduleRequest::decode(bytes).expect("a request");
            assert_eq!(request.etag, if request.validate_only { "" } else { "e7" }, "made on what was shown");
            let schedule = Some(v1::Schedule { etag: "e7".into(), ..v1::Schedule::default() });
            one(v1::ResumeScheduleResponse { schedule, opens_count: 2, explained_count: 5, ..Default::default() })
        }
        _ => Err(unknown(method)),
    })
    .await
}

#[tokio::test]
async fn labelled_schedules_are_paused_after_their_names_were_shown() {
    let fake = three().await;
    let requested = fake.reveille("schedule pause -l team=ops --reason look").await;
    assert_eq!(requested.code, Some(2), "cannot ask: {requested:?}");
    assert!(requested.stderr.contains("Pause 2 schedules: good, bad?"), "{}", requested.stderr);
    assert!(requested.stderr.contains("1 schedule of 3 left as they are: not active"), "{}", requested.stderr);
    let looked = fake.reveille("schedule pause -l team=ops --reason look --dry-run -o json").await;
    assert_eq!((looked.code, &looked.json()[1]["outcome"]), (Some(0), &"would_pause".into()));
    assert_eq!(looked.json()[1]["opensCount"], 0, "programs get the same fields for a pause and a resume");
    let table = fake.reveille("schedule pause -l team=ops --reason look --dry-run").await.stdout;
    assert_eq!(table, "NAME  OUTCOME          REASON\ngood  would be paused  -\nbad   would be paused  -\n");
    let resumed = fake.reveille("schedule resume -l team=ops --dry-run").await.stdout;
    assert!(resumed.starts_with("NAME    OUTCOME           OPENS  EXPLAINED  REASON\n"), "{resumed}");
    assert!(!fake.methods().contains(&"PauseSchedule".to_owned()), "nothing was changed yet");

    let ended = fake.reveille("schedule pause -l team=ops --reason look --yes -o json -q").await;
    assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(7), Some("PARTLY_DONE")), "{ended:?}");
    let rows = ended.json();
    assert_eq!((&rows[0]["name"], &rows[0]["outcome"]), (&"good".into(), &"paused".into()));
    assert_eq!((&rows[1]["outcome"], &rows[1]["reason"]), (&"failed".into(), &"it is done".into()));
}

#[tokio::test]
async fn resume_of_several_shows_what_each_missed() {
    let fake = three().await;
    let requested = fake.reveille("schedule resume -l team=ops").await;
    let words = "Resume 1 schedule: rested (2 runs for what it missed, 5 explained)?";
    assert!(requested.code == Some(2) && requested.stderr.contains(words), "{requested:?}");
    let ended = fake.reveille("schedule resume -l team=ops --yes -o json -q").await;
    assert_eq!((ended.code, &ended.json()[0]["outcome"]), (Some(0), &"resumed".into()), "{ended:?}");
}

#[tokio::test]
async fn selector_without_match_is_not_found() {
    let fake = three().await;
    let ended = fake.reveille("schedule pause -l team=none --yes -o json").await;
    assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(3), Some("--selector")), "{ended:?}");
    for line in ["schedule pause", "schedule pause good -l team=ops", "schedule resume good -l team=ops"] {
        assert_eq!(fake.reveille(line).await.code, Some(2), "{line}");
    }
}

#[tokio::test]
async fn list_shows_labels_if_there_are_any_and_the_columns_that_are_named() {
    let answer = v1::ListSchedulesResponse {
        schedules: vec![v1::Schedule {
            name: "a".into(),
            labels: [("team".into(), "ops".into())].into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let fake = Fake::answering("ListSchedules", answer).await;
    let chosen = fake.reveille("schedule list -l team=ops").await;
    assert!(chosen.stdout.contains("LABELS") && chosen.stdout.contains("team=ops"), "{chosen:?}");
    let bare = v1::ListSchedulesResponse { schedules: vec![v1::Schedule::default()], ..Default::default() };
    let bare = Fake::answering("ListSchedules", bare).await;
    assert!(!bare.reveille("schedule list").await.stdout.contains("LABELS"));
    let named = fake.reveille("schedule list --columns labels,Name").await;
    assert_eq!(named.stdout, "LABELS    NAME\nteam=ops  a\n", "{named:?}");
    let unknown = fake.reveille("schedule list --columns NAME,SIZE").await;
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""), "{unknown:?}");
    assert!(unknown.stderr.contains("NAME,STATE,WHEN,ZONE,NEXT,RECIPIENTS,LABELS"), "{unknown:?}");
    let refused = fake.reveille("schedule list --columns name -o csv").await;
    assert!(refused.code == Some(2) && refused.stderr.contains("--columns"), "{refused:?}");
    let json = fake.reveille("schedule list -l team=ops -o json").await.json();
    assert_eq!(json, fake.reveille("schedule list -o json").await.json(), "the objects are the same");
}

#[tokio::test]
async fn pause_of_no_active_schedule_prints_only_the_count() {
    let paused = v1::Schedule { name: "a".into(), state: v1::ScheduleState::Paused.into(), ..Default::default() };
    let answer = v1::ListSchedulesResponse { schedules: vec![paused], ..Default::default() };
    let fake = Fake::answering("ListSchedules", answer).await;
    let ended = fake.reveille("schedule pause -l team=ops --yes").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(ended.stderr, "1 schedule of 1 left as they are: not active\n");
}
