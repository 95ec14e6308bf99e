//! Snapshots: the log is purged, the state stays, and a node that was away too long gets the whole state.

use reveille_ledger::Ledger;
use reveille_raft::{FatalError, Hint, ReplicaOptions};

use crate::support::*;

/// Entries between two snapshots, few enough for a test.
const EVERY: u64 = 40;

fn often(options: &mut ReplicaOptions) {
    options.snapshot_every = EVERY;
}

async fn marks(node: &Node, from: usize, count: usize) -> u64 {
    let mut last = 0;
    for number in from..from + count {
        last = propose(node.replica(), &format!("mark {number}")).await.expect("it is applied").index;
    }
    last
}

fn state(node: &Node) -> (u64, reveille_ledger::ids::Hash) {
    node.replica().read(|ledger: &Ledger| (ledger.head().applied, ledger.state_hash()))
}

#[tokio::test(flavor = "multi_thread")]
async fn node_behind_purged_log_gets_snapshot() {
    let mut nodes = three_over_tcp_with(often).await;
    marks(&nodes[0], 0, 5).await;
    let leads = leader(&nodes).await;
    let away = (leads + 1) % 3;
    nodes[away].replica().linearizable(soon()).await.expect("a quorum runs");
    let seen = nodes[away].replica().status().last_index;
    nodes[away].stop().await;

    let last = marks(&nodes[leads], 5, 100).await;
    until("the log that the absent node would need is gone", || {
        let gone = |node: &Node| node.replica.as_ref().is_none_or(|replica| replica.status().purged_index > seen);
        nodes.iter().all(gone).then_some(())
    })
    .await;

    let transport = rebind(&nodes[away].address);
    nodes[away].start_with(transport, often).await.expect("it returns");
    let mut hints = nodes[away].replica().hints();
    nodes[away].replica().wait_applied(last, soon()).await.expect("it catches up");
    assert!(nodes[away].replica().status().snapshot_index > seen, "by a snapshot");
    assert!(has_mark(nodes[away].replica(), "mark 0") && has_mark(nodes[away].replica(), "mark 104"));
    let told = tokio::time::timeout(PATIENCE, hints.next()).await.expect("a hint comes");
    assert_eq!(told, Some(Hint::Resync), "the state was replaced");

    // Equal index, equal state (I11), also after a snapshot.
    let index = nodes[away].replica().linearizable(soon()).await.expect("a quorum runs");
    for node in &nodes {
        node.replica().wait_applied(index, soon()).await.expect("all are there");
    }
    assert_eq!(state(&nodes[away]), state(&nodes[leads]));

    // The node is a full member again.
    nodes[(leads + 2) % 3].stop().await;
    propose(nodes[away].replica(), "with the third one away").await.expect("two are a majority");
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_needs_snapshot_and_log_only() {
    let transport = loopback();
    let mut node = Node::new(1, transport.address().to_string());
    node.start_with(transport, often).await.expect("a new node starts");
    let nodes = [node];
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    let [mut node] = nodes;
    marks(&node, 0, 100).await;
    until("the log is cut", || (node.replica().status().purged_index > 0).then_some(())).await;
    let before = state(&node);
    node.stop().await;

    node.start_with(rebind(&node.address), often).await.expect("it starts");
    assert_eq!(state(&node), before);
    marks(&node, 100, 1).await;
    node.stop().await;

    // If the newest snapshot is damaged, the one before it and the log have the state.
    let newest = manifests(&node).pop().expect("there are snapshots");
    std::fs::write(newest, b"damaged").expect("it is written");
    node.start_with(rebind(&node.address), often).await.expect("it starts all the same");
    assert!(has_mark(node.replica(), "mark 0") && has_mark(node.replica(), "mark 100"));
    assert!(node.replica().status().snapshot_index > 0, "the older one is in use");
    marks(&node, 101, 100).await;
    until("newer ones are made", || (manifests(&node).len() == 2).then_some(())).await;
    node.stop().await;

    // Without snapshots and without other nodes it cannot start.
    std::fs::remove_dir_all(node.folder.path().join("snapshots")).expect("the snapshots are gone");
    let refused = node.start_with(rebind(&node.address), often).await;
    let Err(FatalError::Damaged(why)) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("'snapshots' ends at entry 0"), "{why}");
}

/// Makes every snapshot of a stopped node useless, one way or another.
fn damage_snapshots(node: &Node, way: u32) {
    let folder = node.folder.path().join("snapshots");
    match way {
        0 => std::fs::remove_dir_all(folder).expect("it is removed"),
        1 => manifests(node).iter().for_each(|manifest| std::fs::write(manifest, b"damaged").expect("it is written")),
        _ => {
            for block in std::fs::read_dir(folder.join("blocks")).expect("a folder") {
                let block = block.expect("a block").path();
                if way == 2 {
                    std::fs::write(block, b"damaged").expect("it is written");
                } else {
                    // Each read fails with EIO, as on a disk with bad sectors.
                    std::fs::remove_file(&block).expect("it is removed");
                    std::os::unix::fs::symlink("/proc/self/mem", block).expect("a link");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_readable_snapshot_fetches_one_from_peer() {
    // The other nodes have no snapshot yet, and make one when they are asked.
    let mut nodes = three_over_tcp().await;
    let leads = leader(&nodes).await;
    let (damaged, third) = ((leads + 1) % 3, (leads + 2) % 3);
    nodes[damaged].stop().await;
    let transport = rebind(&nodes[damaged].address);
    nodes[damaged].start_with(transport, often).await.expect("it starts");
    for way in 0..4 {
        if way == 1 {
            // They make few for others. This one has its own from now on.
            nodes[third].stop().await;
            let transport = rebind(&nodes[third].address);
            nodes[third].start_with(transport, often).await.expect("it starts");
        }
        let from = 100 * way as usize;
        let purged = nodes[damaged].replica().status().purged_index;
        marks(&nodes[leads], from, 99).await;
        let has_purged = || nodes[damaged].replica().status().purged_index > purged;
        until("its log is cut", || has_purged().then_some(())).await;
        nodes[damaged].stop().await;
        let last = marks(&nodes[leads], from + 99, 1).await;
        damage_snapshots(&nodes[damaged], way);

        let transport = rebind(&nodes[damaged].address);
        nodes[damaged].start_with(transport, often).await.expect("a peer sends one");
        nodes[damaged].replica().wait_applied(last, soon()).await.expect("it catches up");
        assert!(has_mark(nodes[damaged].replica(), "mark 0"));
        until("equal states (I11)", || (state(&nodes[damaged]) == state(&nodes[leads])).then_some(())).await;
    }

    // Two nodes, of which one has no snapshot, are a majority: the other one sends its own without a leader.
    until("a snapshot", || (!manifests(&nodes[damaged]).is_empty()).then_some(())).await;
    let purged = nodes[damaged].replica().status().purged_index;
    stop_all(&mut nodes).await;
    damage_snapshots(&nodes[damaged], 0);
    let transport = rebind(&nodes[damaged].address);
    let refused = nodes[damaged].start_with(transport, impatient).await;
    let Err(FatalError::State(why)) = &refused else { panic!("{refused:?}") };
    let reason = format!("no readable snapshot that reaches entry {purged}, and no other node sent one");
    assert!(why.contains(&reason) && why.contains("start the nodes that are down"), "{why}");
    let transport = rebind(&nodes[third].address);
    nodes[third].start(transport).await.expect("it starts");
    let transport = rebind(&nodes[damaged].address);
    nodes[damaged].start_with(transport, often).await.expect("the third node sends one");
    propose(nodes[damaged].replica(), "of two nodes").await.expect("two are a majority");
    assert!(has_mark(nodes[damaged].replica(), "mark 0") && has_mark(nodes[damaged].replica(), "mark 399"));
    stop_all(&mut nodes).await;
}

fn impatient(options: &mut ReplicaOptions) {
    options.snapshot_wait = std::time::Duration::from_millis(100);
}

/// Returns the manifests of a node's snapshots, oldest first.
fn manifests(node: &Node) -> Vec<std::path::PathBuf> {
    let folder = std::fs::read_dir(node.folder.path().join("snapshots")).expect("a folder");
    let mut paths: Vec<_> = folder.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "manifest"));
    paths.sort();
    paths
}
