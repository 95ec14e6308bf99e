//! Changes of the members.

use reveille_ledger::command::Command;
use reveille_ledger::ids::NodeId;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::FatalError;

use super::cluster::*;
use super::reconciliation::*;

/// A change of a voter is two entries: both sets of voters count between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_members_left_half_done_by_dead_leader_is_finished_by_next_one() {
    let mut cluster = Cluster::start().await;
    let former = cluster.leader().await;
    let others = [(former + 1) % 3, (former + 2) % 3];
    let node = cluster.nodes[former].id;
    // The others get the first entry. The leader does not hear so, and never proposes the second one.
    cluster.network.lose_answers(node, "Append");
    let replica = cluster.nodes[former].context().replica.clone();
    let changing = tokio::spawn(async move { replica.remove(node, soon()).await });
    let is_half_done = |cluster: &Cluster, index: usize| cluster.nodes[index].context().replica.has_unfinished_change();
    until("both have it", || others.iter().all(|index| is_half_done(&cluster, *index)).then_some(())).await;
    cluster.kill(former).await;
    let changed = changing.await.expect("it does not panic");
    assert!(changed.is_err(), "the leader finished it: {changed:?}");
    cluster.network.heal();

    let leads = cluster.leader().await;
    until("it is finished", || (!others.iter().any(|index| is_half_done(&cluster, *index))).then_some(())).await;
    let expected: Vec<NodeId> = cluster.nodes.iter().map(|node| node.id).filter(|id| *id != node).collect();
    for index in others {
        let members = cluster.nodes[index].context().replica.members();
        assert!(members.values().all(|member| member.votes));
        assert_eq!(members.into_keys().collect::<Vec<_>>(), expected);
    }
    open(&cluster, leads, 20, 0).await;
    until("two nodes send", || is_over(cluster.nodes[leads].context()).then_some(())).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_node_that_was_cut_off_ends_and_moves_no_term() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let lost = (leads + 1) % 3;
    let (node, replica) = (cluster.nodes[lost].id, cluster.nodes[leads].context().replica.clone());
    cluster.isolate(lost);
    let removed = cluster.put(leads, Command::NodeRemove(node)).await;
    assert!(!matches!(removed.outcome, CommandOutcome::Refused(_)), "{:?}", removed.outcome);
    until("it is no member", || (!replica.members().contains_key(&node)).then_some(())).await;
    let term = replica.status().term;
    // It asks for votes meanwhile.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    cluster.network.heal();
    let end = cluster.nodes[lost].context().replica.fatal_error();
    let is_removed = || matches!(&*end.borrow(), Some(FatalError::Removed(why)) if why.contains("removed node"));
    until("it learns so, and ends", || is_removed().then_some(())).await;
    assert_eq!(replica.status().term, term);
    cluster.end().await;
}
