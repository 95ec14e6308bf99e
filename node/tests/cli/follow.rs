//! `--watch`: prints changes, survives lost nodes, and ends with Ctrl-C or `--timeout`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reveille_proto::admin::v1;
use serde_json::Value;
use tonic::{Code, Status};

use crate::fake::{Answer, Fake, one, refusal, unknown};
use crate::terminal::{command, reveille, until};

fn schedules(of: &[(&str, v1::ScheduleState)]) -> Answer {
    let one_of = |(name, state): &(&str, v1::ScheduleState)| v1::Schedule {
        name: (*name).to_owned(),
        state: (*state).into(),
        ..v1::Schedule::default()
    };
    one(v1::ListSchedulesResponse { schedules: of.iter().map(one_of).collect(), ..Default::default() })
}

/// Starts a fake node whose list stays the same for two requests; then a row is changed, one added and one removed.
async fn changing() -> Fake {
    use v1::ScheduleState::{Active, Paused};
    let looks = AtomicUsize::new(0);
    Fake::start(move |method, _| match method {
        "ListSchedules" if looks.fetch_add(1, Ordering::SeqCst) < 2 => schedules(&[("a", Active), ("b", Active)]),
        "ListSchedules" => schedules(&[("b", Paused), ("c", Active)]),
        _ => Err(unknown(method)),
    })
    .await
}

#[tokio::test]
async fn watched_list_prints_one_object_per_changed_row() {
    let fake = changing().await;
    let all = |stdout: &str, _: &str| stdout.lines().count() >= 5;
    let ended = fake.followed("schedule list --watch -o json", all).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), ""), "{ended:?}");
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let reported: Vec<String> =
        lines.iter().map(|row| format!("{} {} {}", row["name"], row["state"], row["change"])).collect();
    let reported: Vec<String> =
        reported.iter().map(|words| words.replace('"', "").replace("SCHEDULE_STATE_", "").to_lowercase()).collect();
    assert_eq!(
        reported,
        ["a active added", "b active added", "b paused changed", "c active added", "a active gone"],
        "and nothing for looks that saw the same"
    );
    assert!(fake.methods().len() >= 3);
}

#[tokio::test]
async fn watched_table_without_screen_is_printed_at_each_change() {
    let fake = changing().await;
    let ended = fake.followed("schedule list --watch", |stdout, _| stdout.contains("\nc ")).await;
    let names = |table: &str| -> Vec<String> {
        table.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    let tables: Vec<Vec<String>> = ended.stdout.split("\n\n").map(names).collect();
    assert_eq!(tables, [["NAME", "a", "b"], ["NAME", "b", "c"]], "{ended:?}");
    assert!(!ended.stdout.contains('\u{1b}'), "nothing is drawn over");
}

#[tokio::test]
async fn watched_object_is_printed_again_when_it_changed() {
    let looks = AtomicUsize::new(0);
    let fake = Fake::start(move |method, _| {
        let sent = u32::try_from(looks.fetch_add(1, Ordering::SeqCst) / 2).expect("few");
        let counts = Some(v1::RunCounts { pending: 0, sent, ..v1::RunCounts::default() });
        match method {
            "GetRun" => {
                one(v1::GetRunResponse { run: Some(v1::Run { counts, ..v1::Run::default() }), freshness: None })
            }
            _ => Err(unknown(method)),
        }
    })
    .await;
    let ended = fake.followed("run show r1.0 --watch -o json", |stdout, _| stdout.lines().count() >= 3).await;
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let sent: Vec<u64> = lines.iter().filter_map(|line| line["counts"]["sent"].as_u64()).collect();
    assert!(sent.starts_with(&[0, 1, 2]), "{sent:?}");
    assert!(lines.iter().all(|line| line.get("change").is_none()), "it is one object, and it changed");
}

/// Starts a fake node that answers `looks` requests and then breaks every connection.
async fn mortal(looks: usize) -> Fake {
    let left = Arc::new(AtomicUsize::new(0));
    Fake::start(move |_, _| match left.fetch_add(1, Ordering::SeqCst) {
        looked if looked < looks => schedules(&[("a", v1::ScheduleState::Active)]),
        // `tonic` reports a broken connection with these words.
        _ => Err(Status::unavailable("broken pipe")),
    })
    .await
}

#[tokio::test]
async fn when_a_node_is_lost_the_next_one_goes_on_and_stderr_says_so() {
    let (first, second) = (mortal(2).await, mortal(usize::MAX).await);
    let endpoints = format!("{},{}", first.address(), second.address());
    let words = ["--endpoint", &endpoints, "schedule", "list", "--watch", "-o", "json"];
    let ended = until(&mut command(&words), |_, _| second.methods().len() >= 3).await;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(ended.stderr, format!("{} is lost; going on with {}\n", first.address(), second.address()));
    assert_eq!(ended.stdout.lines().count(), 1, "nothing changed");
    assert_eq!(first.methods().len(), 3, "it is not asked at each look");
}

#[tokio::test]
async fn unanswered_watch_retries_and_first_read_fails_as_usual() {
    let looks = AtomicUsize::new(0);
    let fake = Fake::start(move |_, _| match looks.fetch_add(1, Ordering::SeqCst) {
        1 => Err(refusal(Code::InvalidArgument, "INVALID_FIELD", "no")),
        _ => schedules(&[("a", v1::ScheduleState::Active)]),
    })
    .await;
    let ended = fake.reveille("schedule list --watch -o json --timeout 10m").await;
    assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(2), Some("INVALID_FIELD")), "no look will pass");

    let looks = AtomicUsize::new(0);
    let fake = Fake::start(move |_, _| match looks.fetch_add(1, Ordering::SeqCst) {
        // The client itself repeats the request for five seconds.
        1..9 => Err(Status::unavailable("broken pipe")),
        _ => schedules(&[("a", v1::ScheduleState::Active)]),
    })
    .await;
    let again = |_: &str, stderr: &str| stderr.contains("answers again");
    let ended = fake.followed("schedule list --watch -o name", again).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), "a\n"), "{ended:?}");
    let said: Vec<&str> = ended.stderr.lines().collect();
    assert!(said.iter().any(|line| line.ends_with("asking again every second")), "{said:?}");
    assert!(said.iter().any(|line| line.ends_with("answers again")), "{said:?}");

    let ended = reveille("--endpoint 127.0.0.1:1 schedule list --watch").await;
    assert_eq!(ended.code, Some(5), "{ended:?}");
}

#[tokio::test]
async fn ctrl_c_ends_it_with_130_and_without_a_word() {
    let fake = mortal(usize::MAX).await;
    let address = fake.address().to_string();
    let words = ["--endpoint", &address, "schedule", "list", "--watch", "-o", "name"];
    let ended = until(&mut command(&words), |stdout, _| stdout == "a\n").await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), ""));
}

#[tokio::test]
async fn time_limit_ends_it_with_0() {
    // The timeout is long enough for the first request on any machine.
    let ended = mortal(usize::MAX).await.reveille("schedule list --watch -o name --timeout 15s").await;
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "a\n", ""), "{ended:?}");
}

#[tokio::test]
async fn manifest_is_not_watched() {
    for line in ["schedule show a --manifest --watch", "relay show a --manifest --watch"] {
        assert_eq!(reveille(line).await.code, Some(2), "{line}");
    }
}
