//! Jitter: each run opens at the time within its window that was shown before.

use prost_types::Duration;
use reveille_proto::admin::v1::{
    Daily, GetScheduleRequest, Instant, ListRunsRequest, Policies, Run, ScheduleBody, When, when,
};

use super::clock::{DAY, HOUR, advance_clock, at, now};
use super::harness::{Node, creation, node_with_test_clock, yearly};

async fn next(node: &Node) -> Vec<Instant> {
    let request = GetScheduleRequest { name: "spread".to_owned(), ..GetScheduleRequest::default() };
    let shown = node.schedules().get_schedule(request).await.expect("a schedule").into_inner();
    shown.schedule.expect("a schedule").next_instants
}

async fn runs(node: &Node) -> Vec<Run> {
    node.runs().list_runs(ListRunsRequest::default()).await.expect("runs").into_inner().runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jittered_occurrence_opens_as_shown_and_is_named_by_instant() {
    let node = node_with_test_clock("").await;
    let day = (now(&node).await / DAY + 2) * DAY;
    advance_clock(&node, at(day)).await;
    let nine = when::Pattern::Daily(Daily { hour: 9, minute: 0, days: String::new() });
    let policies = Policies { jitter: Some(Duration { seconds: 2 * HOUR, nanos: 0 }), ..Policies::default() };
    let body = ScheduleBody {
        timing: Some(When { pattern: Some(nine) }),
        policies: Some(policies),
        ..yearly("spread", &["ada@example.net"])
    };
    let created = node.schedules().create_schedule(creation(body)).await.expect("created").into_inner();
    let shown = created.schedule.expect("a schedule").next_instants;
    assert_eq!(shown, next(&node).await);
    for (number, instant) in shown.iter().take(3).enumerate() {
        let due = instant.time.expect("an instant");
        let opens = instant.open_time.expect("a place");
        assert!((due.seconds..due.seconds + 2 * HOUR).contains(&opens.seconds), "{instant:?}");
        advance_clock(&node, at(opens.seconds - 1)).await;
        assert_eq!((runs(&node).await.len(), node.sink.accepted_count()), (number, number as u64), "not before");
        advance_clock(&node, at(opens.seconds + 1)).await;
        assert_eq!(node.sink.accepted_count(), number as u64 + 1);
        assert!(runs(&node).await.iter().any(|run| run.due_time == Some(due)), "by its instant: {due:?}");
    }
    assert_eq!(next(&node).await.first(), shown.get(3), "the rest is as it was shown");
    node.stop().await;
}
