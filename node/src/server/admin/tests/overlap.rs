//! The overlap policies (P16): instants that are due while the previous run is not finished.

use reveille_proto::admin::v1::{
    BackfillScheduleRequest, CancelRunRequest, CancelledRun, CatchUp, ExplainRequest, ExplainedEvent,
    ExplainedEventKind as Kind, GetScheduleRequest, HistoryEntry, HistoryOutcome, ListRunsRequest,
    ListScheduleHistoryRequest, Overlap, Policies, Run, RunCause, RunState, ScheduleBody, TriggerScheduleRequest,
    UnopenedReason, When, when,
};

use super::clock::{HOUR, MINUTE, advance_clock, by, jump};
use super::harness::{Node, creation, node, node_with_test_clock, reason, yearly};
use crate::cli::wording::explained;

fn every(seconds: i64) -> Option<When> {
    let period = Some(prost_types::Duration { seconds, nanos: 0 });
    let every = reveille_proto::admin::v1::Every { period, anchor_time: None };
    Some(When { pattern: Some(when::Pattern::Every(every)) })
}

/// Creates a schedule that fires every minute into a pool without a relay.
async fn stuck(node: &Node, name: &str, overlap: Overlap) {
    let body = ScheduleBody {
        timing: every(MINUTE),
        policies: Some(Policies { overlap: overlap.into(), ..Policies::default() }),
        pool: "no-relay-here".to_owned(),
        ..yearly(name, &["ada@example.net"])
    };
    node.schedules().create_schedule(creation(body)).await.expect("created");
}

async fn history(node: &Node, name: &str) -> Vec<HistoryEntry> {
    let request = ListScheduleHistoryRequest { name: name.to_owned(), ..ListScheduleHistoryRequest::default() };
    node.schedules().list_schedule_history(request).await.expect("a history").into_inner().entries
}

/// Returns the outcomes of a schedule's instants, latest first.
async fn outcomes(node: &Node, name: &str) -> Vec<HistoryOutcome> {
    history(node, name).await.iter().map(HistoryEntry::outcome).collect()
}

async fn waits_for(node: &Node, name: &str) -> String {
    let request = GetScheduleRequest { name: name.to_owned(), ..GetScheduleRequest::default() };
    let shown = node.schedules().get_schedule(request).await.expect("a schedule").into_inner();
    shown.schedule.expect("a schedule").waits_for
}

async fn runs(node: &Node, name: &str) -> Vec<Run> {
    let request = ListRunsRequest { schedule: name.to_owned(), ..ListRunsRequest::default() };
    let mut runs = node.runs().list_runs(request).await.expect("runs").into_inner().runs;
    runs.sort_by_key(|run| run.opened_index);
    runs
}

/// Returns the events of a run's first recipient.
async fn explanation(node: &Node, run: &str) -> Vec<ExplainedEvent> {
    let (run, recipient) = (run.to_owned(), "#0".to_owned());
    let request = ExplainRequest { run, recipient, ..ExplainRequest::default() };
    node.runs().explain(request).await.expect("a story").into_inner().events
}

async fn trigger(node: &Node, name: &str) -> Result<Run, tonic::Status> {
    let (name, request_id) = (name.to_owned(), format!("{name}-by-hand"));
    let request = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
    Ok(node.schedules().trigger_schedule(request).await?.into_inner().run.expect("a run"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_overlap_policy_treats_next_instant_as_documented() {
    let node = node_with_test_clock("").await;
    for (name, overlap) in [
        ("buffering", Overlap::BufferOne),
        ("skipping", Overlap::Skip),
        ("beside", Overlap::Allow),
        ("cancelling", Overlap::CancelOther),
    ] {
        stuck(&node, name, overlap).await;
    }
    // Three or four instants are due. Each schedule opens the first one.
    advance_clock(&node, by(3 * MINUTE + 30)).await;
    use HistoryOutcome::{Coalesced, Fired, Skipped, Waiting};

    let first = runs(&node, "buffering").await.remove(0);
    assert_eq!(outcomes(&node, "buffering").await, [Waiting, Fired]);
    assert_eq!(waits_for(&node, "buffering").await, first.run);
    let waits = history(&node, "buffering").await.remove(0);
    assert_eq!((&waits.waited_for, waits.missed), (&first.run, false));
    let refused = trigger(&node, "buffering").await.expect_err("a second one beside it");
    assert_eq!(reason(&refused).1, "RUN_OPEN");
    assert!(refused.message().contains(&format!("run {} of the schedule is not finished", first.run)));

    let skipped = history(&node, "skipping").await;
    assert_eq!(skipped.last().map(HistoryEntry::outcome), Some(Fired));
    assert!(skipped.len() >= 3 && skipped.iter().rev().skip(1).all(|entry| entry.outcome() == Skipped));
    assert_eq!(skipped[0].reason(), UnopenedReason::Overlap, "{skipped:?}");
    assert!(trigger(&node, "skipping").await.is_err());

    let beside = runs(&node, "beside").await;
    assert!(beside.len() >= 3 && beside.iter().all(|run| run.state() == RunState::Open), "{beside:?}");
    assert!(trigger(&node, "beside").await.is_ok());

    let cancelling = runs(&node, "cancelling").await;
    let states: Vec<RunState> = cancelling.iter().map(Run::state).collect();
    let (last, former) = states.split_last().expect("runs");
    assert!(*last == RunState::Open && former.len() >= 2, "{states:?}");
    assert!(former.iter().all(|state| *state == RunState::Cancelled), "{states:?}");
    // The policy and the new run are named wherever the cancelled run is shown.
    let later = &cancelling[1].run;
    assert_eq!(&cancelling[0].cancelled_by, later);
    assert_eq!(history(&node, "cancelling").await.last().map(|entry| &*entry.cancelled_by == later), Some(true));
    let events = explanation(&node, &cancelling[0].run).await;
    let why = format!("overlap: {later} opened, and overlap is cancel_other");
    assert_eq!(events.last().map(|event| (event.kind(), explained(event))), Some((Kind::Cancelled, why)));
    trigger(&node, "cancelling").await.expect("it makes way for itself");

    // When the run is over, the latest waiting instant opens at once, and the others are recorded as skipped.
    let cancel = CancelRunRequest { run: first.run.clone(), ..CancelRunRequest::default() };
    node.runs().cancel_run(cancel).await.expect("cancelled");
    advance_clock(&node, by(1)).await;
    let outcomes = outcomes(&node, "buffering").await;
    assert_eq!(outcomes.last_chunk(), Some(&[Coalesced, Fired]), "{outcomes:?}");
    let opened = runs(&node, "buffering").await;
    assert_eq!((opened.len(), opened[1].state()), (2, RunState::Open), "{opened:?}");
    // The instant was on time, but opened late because of the run that it waited for.
    assert_eq!((opened[1].cause(), &opened[1].waited_for), (RunCause::Due, &first.run));
    let known = history(&node, "buffering").await;
    let entry = known.iter().find(|entry| entry.run == opened[1].run).expect("it is in the history");
    assert!(entry.waited_for == first.run && entry.late.is_some(), "{entry:?}");
    let detail = explained(&explanation(&node, &opened[1].run).await[0]);
    assert!(detail.ends_with(&format!("; overlap: waited for {}", first.run)), "{detail}");
    node.stop().await;
}

/// Instants that an outage missed are late, also when they wait for a run: each has both reasons.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_instant_stays_late_while_it_waits_for_a_run() {
    let node = node_with_test_clock("").await;
    let policies = Policies { catch_up: CatchUp::All.into(), ..Policies::default() };
    let body = ScheduleBody { timing: every(HOUR), policies: Some(policies), ..yearly("hourly", &["ada@example.net"]) };
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let next =
        |schedule: reveille_proto::admin::v1::Schedule| schedule.next_instants[0].time.expect("an instant").seconds;
    let request = GetScheduleRequest { name: "hourly".to_owned(), ..GetScheduleRequest::default() };
    let shown = node.schedules().get_schedule(request).await.expect("a schedule").into_inner();
    let first = next(shown.schedule.expect("a schedule"));
    jump(&node, super::clock::at(first + 2 * HOUR + 10 * MINUTE)).await;
    advance_clock(&node, by(1)).await;
    let runs = runs(&node, "hourly").await;
    let causes: Vec<(RunCause, RunState)> = runs.iter().map(|run| (run.cause(), run.state())).collect();
    assert_eq!(causes, [(RunCause::CatchUp, RunState::Finished); 3], "{runs:?}");
    assert_eq!(node.sink.accepted_count(), 3);
    let waited: Vec<&str> = runs.iter().map(|run| run.waited_for.as_str()).collect();
    assert_eq!(waited, ["", &runs[0].run, &runs[1].run]);
    let mut entries = history(&node, "hourly").await;
    entries.reverse();
    for (place, (entry, run)) in entries.iter().zip(&runs).enumerate() {
        assert_eq!((&entry.run, entry.cause(), &entry.waited_for), (&run.run, RunCause::CatchUp, &run.waited_for));
        assert_eq!(entry.waited_for.is_empty(), place == 0, "{entry:?}");
    }
    let detail = explained(&explanation(&node, &runs[1].run).await[0]);
    assert!(detail.contains("missed and caught up; it was due"), "{detail}");
    node.stop().await;
}

/// A dry run checks instants in batches of 64, and these are 96.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_inside_its_own_gap_opens_what_its_dry_run_counts() {
    let node = node("").await;
    let body = ScheduleBody {
        timing: every(60 * MINUTE),
        policies: Some(Policies {
            min_gap: Some(prost_types::Duration { seconds: 180 * MINUTE, nanos: 0 }),
            ..Policies::default()
        }),
        ..yearly("hourly", &["ada@example.net"])
    };
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let at = |text: &str| {
        let instant: jiff::Timestamp = text.parse().expect("an instant");
        Some(prost_types::Timestamp { seconds: instant.as_second(), nanos: 0 })
    };
    let request = |validate_only| BackfillScheduleRequest {
        name: "hourly".to_owned(),
        start_time: at("2024-03-01T00:00:00Z"),
        end_time: at("2024-03-04T23:30:00Z"),
        validate_only,
        ..BackfillScheduleRequest::default()
    };
    for validate_only in [true, false] {
        let answer = node.schedules().backfill_schedule(request(validate_only)).await.expect("an answer").into_inner();
        assert_eq!((answer.opened, answer.inside_gap), (32, 64), "dry run: {validate_only}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trigger_with_cancel_other_names_the_runs_that_it_cancels() {
    let node = node_with_test_clock("").await;
    stuck(&node, "urgent", Overlap::CancelOther).await;
    let former = trigger(&node, "urgent").await.expect("opened").run;
    let ask = |request_id: &str, validate_only| TriggerScheduleRequest {
        name: "urgent".to_owned(),
        request_id: request_id.to_owned(),
        validate_only,
        ..TriggerScheduleRequest::default()
    };
    let expected = [CancelledRun { run: former.clone(), cancelled: 1, claimed: 0 }];
    for (validate_only, what) in [(true, "dry run"), (false, "answer"), (false, "repeated answer")] {
        let answer = node.schedules().trigger_schedule(ask("second", validate_only)).await.expect(what).into_inner();
        assert_eq!((answer.cancelled.as_slice(), answer.cancelled_more), (expected.as_slice(), 0), "{what}");
    }
    let last = node.schedules().trigger_schedule(ask("third", false)).await.expect("opened").into_inner();
    assert_eq!(last.cancelled.len(), 1, "a run that was cancelled before is not named again: {:?}", last.cancelled);
    node.stop().await;
}
