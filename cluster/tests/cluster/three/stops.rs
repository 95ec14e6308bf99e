//! A graceful stop leaves nothing behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_cluster::process::lease::{LEASE, MARGIN};
use reveille_ledger::calendar::When;
use reveille_ledger::command::{Command, NextInstant, ScheduleCreate};
use reveille_ledger::ids::OccurrenceName;
use reveille_ledger::policy::{InDoubt, Policies};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{RecipientState, ScheduleTiming};

use super::cluster::*;
use super::reconciliation::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_node_leaves_no_claims_and_leader_hands_over() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (other, last) = ((leads + 1) % 3, (leads + 2) % 3);
    // Slow enough that the node still gets claims while it stops.
    open(&cluster, leads, 400, 40).await;
    until("all nodes send", || (0..3).all(|index| accepts_of(&cluster, index) > 2).then_some(())).await;

    let node = cluster.nodes[other].id;
    assert!(cluster.stop_node(other).await, "it leaves nothing open");
    assert!(!is_over(cluster.nodes[leads].context()), "the run goes on");
    assert_eq!(revoked_claims(cluster.nodes[leads].context()), 0, "what it gave back was never in doubt");
    until("the leader sees it too", || claimed_by(cluster.nodes[leads].context(), node).is_empty().then_some(())).await;
    let leader_node = cluster.nodes[leads].id;
    // A quorum of three needs two nodes: the first one returns before the leader stops.
    cluster.restart(other).await;
    assert_eq!(crashes_of(cluster.nodes[leads].context(), node), 0, "P12: a stop is no crash");
    assert!(cluster.stop_node(leads).await, "nor does the leader");
    cluster.leader().await;

    let context = cluster.nodes[last].context();
    assert!(claimed_by(context, leader_node).is_empty());
    until("everything is sent", || is_over(context).then_some(())).await;
    assert_eq!(count(context, RecipientState::Sent), 400);
    assert_eq!(revoked_claims(context), 0, "a stop leaves no doubt, at no time");
    assert_consistent(&cluster, 400).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_node_stops_at_once() {
    let mut cluster = Cluster::start().await;
    let other = (cluster.leader().await + 1) % 3;
    let asked = Instant::now();
    assert!(cluster.stop_node(other).await, "it leaves nothing open");
    assert!(asked.elapsed() < LEASE, "it waits for no lease: {:?}", asked.elapsed());
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_waits_for_answer_longer_than_a_lease() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let other = (leads + 1) % 3;
    let node = cluster.nodes[other].id;
    let mut hold = cluster.hold_a_mail_of(other);
    open(&cluster, leads, 200, 0).await;
    let held = hold.next(STEP_TIMEOUT).await.expect("it sends");
    let answer = async move {
        tokio::time::sleep(LEASE + MARGIN + Duration::from_secs(2)).await;
        held.release()
    };
    let (clean, released) = tokio::join!(cluster.stop_node(other), answer);
    assert!(released, "its answer is still waited for");
    assert!(clean, "it leaves nothing open");
    let leader = cluster.nodes[leads].context();
    until("everything is sent", || is_all_sent(leader, 200).then_some(())).await;
    assert_eq!(revoked_claims(leader), 0, "P9: its recipients stay claimed while the node asks");
    cluster.restart(other).await;
    assert_eq!(crashes_of(cluster.nodes[leads].context(), node), 0, "P12: a stop is no crash");
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}

/// Returns a run of one recipient, due in `in_ms`. If the recipient is in doubt, it is assumed to be sent.
fn assumed_if_in_doubt(name: &str, in_ms: i64) -> Command {
    let Command::ScheduleCreate(create) = schedule(1) else { unreachable!("it is a create") };
    let due = SystemClock.wall().plus_ms(in_ms);
    Command::ScheduleCreate(Box::new(ScheduleCreate {
        name: name.into(),
        timing: ScheduleTiming::new(When::At { instant_ms: due.0 }, "UTC"),
        next: Some(NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }),
        policies: Policies { in_doubt: InDoubt::AssumeSent, ..Policies::default() },
        // Has priority over the run that keeps all nodes busy.
        priority: 9,
        ..*create
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_node_gets_no_claims_that_are_then_assumed() {
    const RUNS: i64 = 30;
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let other = (leads + 1) % 3;
    // All nodes are busy with this run, so that the stopping node, which gives its work back, would have the most room
    // for new claims.
    open(&cluster, leads, 400, 40).await;
    for number in 0..RUNS {
        // Due from before the stop until long after it.
        let created = cluster.put(leads, assumed_if_in_doubt(&format!("tail {number}"), 1_000 + 200 * number)).await;
        assert!(matches!(created.outcome, CommandOutcome::Schedule(_)), "{created:?}");
    }
    let context = Arc::clone(cluster.nodes[leads].context());
    until("all nodes send", || (0..3).all(|index| accepts_of(&cluster, index) > 2).then_some(())).await;
    assert!(cluster.stop_node(other).await, "it leaves nothing open");
    let opened = || context.replica.read(|ledger| ledger.runs().count());
    until("all are over", || (opened() == 1 + RUNS as usize && is_over(&context)).then_some(())).await;
    assert_eq!(count(&context, RecipientState::Sent), 400 + RUNS as u32, "each was sent, and none was assumed to be");
    assert_eq!(revoked_claims(&context), 0);
    cluster.end().await;
}
