//! A leader that is killed, and a leader that is cut off.

use reveille_cluster::monitoring::disk_reserve::DiskSpace;
use reveille_cluster::process::lease::{LEASE, MARGIN};
use reveille_cluster::process::peer_messages::{LeaseRequest, NodeMeasurements};
use reveille_ledger::RecipientState;
use std::time::{Duration, Instant};

use super::cluster::*;
use super::reconciliation::*;

/// Maximum time for which a recipient may stay claimed after its lease has ended (I15): one step of the auditor.
const STEP: Duration = Duration::from_secs(1);
/// Time that a busy machine may add to the measured times, and to what a relay reads.
const SLACK: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_sent_once_although_leader_is_killed() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let other = (leads + 1) % 3;
    open(&cluster, leads, 200, 60).await;
    until("the run is under way", || (cluster.sink.accepted_count() >= 40).then_some(())).await;

    let mut hold = cluster.hold_a_mail_of(leads);
    let held = hold.next(STEP_TIMEOUT).await.expect("the leader sends");
    cluster.kill(leads).await;
    let before = cluster.sink.accepted_count();
    assert!(before < 200, "killed in the middle, after {before}");
    cluster.leader().await;
    cluster.restart(leads).await;

    until("nothing is left to send", || is_over(cluster.nodes[other].context()).then_some(())).await;
    let context = cluster.nodes[other].context();
    // The journal knows the outcome of all emails except those past the gate (P11).
    let doubtful = in_doubt_of(context, cluster.nodes[leads].id);
    let in_doubt = count(context, RecipientState::InDoubt);
    assert!(doubtful.contains_key(&number_of(&held.accepted.recipient)), "no node can know the answer: {doubtful:?}");
    assert!(in_doubt <= SESSIONS && in_doubt as usize == doubtful.len(), "{in_doubt}, {doubtful:?}");
    assert_eq!(count(context, RecipientState::Sent) + in_doubt, 200);
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_leader_grants_nothing_and_passes_no_gate_after_lease() {
    let cluster = Cluster::start().await;
    let former = cluster.leader().await;
    let (me, node) = (&cluster.nodes[former], cluster.nodes[former].id);
    // One of its emails is past the gate, and the next one is before it.
    me.valve.close_after(1);
    let mut hold = cluster.hold_a_mail_of(former);
    open(&cluster, former, 200, 0).await;
    let held = hold.next(STEP_TIMEOUT).await.expect("the leader sends");
    until("a dialogue is short of its gate", || (me.valve.stopped() > 0).then_some(())).await;
    let passed = me.relay().counters.gate_passes;

    let cut = Instant::now();
    cluster.isolate(former);
    let leads = cluster.leader_but(Some(former)).await;
    let elected = Instant::now();
    let context = cluster.nodes[leads].context();
    assert!(!claimed_by(context, node).is_empty(), "it has claimed recipients");

    until("its lease is over", || (!me.may_send()).then_some(())).await;
    let applied = me.context().replica.status().applied_index;
    let request = LeaseRequest {
        owner: me.context().me,
        applied,
        missing: Vec::new(),
        lacks_archive: false,
        space: DiskSpace::Ample,
        measured: NodeMeasurements::default(),
        stopping: false,
    };
    let grant = me.context().leadership().map(|term| term.grant(request));
    assert!(grant.is_none_or(|grant| grant.is_err()), "P9: without a quorum it grants nothing, to itself neither");
    me.valve.open();
    until("what was short of its gate has met it", || (me.relay().counters.gate_closed > 0).then_some(())).await;

    until("its claims are revoked", || claimed_by(context, node).is_empty().then_some(())).await;
    assert!(cut.elapsed() > LEASE + MARGIN, "P9: not before its lease was surely over");
    let took = elected.elapsed();
    assert!(took < LEASE + MARGIN + STEP + SLACK, "I15: claimed for {took:?} after the new epoch");
    until("the others carry on", || is_over(context).then_some(())).await;
    assert!(in_doubt_of(context, node).contains_key(&number_of(&held.accepted.recipient)));
    assert_eq!(me.relay().counters.gate_passes, passed, "P9: no gate has passed after the lease");
    assert_eq!(accepts_of(&cluster, former) as u64, passed);

    assert!(held.release(), "its answer is still waited for");
    cluster.network.heal();
    until("it follows", || (!me.leads()).then_some(())).await;
    // Its evidence resolves every doubt, and what it gave back is sent (I13).
    until("everything is sent", || is_all_sent(context, 200).then_some(())).await;
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}
