//! An old copy of a node's data folder is put back (P21): whoever remembers more stops it, and nobody else.

use std::path::Path;

use reveille_ledger::LEVEL;
use reveille_ledger::command::{Command, NodeUp};
use reveille_ledger::ids::{Holder, Incarnation, NodeId};
use reveille_raft::{Fault, Options};
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

/// What the folder of a node holds now.
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

    async fn start(&mut self, place: usize) -> Result<(), Fault> {
        let transport = self.network.transport(self.nodes[place].id);
        self.nodes[place].start(transport).await
    }

    /// As this life: its number, and what its process drew.
    async fn start_as(&mut self, place: usize, life: (u64, u64)) -> Result<(), Fault> {
        let transport = self.network.transport(self.nodes[place].id);
        let change = move |options: &mut Options| (options.incarnation, options.life) = (Incarnation(life.0), life.1);
        self.nodes[place].start_with(transport, change).await
    }

    /// Something is committed that this node has.
    async fn go_on(&self, by: usize, until: usize, name: &str) {
        let last = propose(self.nodes[by].replica(), name).await.expect("it is applied").index;
        self.nodes[until].replica().wait_applied(last, soon()).await.expect("it is there");
    }

    /// A leader, and a follower with a copy of its folder that is older by what was acknowledged since.
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
async fn an_old_folder_that_is_put_back_is_refused_and_the_cluster_goes_on() {
    let (mut lab, leading, old, kept) = Lab::with_old_copy().await;
    let newest = keep(&lab.nodes[old]);
    put_back(&lab.nodes[old], &kept);
    let refused = lab.start(old).await;
    assert!(matches!(&refused, Err(Fault::Outdated(why)) if why.contains("acknowledged entry")), "{refused:?}");

    let other = 3 - leading - old;
    lab.go_on(leading, other, "without it").await;
    for node in [leading, other] {
        assert_eq!(*lab.nodes[node].replica().fault().borrow(), None);
    }

    // Not even when nobody is there to remember.
    lab.nodes[leading].stop().await;
    lab.nodes[other].stop().await;
    let again = lab.start(old).await;
    assert!(matches!(&again, Err(Fault::Outdated(why)) if why.contains("noted in")), "{again:?}");

    // With what it had last it takes part again, and its vote counts.
    put_back(&lab.nodes[old], &newest);
    lab.start(old).await.expect("nothing is older");
    lab.start(other).await.expect("it starts");
    lab.go_on(other, old, "with its vote").await;
    stop_all(&mut lab.nodes).await;
}

/// A copy that was made while the node ran counts to the same life as the folder that it had last, and is another
/// process: when it was refused, the other one must be taken.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_copy_of_its_own_life_was_refused_the_newest_folder_is_taken() {
    let mut lab = Lab::new().await;
    let leading = leader(&lab.nodes).await;
    let old = (leading + 1) % 3;
    lab.go_on(leading, old, "before").await;
    lab.nodes[old].stop().await;
    let kept = keep(&lab.nodes[old]);
    // As if nothing had ended: a folder that is copied while it is written may be of no use.
    lab.start_as(old, (1, 1)).await.expect("it goes on");
    for number in 0..20 {
        lab.go_on(leading, old, &format!("mark {number}")).await;
    }
    lab.nodes[old].stop().await;
    let newest = keep(&lab.nodes[old]);
    put_back(&lab.nodes[old], &kept);
    // As both folders count: one more than the life that the copy was made of.
    let refused = lab.start_as(old, (2, 77)).await;
    assert!(matches!(&refused, Err(Fault::Outdated(why)) if why.contains("acknowledged entry")), "{refused:?}");

    put_back(&lab.nodes[old], &newest);
    lab.start_as(old, (2, 78)).await.expect("it has all that it had");
    let other = 3 - leading - old;
    lab.go_on(other, old, "with it").await;
    assert_eq!(*lab.nodes[old].replica().fault().borrow(), None);
    stop_all(&mut lab.nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_remembers_stops_it_when_it_is_reached_at_last() {
    let (mut lab, leading, old, kept) = Lab::with_old_copy().await;
    put_back(&lab.nodes[old], &kept);
    lab.network.isolate(lab.nodes[old].id, [lab.nodes[leading].id]);
    lab.start(old).await.expect("nobody whom it reaches remembers more");
    assert_eq!(*lab.nodes[old].replica().fault().borrow(), None);
    lab.network.heal();

    let mut fault = lab.nodes[old].replica().fault();
    let fault = tokio::time::timeout(PATIENCE, fault.wait_for(Option::is_some)).await.expect("a fault");
    assert!(matches!(*fault.expect("it is kept"), Some(Fault::Outdated(_))));
    lab.go_on(leading, 3 - leading - old, "without it").await;
    assert_eq!(*lab.nodes[leading].replica().fault().borrow(), None);
    stop_all(&mut lab.nodes).await;
}

/// When everybody has been down, only the ledger remembers: which life was the last.
#[tokio::test(flavor = "multi_thread")]
async fn after_all_were_down_the_ledger_remembers_its_last_life() {
    let mut lab = Lab::new().await;
    let id = lab.nodes[2].id;
    let up = |number: u64| {
        let holder = Holder { node: id, incarnation: Incarnation(number) };
        Command::NodeUp(NodeUp { holder, name: "n3".into(), level: LEVEL, life: number })
    };
    lab.nodes[0].replica().propose(&up(1), soon()).await.expect("its first life");
    lab.nodes[2].stop().await;
    let kept = keep(&lab.nodes[2]);
    lab.start(2).await.expect("it starts again");
    let last = lab.nodes[2].replica().propose(&up(2), soon()).await.expect("its second life").index;
    for node in &lab.nodes {
        node.replica().wait_applied(last, soon()).await.expect("all know it");
    }
    stop_all(&mut lab.nodes).await;

    put_back(&lab.nodes[2], &kept);
    lab.start(0).await.expect("it starts");
    lab.start(1).await.expect("it starts");
    // As the folder counts: one more than before, and another process than the one that was known as that.
    let refused = lab.start_as(2, (2, 77)).await;
    assert!(matches!(&refused, Err(Fault::Outdated(why)) if why.contains("its life 2")), "{refused:?}");
    lab.go_on(0, 1, "without it").await;
    stop_all(&mut lab.nodes).await;
}
