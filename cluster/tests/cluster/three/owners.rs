//! An owner that cannot reach the leader, or that the leader cannot reach.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::process::lease::{LEASE, MARGIN};
use reveille_ledger::RecipientState;

use super::cluster::*;
use super::reconciliation::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_without_leader_stops_with_its_lease_and_resolves_doubts_later() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let lost = (leads + 1) % 3;
    let (me, node) = (&cluster.nodes[lost], cluster.nodes[lost].id);
    me.valve.close_after(1);
    let mut hold = cluster.hold_a_mail_of(lost);
    open(&cluster, leads, 200, 0).await;
    let held = hold.next(STEP_TIMEOUT).await.expect("the owner sends");
    until("a dialogue is short of its gate", || (me.valve.stopped() > 0).then_some(())).await;
    let passed = me.relay().counters.gate_passes;

    cluster.isolate(lost);
    let cut = Instant::now();
    let context = cluster.nodes[leads].context();
    until("its lease is over", || (!me.may_send()).then_some(())).await;
    assert!(!claimed_by(context, node).is_empty(), "P9: its claims outlive its lease by the margin");
    me.valve.open();
    until("what was short of its gate has met it", || (me.relay().counters.gate_closed > 0).then_some(())).await;

    until("its claims are revoked", || claimed_by(context, node).is_empty().then_some(())).await;
    assert!(cut.elapsed() > LEASE + MARGIN - Duration::from_secs(2), "{:?}", cut.elapsed());
    until("the others carry on", || is_over(context).then_some(())).await;
    let doubtful = in_doubt_of(context, node);
    assert!(doubtful.len() > 1 && doubtful.contains_key(&number_of(&held.accepted.recipient)), "{doubtful:?}");
    assert_eq!(me.relay().counters.gate_passes, passed, "P9: no gate has passed after the lease");

    // The owner learns the outcome while no leader can receive it, so it keeps the evidence.
    assert!(held.release(), "its answer is still waited for");
    until("the answer is there", || (me.relay().counters.accepted == passed).then_some(())).await;
    assert!(count(context, RecipientState::InDoubt) as usize >= doubtful.len());
    cluster.network.heal();
    until("everything is sent", || is_all_sent(context, 200).then_some(())).await;
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settle_with_lost_answer_is_repeated_and_counts_once() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let owner = (leads + 1) % 3;
    let mut hold = cluster.hold_a_mail_of(owner);
    open(&cluster, leads, 200, 0).await;
    let held = hold.next(STEP_TIMEOUT).await.expect("the owner sends");
    let number = number_of(&held.accepted.recipient);
    let context = Arc::clone(cluster.nodes[leads].context());
    let state = || context.replica.read(|ledger| ledger.state(run(&context), number));
    until("it is the last one", || (count(&context, RecipientState::Sent) == 199).then_some(())).await;

    let (asker, asked_of) = (cluster.nodes[owner].id, cluster.nodes[leads].id);
    cluster.network.lose_answers(asker, "Propose");
    let before = cluster.network.requests(asked_of, "Propose");
    assert!(held.release(), "its answer is still waited for");
    until("the ledger knows", || (state() == Some(RecipientState::Sent)).then_some(())).await;
    let requests = || cluster.network.requests(asked_of, "Propose") - before;
    until("it is asked again", || (requests() > 2).then_some(())).await;
    cluster.network.heal();
    assert_consistent(&cluster, 200).await;
    assert!(cluster.stop_node(owner).await, "no outcome waits with it any more");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_that_applies_nothing_keeps_no_claims() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let behind = (leads + 1) % 3;
    let (me, node) = (&cluster.nodes[behind], cluster.nodes[behind].id);
    let context = cluster.nodes[leads].context();
    cluster.put(leads, relay(&cluster, 0)).await;
    // The leader cannot reach the node, but the node reaches the leader. So it does not stand for election, because it
    // would get no votes, and keeps asking for its lease.
    for other in [leads, (leads + 2) % 3] {
        cluster.network.lose_requests(cluster.nodes[other].id, node, "Append");
    }
    cluster.put(leads, schedule(300)).await;
    until("it is granted claims", || (!claimed_by(context, node).is_empty()).then_some(())).await;
    until("I13: the others carry on, and nothing stays claimed", || is_over(context).then_some(())).await;
    assert_eq!(me.context().replica.read(|ledger| ledger.runs().count()), 0, "it knows of no run");
    let doubtful = in_doubt_of(context, node);
    assert!(!doubtful.is_empty());
    assert_eq!(count(context, RecipientState::Sent) as usize, 300 - doubtful.len(), "P12: it got no more claims");
    assert_eq!(accepts_of(&cluster, behind), 0, "it began nothing");

    cluster.network.heal();
    until("what it had never begun comes back and is sent", || is_all_sent(context, 300).then_some(())).await;
    assert_consistent(&cluster, 300).await;
    cluster.end().await;
}
