//! Three voters in one process, over loopback, with all their actors.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::process::clock::SystemClock;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::lifecycle::{LeadershipHandle, NodeRuntime};
use reveille_ledger::ids::{Epoch, NodeId};
use reveille_raft::{ClusterId, GrpcTransport, Member};

use crate::support::one_node::start_node_runtime;
use crate::support::{self, STEP_TIMEOUT};

/// Starts three nodes of a new cluster. `change` may change each replica's options.
pub async fn started(folder: &Path, change: impl Fn(&mut reveille_raft::ReplicaOptions)) -> Vec<NodeRuntime> {
    let nodes = three(folder, change).await;
    let start = async |(context, leadership_handle): (Arc<NodeContext>, LeadershipHandle)| {
        let journal_dir = folder.join(format!("{}-journal", context.introduction.name));
        start_node_runtime(&context, leadership_handle, &journal_dir).await
    };
    futures::future::join_all(nodes.into_iter().map(start)).await
}

/// Stops all nodes.
pub async fn stopped(node_runtimes: Vec<NodeRuntime>) {
    let contexts: Vec<Arc<NodeContext>> =
        node_runtimes.iter().map(|node_runtime| Arc::clone(&node_runtime.context)).collect();
    futures::future::join_all(node_runtimes.into_iter().map(|node_runtime| node_runtime.stop(Duration::from_secs(10))))
        .await;
    for context in &contexts {
        assert!(context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "a replica stops");
    }
}

async fn three(
    folder: &Path,
    change: impl Fn(&mut reveille_raft::ReplicaOptions),
) -> Vec<(Arc<NodeContext>, LeadershipHandle)> {
    let mut nodes = Vec::new();
    let mut members = BTreeMap::new();
    for number in 1..=3 {
        let transport = GrpcTransport::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).expect("a port");
        let (address, name, node) = (transport.address().to_string(), format!("n{number}"), NodeId(number));
        members.insert(node, Member { name: name.clone(), address: address.clone(), votes: true, key: None });
        let mut options =
            reveille_raft::ReplicaOptions::new(folder.join(&name), support::owner(node, 1), Arc::new(transport));
        // Longer than in production: on a small machine, all nodes of the test share two cores.
        options.heartbeat_ms = 100;
        options.election_ms = 2_000..4_000;
        options.startup_delay = Duration::ZERO;
        change(&mut options);
        let context = support::context(options, &address, Arc::new(SystemClock), None).await;
        let leadership_handle = NodeRuntime::start_leadership_actor(&context);
        nodes.push((context, leadership_handle));
    }
    nodes[0].0.replica.initialize(ClusterId(9), &members).await.expect("a cluster");
    nodes
}

/// Waits on the calling thread, so that no runtime has to be scheduled.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + STEP_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the epoch in a node's state.
pub fn epoch(context: &NodeContext) -> Option<Epoch> {
    context.replica.read(|ledger| ledger.head().current_epoch())
}
