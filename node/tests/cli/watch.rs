//! `run watch`: prints one object for each change, survives lost connections, and ends when nothing is pending.

use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::Value;
use tonic::Code;

use crate::fake::{Fake, refusal, unknown};

fn message(sent: u32) -> Vec<u8> {
    let counts = v1::RunCounts { pending: 2 - sent, sent, ..v1::RunCounts::default() };
    let mut run = v1::Run { run: "r5.0".into(), audience: 2, counts: Some(counts), ..v1::Run::default() };
    run.set_state(if sent == 2 { v1::RunState::Finished } else { v1::RunState::Open });
    v1::WatchRunResponse { run: Some(run) }.encode_to_vec()
}

#[tokio::test]
async fn watch_prints_one_object_a_change_until_nothing_is_pending() {
    let requested = AtomicUsize::new(0);
    let fake = Fake::start(move |method, _| {
        if method != "WatchRun" {
            return Err(unknown(method));
        }
        match requested.fetch_add(1, Ordering::SeqCst) {
            // The stream ends before the run does, because the node stopped.
            0 => Ok(vec![message(0), message(0), message(1)]),
            1 => Err(refusal(Code::Unavailable, "NO_LEADER", "no leader is known")),
            _ => Ok(vec![message(1), message(2)]),
        }
    })
    .await;
    let ended = fake.reveille("run watch r5.0 -o json").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let sent: Vec<u64> = lines.iter().filter_map(|line| line["counts"]["sent"].as_u64()).collect();
    assert_eq!(sent, [0, 1, 2], "what did not change is not repeated");
}

#[tokio::test]
async fn without_a_terminal_people_get_a_line_a_change() {
    let fake = Fake::start(|_, _| Ok(vec![message(1), message(2)])).await;
    let ended = fake.reveille("run watch r5.0").await;
    assert_eq!(ended.stdout, "r5.0 open: 1 of 2, sent 1, pending 1\nr5.0 finished: 2 of 2, sent 2\n");
}

#[tokio::test]
async fn paused_run_shows_its_reason_and_no_rate() {
    let paused = |reason: &str| {
        let counts = v1::RunCounts { pending: 1, sent: 1, ..v1::RunCounts::default() };
        let mut run = v1::Run { run: "r5.0".into(), audience: 2, counts: Some(counts), ..v1::Run::default() };
        run.set_state(v1::RunState::Paused);
        let cause = v1::PauseCause::Operator.into();
        run.pause = Some(v1::Pause { cause, text: reason.to_owned(), ..Default::default() });
        v1::WatchRunResponse { run: Some(run) }.encode_to_vec()
    };
    let first = paused("wrong price in it");
    let fake = Fake::start(move |_, _| Ok(vec![first.clone(), message(2)])).await;
    let ended = fake.reveille("run watch r5.0").await;
    let reported = "r5.0 paused: 1 of 2, sent 1, pending 1; paused: wrong price in it\nr5.0 finished: 2 of 2, sent 2\n";
    assert_eq!(ended.stdout, reported);
}

#[tokio::test]
async fn run_that_goes_on_is_left_when_the_time_is_over() {
    let fake = Fake::start(|_, _| Ok(vec![message(1)])).await;
    let ended = fake.reveille("run watch r5.0 --timeout 15s -o json").await;
    assert_eq!(ended.code, Some(8), "{ended:?}");
    assert_eq!(ended.error()["reason"], "TIMED_OUT");
}

#[tokio::test]
async fn recipients_in_doubt_are_counted_at_the_end_of_watch() {
    let counts = v1::RunCounts { sent: 1_998, in_doubt: 2, ..v1::RunCounts::default() };
    let mut run = v1::Run { run: "r5.0".into(), audience: 2_000, counts: Some(counts), ..v1::Run::default() };
    run.set_state(v1::RunState::Finished);
    let last = v1::WatchRunResponse { run: Some(run) }.encode_to_vec();
    let fake = Fake::start(move |_, _| Ok(vec![last.clone()])).await;
    let ended = fake.reveille("run watch r5.0").await;
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), "finished, 2 in doubt: reveille in-doubt list --run r5.0\n")
    );
}
