//! A graceful stop leaves nothing behind.

use reveille_ledger::Standing;

use crate::books::*;
use crate::cluster::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_while_it_is_granted_rows_leaves_none_and_a_leader_hands_over() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (other, last) = ((leads + 1) % 3, (leads + 2) % 3);
    // Slow enough that it is still granted rows while it stops.
    open(&cluster, leads, 400, 40).await;
    until("everybody sends", || (0..3).all(|place| accepts_of(&cluster, place) > 2).then_some(())).await;

    let node = cluster.nodes[other].id;
    assert!(cluster.stop_node(other).await, "it leaves nothing open");
    assert!(!is_over(cluster.nodes[leads].site()), "the run goes on");
    until("the leader sees it too", || claimed_by(cluster.nodes[leads].site(), node).is_empty().then_some(())).await;
    let leader_node = cluster.nodes[leads].id;
    // A quorum of three needs two: the first one returns before the leader goes.
    cluster.restart(other).await;
    assert!(cluster.stop_node(leads).await, "nor does the leader");
    cluster.leader().await;

    let site = cluster.nodes[last].site();
    assert!(claimed_by(site, leader_node).is_empty());
    until("everything is sent", || is_over(site).then_some(())).await;
    assert_eq!(count(site, Standing::Sent), 400, "a stop leaves no doubt");
    judge(&cluster, 400).await;
    cluster.end().await;
}
