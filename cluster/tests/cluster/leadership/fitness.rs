//! A leader that cannot work hands its leadership over.

use std::sync::Arc;

use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::lifecycle::NodeRuntime;
use reveille_ledger::ids::NodeId;
use reveille_raft::Role;
use reveille_raft::wal::MemoryDisk;

use super::voters::{started, stopped, until};

/// Returns the node that leads, with an epoch in force.
fn leader(node_runtimes: &[NodeRuntime]) -> Option<NodeId> {
    let leads = |context: &Arc<NodeContext>| {
        matches!(*context.replica.role().borrow(), Role::Leader { .. }) && context.leadership().is_some()
    };
    node_runtimes
        .iter()
        .map(|node_runtime| &node_runtime.context)
        .find(|context| leads(context))
        .map(|context| context.me.node)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_with_hanging_disk_hands_over_despite_heartbeats() {
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<MemoryDisk> = (0..3).map(|_| MemoryDisk::new()).collect();
    let node_runtimes = started(folder.path(), |options| {
        options.log_disk = Some(Arc::new(disks[options.node.0 as usize - 1].clone()));
    })
    .await;
    tokio::task::block_in_place(|| {
        until("a node leads", || leader(&node_runtimes).is_some());
        let former = leader(&node_runtimes).expect("it leads still");
        let disk = &disks[former.0 as usize - 1];
        disk.hold_syncs(true);
        let others = || node_runtimes.iter().filter(|node_runtime| node_runtime.context.me.node != former);
        until("another one leads", || others().any(|node_runtime| node_runtime.context.leadership().is_some()));
        disk.hold_syncs(false);
        until("the former follows", || leader(&node_runtimes).is_some_and(|leader| leader != former));
    });
    stopped(node_runtimes).await;
}
