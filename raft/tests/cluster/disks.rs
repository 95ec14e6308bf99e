//! Three replicas on disks that forget what was not synced, and disks that fail.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::NodeId;
use reveille_raft::wal::{Disk, MemoryDisk};
use reveille_raft::{FatalError, Role};

use crate::memory::MemoryNetwork;
use crate::support::*;

struct Lab {
    network: MemoryNetwork,
    nodes: Vec<Node>,
    disks: Vec<MemoryDisk>,
}

impl Lab {
    async fn new() -> Lab {
        let disks = (0..3).map(|_| MemoryDisk::new()).collect();
        let mut lab = Lab { network: MemoryNetwork::default(), nodes: Vec::new(), disks };
        for number in 1..=3 {
            lab.nodes.push(Node::new(number, MemoryNetwork::address_of(NodeId(number))));
        }
        lab.start().await;
        let members = members(&lab.nodes);
        lab.nodes[0].replica().initialize(CLUSTER, &members).await.expect("a new cluster");
        lab
    }

    async fn start(&mut self) {
        for (node, disk) in self.nodes.iter_mut().zip(&self.disks) {
            let disk = std::sync::Arc::new(disk.clone());
            let transport = self.network.transport(node.id);
            node.start_with(transport, |options| options.log_disk = Some(disk)).await.expect("it starts");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_writes_survive_power_cut_of_all_nodes() {
    let mut lab = Lab::new().await;
    let mut running = tokio::task::JoinSet::new();
    for client in 0..12 {
        let replica = lab.nodes[client % 3].replica().clone();
        running.spawn(async move {
            for number in 0..5 {
                propose(&replica, &format!("mark {client}.{number}")).await.expect("it is applied");
            }
        });
    }
    while let Some(client) = running.join_next().await {
        client.expect("no client fails");
    }
    // Records without a waiting caller, such as the commit index, are synced a little later. A crash before that would
    // be survived, too, but nodes with a torn log wait a minute before they vote.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cut: Vec<MemoryDisk> = lab.disks.iter().zip(1..).map(|(disk, seed)| disk.crash(seed)).collect();
    stop_all(&mut lab.nodes).await;

    lab.disks = cut;
    lab.start().await;
    for node in &lab.nodes {
        node.replica().linearizable(Instant::now() + 3 * PATIENCE).await.expect("a quorum runs");
        for client in 0..12 {
            assert!((0..5).all(|number| has_mark(node.replica(), &format!("mark {client}.{number}"))), "I7");
        }
    }
    stop_all(&mut lab.nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_failed_disk_stops_and_others_go_on() {
    let mut lab = Lab::new().await;
    let leads = leader(&lab.nodes).await;
    propose(lab.nodes[leads].replica(), "before").await.expect("it is applied");
    lab.disks[leads].fail_syncs(ErrorKind::Other);

    let failed = lab.nodes[leads].replica();
    let write = propose(failed, "on a broken disk").await;
    let mut fatal_error = failed.fatal_error();
    let fatal_error =
        tokio::time::timeout(PATIENCE, fatal_error.wait_for(Option::is_some)).await.expect("a fatal_error");
    assert!(matches!(*fatal_error.expect("it is kept"), Some(FatalError::Log(_))));
    let mut role = failed.role();
    let stopped = role.wait_for(|role| *role == Role::Stopped);
    tokio::time::timeout(PATIENCE, stopped).await.expect("it takes no further part").expect("it is known");

    let other = lab.nodes[(leads + 1) % 3].replica();
    propose(other, "after").await.expect("the other two go on");
    assert!(has_mark(other, "before"));
    if write.is_ok() {
        // Two healthy disks are a majority. If the write was confirmed, it must be there.
        assert!(has_mark(other, "on a broken disk"));
    }
    stop_all(&mut lab.nodes).await;
}

/// Returns the index of the newest snapshot on disk.
fn stored_index(node: &Node) -> u64 {
    let folder = std::fs::read_dir(node.folder.path().join("snapshots")).expect("a folder");
    let names = folder.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    names.filter_map(|name| name.strip_suffix(".manifest")?.parse().ok()).max().unwrap_or(0)
}

/// Raft applies an entry that a majority has, even if it is not on the node's own disk yet.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_on_disk_waits_for_log_on_disk() {
    const EVERY: u64 = 10;
    let network = MemoryNetwork::default();
    let mut nodes: Vec<Node> =
        (1..=3).map(|number| Node::new(number, MemoryNetwork::address_of(NodeId(number)))).collect();
    let disks: Vec<MemoryDisk> = (0..3).map(|_| MemoryDisk::new()).collect();
    for (node, disk) in nodes.iter_mut().zip(&disks) {
        let transport = network.transport(node.id);
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let set = |options: &mut reveille_raft::ReplicaOptions| {
            (options.log_disk, options.snapshot_every) = (Some(disk), EVERY);
        };
        node.start_with(transport, set).await.expect("it starts");
    }
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    let leads = leader(&nodes).await;
    propose(nodes[leads].replica(), "before").await.expect("it is applied");
    let slow = (leads + 1) % 3;
    let follower = &nodes[slow];
    until("it is applied", || has_mark(follower.replica(), "before").then_some(())).await;
    let durable = follower.replica().read(|ledger| ledger.head().applied);

    disks[slow].hold_syncs(true);
    // A follower that lags by more than `EVERY` entries gets the leader's snapshot instead.
    for number in durable..EVERY {
        propose(nodes[leads].replica(), &format!("mark {number}")).await.expect("two disks are a majority");
    }
    until("one is due", || (follower.replica().read(|ledger| ledger.head().applied) >= EVERY).then_some(())).await;
    // Far longer than a snapshot of this size takes.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stored = stored_index(follower);
    disks[slow].hold_syncs(false);
    assert_eq!(stored, 0, "the log is on disk up to entry {durable} only");
    until("it is stored", || (stored_index(follower) >= EVERY).then_some(())).await;
    stop_all(&mut nodes).await;
}
