//! An owner that was away so long that the log entries it needs are purged.

use reveille_ledger::RecipientState;

use super::cluster::*;
use super::reconciliation::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_restored_by_snapshot_releases_unknown_claims() {
    let cluster = Cluster::start_with(|options| {
        options.snapshot_every = 60;
    })
    .await;
    let leads = cluster.leader().await;
    let away = (leads + 1) % 3;
    let (me, node) = (&cluster.nodes[away], cluster.nodes[away].id);
    let context = cluster.nodes[leads].context();
    // The node is cut off before the run opens. It still gets claims while its lease lasts.
    cluster.put(leads, relay(&cluster, 0)).await;
    cluster.isolate(away);
    let seen = me.context().replica.status().applied_index;
    cluster.put(leads, schedule(200)).await;
    until("it is granted claims", || (!claimed_by(context, node).is_empty()).then_some(())).await;
    until("its claims are revoked", || claimed_by(context, node).is_empty().then_some(())).await;
    until("the others carry on", || is_over(context).then_some(())).await;
    let unknown = in_doubt_of(context, node);
    assert!(!unknown.is_empty());
    for number in 0..100 {
        cluster.put(leads, relay_named(&cluster, &format!("spare {number}"), "spare", 1)).await;
    }
    until("the log that it would need is gone", || {
        let gone = |index: usize| cluster.nodes[index].context().replica.status().purged_index > seen;
        (0..3).filter(|index| *index != away).all(gone).then_some(())
    })
    .await;
    assert_eq!(accepts_of(&cluster, away), 0);
    assert_eq!(count(me.context(), RecipientState::Sent), 0, "it knows nothing of the run");

    cluster.network.heal();
    until("everything is sent", || is_all_sent(me.context(), 200).then_some(())).await;
    assert!(me.context().replica.status().snapshot_index > seen, "by a snapshot");
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}
