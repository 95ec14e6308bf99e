//! A cluster of replicas in one process, with the minimum of a leadership that accepts commands.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use reveille_ledger::access::Access;
use reveille_ledger::command::{Command, EpochStart, Relay, VoterClock};
use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, Time};
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use reveille_raft::peer::{ApplicationRequest, Rejection, Transport};
use reveille_raft::{
    Application, ClusterId, EntryStamp, FatalError, GrpcTransport, Member, ProposeError, Replica, ReplicaOptions, Role,
};
use tempfile::TempDir;

/// Time limit of a step, far longer than needed, so that a loaded machine fails no test.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const CLUSTER: ClusterId = ClusterId(0x42);

pub fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Time(i64::try_from(since.as_millis()).expect("before the year 292 million"))
}

/// Waits until `look` returns a value.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = soon();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Answers each request with its sender and its payload.
pub struct Echo;

#[async_trait]
impl Application for Echo {
    async fn answer(&self, from: NodeId, payload: Vec<u8>, _limit: Duration) -> Result<Vec<u8>, Rejection> {
        match payload.as_slice() {
            b"never" => std::future::pending().await,
            b"refuse" => Err(Rejection::Unavailable("later".to_owned())),
            text => Ok([format!("{from}: ").as_bytes(), text].concat()),
        }
    }
}

/// Returns an application request with these bytes.
pub fn request(text: &str) -> ApplicationRequest {
    ApplicationRequest { name: "Test", payload: text.as_bytes().to_vec(), bulk: false }
}

/// The stamp of one leadership: its epoch, and a time that only grows.
struct Term {
    epoch: Epoch,
    now: AtomicI64,
}

impl EntryStamp for Term {
    fn stamp(&self) -> Option<(Epoch, Time)> {
        Some((self.epoch, Time(self.now.fetch_add(1, Ordering::Relaxed))))
    }
}

/// A node: its folder, and its replica while it runs.
pub struct Node {
    pub id: NodeId,
    pub address: String,
    pub folder: TempDir,
    pub replica: Option<Replica>,
    lives: AtomicU64,
}

impl Node {
    pub fn new(number: u64, address: String) -> Node {
        let folder = tempfile::tempdir().expect("a folder");
        Node { id: NodeId(number), address, folder, replica: None, lives: AtomicU64::new(0) }
    }

    pub fn replica(&self) -> &Replica {
        self.replica.as_ref().expect("this node runs")
    }

    /// Starts the node. It begins an epoch whenever it leads.
    pub async fn start(&mut self, transport: Arc<dyn Transport>) -> Result<(), FatalError> {
        self.start_with(transport, |_| {}).await
    }

    pub async fn start_with(
        &mut self,
        transport: Arc<dyn Transport>,
        change: impl FnOnce(&mut ReplicaOptions),
    ) -> Result<(), FatalError> {
        let incarnation = Incarnation(self.lives.fetch_add(1, Ordering::Relaxed) + 1);
        let mut options = options(self.folder.path(), self.id, transport);
        options.process_nonce = incarnation.0;
        change(&mut options);
        let replica = Replica::start(options, Arc::new(Echo)).await?;
        tokio::spawn(keep_terms(replica.clone(), ClaimOwner { node: self.id, incarnation }));
        self.replica = Some(replica);
        Ok(())
    }

    pub async fn stop(&mut self) {
        let replica = self.replica.take().expect("this node runs");
        assert!(replica.shutdown(soon()).await, "a replica ends in time");
    }
}

pub fn options(folder: &Path, node: NodeId, transport: Arc<dyn Transport>) -> ReplicaOptions {
    let first = ClaimOwner { node, incarnation: Incarnation(1) };
    let mut options = ReplicaOptions::new(folder.to_owned(), first, transport);
    // Longer than in production: many of these run at once on a small machine.
    options.heartbeat_ms = 100;
    options.election_ms = 600..1_200;
    options.startup_delay = Duration::from_millis(1_200);
    options
}

/// Begins an epoch whenever the node leads, as the cluster crate does, as far as commands need it.
async fn keep_terms(replica: Replica, leader: ClaimOwner) {
    let mut role = replica.role();
    let mut led = None;
    loop {
        let current = *role.borrow_and_update();
        match current {
            Role::Leader { term } if led == Some(term) => {}
            Role::Leader { term } => {
                replica.clear_stamp();
                led = begin(&replica, leader, term).await.then_some(term);
                if led.is_none() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            }
            Role::Stopped => return,
            Role::Follower { .. } | Role::Candidate => {
                replica.clear_stamp();
                led = None;
            }
        }
        if role.changed().await.is_err() {
            return;
        }
    }
}

async fn begin(replica: &Replica, leader: ClaimOwner, term: u64) -> bool {
    let readings = vec![VoterClock { node: leader.node, wall: wall() }];
    let start = Command::EpochStart(EpochStart::new(leader, 1, readings));
    match replica.propose_as_leader(term, start, soon()).await {
        Ok(CommandReply { outcome: CommandOutcome::EpochStarted { epoch, base, .. }, .. }) => {
            replica.set_stamp(Arc::new(Term { epoch, now: AtomicI64::new(base.0) }));
            true
        }
        Ok(other) => panic!("an epoch starts, but: {other:?}"),
        Err(_) => false,
    }
}

/// Returns a command that leaves a mark in the state.
pub fn mark(name: &str) -> Command {
    Command::RelayPut(
        Relay {
            name: name.to_owned(),
            pool: "default".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 25,
            access: Access::default(),
            rate_milli: 0,
            max_sessions: 1,
            late_rate_milli: 0,
            weight: 1,
        }
        .into(),
    )
}

pub fn has_mark(replica: &Replica, name: &str) -> bool {
    replica.read(|ledger| ledger.relays().get(&name.to_owned()).is_some())
}

pub async fn propose(replica: &Replica, name: &str) -> Result<CommandReply, ProposeError> {
    replica.propose(&mark(name), soon()).await
}

pub fn members(nodes: &[Node]) -> BTreeMap<NodeId, Member> {
    let member =
        |node: &Node| Member { name: format!("n{}", node.id.0), address: node.address.clone(), votes: true, key: None };
    nodes.iter().map(|node| (node.id, member(node))).collect()
}

/// Returns a transport on a free port.
pub fn loopback() -> Arc<GrpcTransport> {
    Arc::new(GrpcTransport::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port"))
}

/// Returns a transport on the same address, for a node that restarts.
pub fn rebind(address: &str) -> Arc<GrpcTransport> {
    Arc::new(GrpcTransport::bind(address.parse().expect("an address")).expect("the port is free again"))
}

/// Starts three nodes over TCP, and initializes them as a cluster.
pub async fn three_over_tcp() -> Vec<Node> {
    three_over_tcp_with(|_| {}).await
}

pub async fn three_over_tcp_with(change: impl Fn(&mut ReplicaOptions)) -> Vec<Node> {
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let transport = loopback();
        let mut node = Node::new(number, transport.address().to_string());
        node.start_with(transport, &change).await.expect("a new node starts");
        nodes.push(node);
    }
    nodes[0].replica().initialize(CLUSTER, &members(&nodes)).await.expect("a new cluster");
    nodes
}

/// Returns the node that leads with a quorum: it has answered a linearizable read. Waits for one.
pub async fn leader(nodes: &[Node]) -> usize {
    let end = soon();
    loop {
        for (place, node) in nodes.iter().enumerate() {
            let Some(replica) = &node.replica else { continue };
            let leads = matches!(*replica.role().borrow(), Role::Leader { .. });
            if leads && replica.linearizable(Instant::now() + Duration::from_secs(2)).await.is_ok() {
                return place;
            }
        }
        assert!(Instant::now() < end, "a node leads within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn stop_all(nodes: &mut [Node]) {
    for node in nodes {
        if node.replica.is_some() {
            node.stop().await;
        }
    }
}
