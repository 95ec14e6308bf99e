//! A node's data folder is replaced by an older copy. The leader sends the missing entries again, and keeps running.

use std::path::Path;

use reveille_ledger::ids::NodeId;
use reveille_raft::FatalError;
use tempfile::TempDir;

use crate::memory::MemoryNetwork;
use crate::support::*;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let (path, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).expect("an entry");
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).expect("it is copied");
        }
    }
}

/// Copies a node's data folder.
fn keep(node: &Node) -> TempDir {
    let kept = tempfile::tempdir().expect("a folder");
    copy(node.folder.path(), kept.path());
    kept
}

fn put_back(node: &Node, kept: &TempDir) {
    std::fs::remove_dir_all(node.folder.path()).expect("it is empty");
    copy(kept.path(), node.folder.path());
}

struct Lab {
    network: MemoryNetwork,
    nodes: Vec<Node>,
}

impl Lab {
    async fn new() -> Lab {
        let mut lab = Lab { network: MemoryNetwork::default(), nodes: Vec::new() };
        for number in 1..=3 {
            lab.nodes.push(Node::new(number, MemoryNetwork::address_of(NodeId(number))));
            lab.start(number as usize - 1).await.expect("a new node starts");
        }
        lab.nodes[0].replica().initialize(CLUSTER, &members(&lab.nodes)).await.expect("a new cluster");
        lab
    }

    async fn start(&mut self, place: usize) -> Result<(), FatalError> {
        let transport = self.network.transport(self.nodes[place].id);
        self.nodes[place].start(transport).await
    }

    /// Commits a command, and waits until the node `until` has applied it.
    async fn go_on(&self, by: usize, until: usize, name: &str) {
        let last = propose(self.nodes[by].replica(), name).await.expect("it is applied").index;
        self.nodes[until].replica().wait_applied(last, soon()).await.expect("it is there");
    }

    /// Returns a leader, and a stopped follower with an older copy of its folder. The copy lacks entries that the
    /// follower acknowledged.
    async fn with_old_copy() -> (Lab, usize, usize, TempDir) {
        let mut lab = Lab::new().await;
        let leading = leader(&lab.nodes).await;
        let old = (leading + 1) % 3;
        lab.go_on(leading, old, "before").await;
        lab.nodes[old].stop().await;
        let kept = keep(&lab.nodes[old]);
        lab.start(old).await.expect("it starts again");
        for number in 0..20 {
            lab.go_on(leading, old, &format!("mark {number}")).await;
        }
        lab.nodes[old].stop().await;
        (lab, leading, old, kept)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_without_entries_that_it_acknowledged_gets_them_again() {
    let (mut lab, leading, old, kept) = Lab::with_old_copy().await;
    put_back(&lab.nodes[old], &kept);
    lab.start(old).await.expect("it does not know what it lacks");
    lab.go_on(leading, old, "after").await;
    for node in &lab.nodes {
        assert_eq!(*node.replica().fatal_error().borrow(), None);
    }
    stop_all(&mut lab.nodes).await;
}
