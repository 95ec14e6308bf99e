//! A cluster of one node, and relays for it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::lifecycle::{LeadershipHandle, NodeRuntime, RuntimeOptions};
use reveille_cluster::smtp::{RelayRules, TcpDialer};
use reveille_ledger::RecipientState;
use reveille_ledger::access::Access;
use reveille_ledger::command::{Command, Relay};
use reveille_ledger::ids::NodeId;
use reveille_ledger::invariants::violations;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::{ClusterId, GrpcTransport, Member, ReplicaOptions};
use reveille_sink::{Sink, SinkOptions};
use tokio_util::sync::CancellationToken;

use crate::support::{STEP_TIMEOUT, context, owner};

/// The only node, with all its actors.
pub struct Node {
    pub context: Arc<NodeContext>,
    pub node_runtime: NodeRuntime,
}

impl Node {
    pub async fn start(folder: &Path, incarnation: u64) -> Node {
        Node::start_with(folder, incarnation, Arc::new(SystemClock)).await
    }

    pub async fn start_with(folder: &Path, incarnation: u64, clock: Arc<dyn Clock>) -> Node {
        let context = only_context(folder, incarnation, clock).await;
        let leadership_handle = NodeRuntime::start_leadership_actor(&context);
        let node_runtime = start_node_runtime(&context, leadership_handle, &folder.join("journal")).await;
        Node { context, node_runtime }
    }

    pub async fn put(&self, command: Command) -> CommandOutcome {
        put(&self.context, command).await
    }

    pub async fn until(&self, what: &str, mut holds: impl FnMut(&NodeContext) -> bool) {
        let end = Instant::now() + STEP_TIMEOUT;
        while !holds(&self.context) {
            assert!(Instant::now() < end, "not within a minute: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the node, which must have a sound ledger and leave nothing open.
    pub async fn stop(self) {
        assert_eq!(self.context.replica.read(violations), []);
        assert!(self.node_runtime.stop(STEP_TIMEOUT).await, "nothing is left open");
        assert!(self.context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "the replica stops");
    }
}

/// Starts the replica of the only node, without actors. In a new folder it makes the cluster.
pub async fn only_context(folder: &Path, incarnation: u64, clock: Arc<dyn Clock>) -> Arc<NodeContext> {
    let transport = GrpcTransport::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).expect("a port");
    let address = transport.address().to_string();
    let me = owner(NodeId(1), incarnation);
    let mut options = ReplicaOptions::new(folder.join("data"), me, Arc::new(transport));
    options.startup_delay = Duration::ZERO;
    let context = context(options, &address, clock, None).await;
    if context.replica.cluster().is_none() {
        let member = Member { name: "n1".into(), address, votes: true, key: None };
        context.replica.initialize(ClusterId(7), &[(me.node, member)].into()).await.expect("a cluster");
    }
    context
}

/// Starts all actors of a node but its leadership actor, which runs.
pub async fn start_node_runtime(
    context: &Arc<NodeContext>,
    leadership_handle: LeadershipHandle,
    journal_dir: &Path,
) -> NodeRuntime {
    let options = RuntimeOptions {
        name: context.introduction.name.clone(),
        hello_name: None,
        credentials: Arc::default(),
        reply_rules: RelayRules::default(),
        journal_dir: journal_dir.to_owned(),
        dialer: Arc::new(TcpDialer::default()),
    };
    NodeRuntime::start(Arc::clone(context), leadership_handle, options, &CancellationToken::new())
        .await
        .expect("a node runtime")
}

pub async fn put(context: &NodeContext, command: Command) -> CommandOutcome {
    context.replica.propose(&command, Instant::now() + STEP_TIMEOUT).await.expect("an answer").outcome
}

/// Returns the number of recipients in this state, in all runs.
pub fn count(context: &NodeContext, state: RecipientState) -> u32 {
    context.replica.read(|ledger| ledger.runs().map(|(_, _, run)| run.counts.get(state)).sum())
}

pub fn mailbox() -> Sink {
    Sink::start(SinkOptions::default()).expect("a mailbox")
}

/// Returns a relay of the pool `default` with four sessions.
pub fn relay(sink: &Sink) -> Relay {
    Relay {
        name: "mailbox".into(),
        pool: "default".into(),
        host: "127.0.0.1".into(),
        port: sink.address().port(),
        access: Access::default(),
        rate_milli: 0,
        max_sessions: 4,
        late_rate_milli: 0,
        weight: 1,
    }
}
