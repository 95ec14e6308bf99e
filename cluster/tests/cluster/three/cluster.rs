//! Starts, kills, restarts and stops three nodes and their mailbox.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::backup::{BackupPlan, BackupTarget};
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::lifecycle::{self, LeadershipHandle, NodeRuntime};
use reveille_cluster::smtp::{RelayRules, RelayStatus};
use reveille_ledger::command::Command;
use reveille_ledger::ids::NodeId;
use reveille_ledger::reply::CommandReply;
use reveille_raft::{ClusterId, Member, ReplicaOptions, Role};
use reveille_sink::{Hold, HoldPoint, HoldRequest, Sink, SinkOptions};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::network::Network;
use super::valve::Valve;
use crate::support;
pub use crate::support::STEP_TIMEOUT;
use crate::support::wrong_clock::WrongClock;

pub fn soon() -> Instant {
    Instant::now() + STEP_TIMEOUT
}

/// Waits until `probe` returns a value.
pub async fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = soon();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "not within {STEP_TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A runtime of one node. When it is dropped, its tasks end at their next await.
struct Home(Option<Runtime>);

impl Home {
    fn new(name: &str) -> Home {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Home(Some(builder.worker_threads(1).thread_name(name).enable_all().build().expect("a runtime")))
    }

    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.0.as_ref().expect("the node runs").spawn(work).await.expect("it does not panic")
    }

    /// Returns when nothing runs there any more.
    async fn end(mut self) {
        let runtime = self.0.take().expect("it ends once");
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(STEP_TIMEOUT)).await.expect("it ends");
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A node: its folder, and its running process, if any.
pub struct Node {
    pub id: NodeId,
    pub name: String,
    pub clock: Arc<WrongClock>,
    /// Stops the node's dialogues before their gates.
    pub valve: Valve,
    folder: TempDir,
    lives: u64,
    life: Option<Life>,
}

struct Life {
    home: Home,
    context: Arc<NodeContext>,
    node_runtime: Option<NodeRuntime>,
}

impl Node {
    fn new(number: u64) -> Node {
        Node {
            id: NodeId(number),
            name: format!("n{number}"),
            clock: Arc::default(),
            valve: Valve::default(),
            folder: tempfile::tempdir().expect("a folder"),
            lives: 0,
            life: None,
        }
    }

    /// Returns the data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn runs(&self) -> bool {
        self.life.is_some()
    }

    pub fn context(&self) -> &Arc<NodeContext> {
        &self.life.as_ref().expect("this node runs").context
    }

    pub fn leads(&self) -> bool {
        self.runs()
            && matches!(*self.context().replica.role().borrow(), Role::Leader { .. })
            && self.context().leadership().is_some_and(|term| !term.ended())
    }

    /// Returns true if the node's gates may pass now.
    pub fn may_send(&self) -> bool {
        let context = self.context();
        let applied = context.replica.read(|ledger| ledger.head().applied);
        context.lease.is_valid(context.clock.boot(), applied)
    }

    /// Returns true if the node may be given claims, as far as it knows (P25).
    fn takes_claims(&self) -> bool {
        let takes = |ledger: &reveille_ledger::Ledger| {
            ledger.nodes().get(&self.id).is_some_and(reveille_ledger::Node::takes_claims)
        };
        self.context().replica.read(takes)
    }

    /// Returns the state of the node's relay pool for the mailbox.
    pub fn relay(&self) -> RelayStatus {
        let node_runtime = self.life.as_ref().and_then(|life| life.node_runtime.as_ref()).expect("this node works");
        node_runtime.relays.status().remove("mailbox").expect("the relay is known here")
    }

    async fn start_replica(
        &mut self,
        network: &Network,
        change: fn(&mut ReplicaOptions),
        backups: Option<BackupPlan>,
    ) -> LeadershipHandle {
        self.lives += 1;
        let home = Home::new(&self.name);
        let mut options =
            ReplicaOptions::new(self.data(), support::owner(self.id, self.lives), network.transport(self.id));
        // Longer than in production: two of these clusters run at once on a small machine, which may stall for two
        // seconds. The leader must not change unless a test cuts it off.
        options.heartbeat_ms = 100;
        options.election_ms = 2_500..3_500;
        options.startup_delay = Duration::from_millis(1_200);
        change(&mut options);
        let (address, clock) = (Network::address_of(self.id), Arc::clone(&self.clock));
        let (context, leadership_handle) = home
            .run(async move {
                let context = support::context(options, &address, clock, backups).await;
                let leadership_handle = NodeRuntime::start_leadership_actor(&context);
                (context, leadership_handle)
            })
            .await;
        self.life = Some(Life { home, context, node_runtime: None });
        leadership_handle
    }

    async fn start_node_runtime(&mut self, leadership_handle: LeadershipHandle) {
        let options = lifecycle::RuntimeOptions {
            name: self.name.clone(),
            hello_name: Some(self.name.clone()),
            credentials: Arc::default(),
            reply_rules: RelayRules::default(),
            journal_dir: self.folder.path().join("journal"),
            dialer: Arc::new(self.valve.clone()),
        };
        let life = self.life.as_mut().expect("this node runs");
        let context = Arc::clone(&life.context);
        let started =
            async move { NodeRuntime::start(context, leadership_handle, options, &CancellationToken::new()).await };
        life.node_runtime = Some(life.home.run(started).await.expect("a node runtime"));
    }
}

fn plan(target: &Option<Arc<dyn BackupTarget>>) -> Option<BackupPlan> {
    let mut plan = BackupPlan::new(target.clone()?, Duration::from_secs(3_600), 14);
    plan.opt_outs_every = Duration::from_millis(200);
    (plan.opt_outs_within, plan.stalled_after) = (Duration::from_secs(1), Duration::from_secs(2));
    Some(plan)
}

/// The cluster, its network and its mailbox.
pub struct Cluster {
    pub network: Network,
    pub sink: Sink,
    pub nodes: Vec<Node>,
    change: fn(&mut ReplicaOptions),
    /// Where the nodes make backups, every hour.
    backups: Option<Arc<dyn BackupTarget>>,
}

impl Cluster {
    /// Starts three nodes and waits until all hold a lease and take claims.
    pub async fn start() -> Cluster {
        Cluster::start_with(|_| {}).await
    }

    pub async fn start_with(change: fn(&mut ReplicaOptions)) -> Cluster {
        Cluster::start_with_backups(change, None).await
    }

    pub async fn start_with_backups(
        change: fn(&mut ReplicaOptions),
        backups: Option<Arc<dyn BackupTarget>>,
    ) -> Cluster {
        let sink = Sink::start(SinkOptions::default()).expect("a mailbox");
        let nodes = (1..=3).map(Node::new).collect();
        let mut cluster = Cluster { network: Network::default(), sink, nodes, change, backups };
        let mut started = Vec::new();
        for node in &mut cluster.nodes {
            started.push(node.start_replica(&cluster.network, change, plan(&cluster.backups)).await);
        }
        let member = |node: &Node| Member {
            name: node.name.clone(),
            address: Network::address_of(node.id),
            votes: true,
            key: None,
        };
        let members = cluster.nodes.iter().map(|node| (node.id, member(node))).collect();
        cluster.nodes[0].context().replica.initialize(ClusterId(7), &members).await.expect("a cluster");
        for (node, leadership_handle) in cluster.nodes.iter_mut().zip(started) {
            node.start_node_runtime(leadership_handle).await;
        }
        let is_ready = |node: &Node| node.may_send() && node.takes_claims();
        until("every node may send", || cluster.nodes.iter().all(is_ready).then_some(())).await;
        cluster
    }

    /// Returns the node that leads with a quorum: it has answered a linearizable read. Waits for one.
    pub async fn leader(&self) -> usize {
        self.leader_but(None).await
    }

    /// Returns the leader, but not the node `not`, which may still believe that it leads.
    pub async fn leader_but(&self, not: Option<usize>) -> usize {
        let end = soon();
        loop {
            for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| Some(*index) != not) {
                let deadline = Instant::now() + Duration::from_secs(2);
                if node.leads() && node.context().replica.linearizable(deadline).await.is_ok() {
                    return index;
                }
            }
            assert!(Instant::now() < end, "a node leads within {STEP_TIMEOUT:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Proposes a command on this node.
    pub async fn put(&self, index: usize, command: Command) -> CommandReply {
        self.nodes[index].context().replica.propose(&command, soon()).await.expect("an answer")
    }

    /// Cuts all links between this node and the others. The mailbox stays reachable.
    pub fn isolate(&self, index: usize) {
        self.network.isolate(self.nodes[index].id, self.nodes.iter().map(|node| node.id));
    }

    /// Holds the next email of this node between the mailbox's commit and its reply.
    pub fn hold_a_mail_of(&self, index: usize) -> Hold {
        self.sink.hold_next_answer(HoldRequest {
            ehlo: Some(self.nodes[index].name.clone()),
            point: HoldPoint::AfterCommit,
            limit: 2 * STEP_TIMEOUT,
            ..HoldRequest::default()
        })
    }

    /// Ends a node as `kill -9` would: its tasks end where they are, and no peer is notified. The folders stay.
    pub async fn kill(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        // Raft stops more politely than a kill, so the network is cut first: peers must not notice.
        self.network.switch_off(node.id);
        let Life { home, context, node_runtime } = node.life.take().expect("this node runs");
        home.end().await;
        drop(node_runtime);
        assert!(context.replica.shutdown(soon()).await, "the folder is closed");
    }

    /// Starts a new incarnation on the same folders.
    pub async fn restart(&mut self, index: usize) {
        self.network.switch_on(self.nodes[index].id);
        let plan = plan(&self.backups);
        let leadership_handle = self.nodes[index].start_replica(&self.network, self.change, plan).await;
        self.nodes[index].start_node_runtime(leadership_handle).await;
    }

    /// Stops a node as SIGTERM does. Returns true if it left nothing open.
    pub async fn stop_node(&mut self, index: usize) -> bool {
        let Life { home, context, node_runtime } = self.nodes[index].life.take().expect("this node runs");
        let node_runtime = node_runtime.expect("this node works");
        let clean = home.run(node_runtime.stop(STEP_TIMEOUT)).await;
        assert!(context.replica.shutdown(soon()).await, "the replica stops");
        drop(context);
        home.end().await;
        clean
    }

    /// Stops all that still runs.
    pub async fn end(mut self) {
        for index in 0..self.nodes.len() {
            if self.nodes[index].runs() {
                self.kill(index).await;
            }
        }
        self.sink.stop().await;
    }
}
