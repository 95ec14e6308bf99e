//! At most one email within a `min_gap`, however many clients trigger runs, and however often (P17).

use std::sync::Arc;

use prost_types::Duration;
use reveille_proto::admin::v1::{
    Daily, Instant, InstantRemarkKind, Overlap, Policies, Run, ScheduleBody, TriggerScheduleRequest,
    UpdateScheduleRequest, When, when,
};
use tokio::task::JoinSet;
use tonic::Status;

use super::clock::{DAY, HOUR, MINUTE, advance_clock, at, by, now};
use super::harness::{Node, creation, node_with_test_clock, reason, yearly};

const TRIGGERS: usize = 1_000;

async fn trigger(node: &Node, name: &str, request_id: &str) -> Result<Run, Status> {
    let (name, request_id) = (name.to_owned(), request_id.to_owned());
    let request = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
    Ok(node.schedules().trigger_schedule(request).await?.into_inner().run.expect("a run"))
}

/// Returns the result of a trigger's dry run.
async fn would_trigger(node: &Node, name: &str) -> Result<Run, Status> {
    let (name, request_id) = (name.to_owned(), "look".to_owned());
    let request = TriggerScheduleRequest { name, request_id, validate_only: true, ..TriggerScheduleRequest::default() };
    Ok(node.schedules().trigger_schedule(request).await?.into_inner().run.expect("a run"))
}

async fn with_gap(node: &Node, name: &str, hours: i64, overlap: Overlap) {
    let min_gap = Some(Duration { seconds: hours * HOUR, nanos: 0 });
    let policies = Policies { min_gap, overlap: overlap.into(), ..Policies::default() };
    let body = ScheduleBody { policies: Some(policies), ..yearly(name, &["ada@example.net"]) };
    node.schedules().create_schedule(creation(body)).await.expect("created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gap_of_twenty_hours_refuses_at_19_59_and_allows_at_20() {
    let node = node_with_test_clock("").await;
    with_gap(&node, "report", 20, Overlap::BufferOne).await;
    let first = trigger(&node, "report", "first").await.expect("triggered");
    advance_clock(&node, by(MINUTE)).await;
    assert_eq!(node.sink.accepted_count(), 1);
    let due = first.due_time.expect("an instant");
    advance_clock(&node, at(due.seconds + 19 * HOUR + 59 * MINUTE)).await;
    for request_id in ["early", "earlier"] {
        let refused = trigger(&node, "report", request_id).await.expect_err("a minute too early");
        assert_eq!(reason(&refused).1, "INSIDE_GAP");
        let allowed = jiff::Timestamp::from_second(due.seconds + 20 * HOUR).expect("an instant").to_string();
        let (run, minute) = (&first.run, &allowed[..16]);
        assert!(refused.message().contains(&format!("the last one in run {run}")), "{refused:?}");
        assert!(refused.message().contains(&format!("allowed at {minute}")), "{refused:?}");
    }
    // A dry run gives the same error message.
    let said = trigger(&node, "report", "late").await.expect_err("too early").message().to_owned();
    assert_eq!(would_trigger(&node, "report").await.expect_err("too early").message(), said);
    // A repeated request returns the first run.
    assert_eq!(trigger(&node, "report", "first").await.expect("the same").run, first.run);
    advance_clock(&node, at(due.seconds + 20 * HOUR + i64::from(due.nanos > 0))).await;
    would_trigger(&node, "report").await.expect("it would open");
    // A refused trigger is not an occurrence, so its request id can be used again.
    trigger(&node, "report", "early").await.expect("twenty hours later");
    advance_clock(&node, by(MINUTE)).await;
    assert_eq!(node.sink.accepted_count(), 2);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_triggers_at_once_are_one_email() {
    let node = Arc::new(node_with_test_clock("").await);
    // With one request id, no `min_gap` is needed: all triggers are the same occurrence.
    for (name, overlap, gap, ids) in [
        ("same-id", Overlap::Allow, 0, 1),
        ("beside", Overlap::Allow, 20, TRIGGERS),
        ("in-turn", Overlap::BufferOne, 20, TRIGGERS),
    ] {
        let before = node.sink.accepted_count();
        with_gap(&node, name, gap, overlap).await;
        let mut requested = JoinSet::new();
        for number in 0..TRIGGERS {
            let node = Arc::clone(&node);
            requested.spawn(async move { trigger(&node, name, &format!("{name}-{}", number % ids)).await });
        }
        let answers = requested.join_all().await;
        let mut runs: Vec<String> = answers.iter().flatten().map(|run| run.run.clone()).collect();
        runs.sort();
        runs.dedup();
        assert!(!runs.is_empty() && (ids > 1 || runs.len() == 1), "{name}: {runs:?}");
        // A recipient that waited for another run's claim is tried again with the next wave.
        advance_clock(&node, by(2 * MINUTE)).await;
        assert_eq!(node.sink.accepted_count() - before, 1, "{name}");
        for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            // The gap forbids it, or a run beside it that is not finished.
            let reason = reason(refused).1;
            assert!(["INSIDE_GAP", "RUN_OPEN"].contains(&reason.as_str()), "{name}: {refused:?}");
        }
    }
    Arc::into_inner(node).expect("no request is left").stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daily_schedule_sends_once_a_day_whatever_is_invoked() {
    let node = node_with_test_clock("").await;
    let day = (now(&node).await / DAY + 2) * DAY;
    advance_clock(&node, at(day + 8 * HOUR)).await;
    let nine = when::Pattern::Daily(Daily { hour: 9, minute: 0, days: String::new() });
    let body = ScheduleBody { timing: Some(When { pattern: Some(nine) }), ..yearly("morning", &["ada@example.net"]) };
    let created = node.schedules().create_schedule(creation(body)).await.expect("created").into_inner();
    let gap = |schedule: &reveille_proto::admin::v1::Schedule| {
        schedule.policies.as_ref().and_then(|policies| policies.min_gap).map(|gap| gap.seconds)
    };
    assert_eq!(gap(&created.schedule.expect("a schedule")), Some(20 * HOUR), "the default of a daily one");
    advance_clock(&node, at(day + 10 * HOUR)).await;
    for hour in 10..20 {
        advance_clock(&node, at(day + hour * HOUR + MINUTE)).await;
        trigger(&node, "morning", &format!("at {hour}").replace(' ', "-")).await.expect_err("it had its email today");
    }
    assert_eq!(node.sink.accepted_count(), 1);
    advance_clock(&node, at(day + DAY + 10 * HOUR)).await;
    assert_eq!(node.sink.accepted_count(), 2, "and the next day again");

    // A change of the pattern does not change the gap. Its effect is shown with the next instants.
    let update = |policies, pattern, paths: &[&str]| UpdateScheduleRequest {
        schedule: Some(ScheduleBody {
            name: "morning".to_owned(),
            timing: Some(When { pattern: Some(pattern) }),
            policies: Some(policies),
            ..ScheduleBody::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }),
        ..UpdateScheduleRequest::default()
    };
    let chosen =
        |hours| Policies { min_gap: Some(Duration { seconds: hours * HOUR, nanos: 0 }), ..Policies::default() };
    let hourly = || when::Pattern::Cron("0 * * * *".to_owned());
    let is_inside = |next: &&Instant| next.remarks.iter().any(|one| one.kind() == InstantRemarkKind::InsideMinGap);
    let inside = |next: &[Instant]| next.iter().filter(is_inside).count();
    for (policies, paths, expected, apart) in [
        (Policies::default(), &["timing"][..], 20, 10),
        (chosen(2), &["policies.min_gap"], 2, 5),
        (chosen(0), &["policies.min_gap"], 0, 0),
    ] {
        let request = update(policies, hourly(), paths);
        let shown = node.schedules().update_schedule(request).await.expect("changed").into_inner();
        let shown = shown.schedule.expect("a schedule");
        assert_eq!(
            (gap(&shown), inside(&shown.next_instants)),
            (Some(expected * HOUR), apart),
            "{paths:?}: {:?}",
            shown.next_instants
        );
    }
    node.stop().await;
}
