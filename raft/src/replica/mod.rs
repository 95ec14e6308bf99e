//! The handle that the rest of a node holds: propose, read, follow what was applied.

mod runtime_watchdog;
mod start;
pub(crate) mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use reveille_ledger::Ledger;
use reveille_ledger::command::Command;
use reveille_ledger::ids::{Epoch, Hash, NodeId};
use reveille_ledger::reply::CommandReply;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Raft;
use crate::election::eligibility::Eligibility;
use crate::election::leader_liveness::last_quorum_acked;
use crate::election::role::Role;
use crate::execution::Execution;
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::identity::{ClusterId, Identity};
use crate::membership::{Member, MembershipChange, MembershipError, change_membership, initialize, members};
use crate::peer::{Application, Destination, Peer, PeerError, PeerIdentity};
use crate::proposer::router::{ReadError, RetryPolicy, Router};
use crate::proposer::{ProposeError, Stamp};
use crate::state_machine::applied_state::AppliedState;
use crate::state_machine::hint::Hints;
use crate::wal::WalHealth;

/// A member that acknowledged nothing for so long does not become the leader by a transfer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// One node's copy of the ledger, kept equal with the others. Cheap to clone; all clones are one replica.
#[derive(Clone)]
pub struct Replica {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub raft: Raft,
    pub applied_state: Arc<AppliedState>,
    pub identity: Arc<Identity>,
    pub process_nonce: u64,
    pub router: Arc<Router>,
    pub eligibility: Eligibility,
    pub application: Arc<dyn Application>,
    pub fatal_errors: FatalErrorCell,
    pub log: WalHealth,
    pub execution: Execution,
    pub runtime: Handle,
    pub stop: CancellationToken,
    pub ended: watch::Receiver<bool>,
}

impl Replica {
    /// Makes the cluster, once, on one node that was never in one. All `members` vote, this node among
    /// them; the others join when this one calls them. `cluster` is drawn by the caller, at random.
    pub async fn initialize(
        &self,
        cluster: ClusterId,
        members: &BTreeMap<NodeId, Member>,
    ) -> Result<(), MembershipError> {
        let initialized = self.inner.raft.is_initialized().await.map_err(|_| MembershipError::Stopped)?;
        if initialized {
            return Err(MembershipError::Initialized);
        }
        // The name first: a log that is not empty always belongs to a cluster.
        self.inner.identity.join(cluster, true)?;
        self.inner.router.leader_liveness.record_contact();
        initialize(&self.inner.raft, members).await
    }

    /// Brings a command into the log and gives the ledger's reply, refusals among them. Any node takes it.
    /// Only [`ProposeError::Unknown`] may have happened.
    pub async fn propose(&self, command: &Command, deadline: Instant) -> Result<CommandReply, ProposeError> {
        self.inner.router.propose(command, deadline, RetryPolicy::UntilDeadline).await
    }

    /// As [`Replica::propose`], for whoever waits at a terminal: ends with [`ProposeError::NoLeader`] as soon
    /// as there is no leader for longer than an election takes, unless it may have happened already.
    pub async fn propose_while_led(&self, command: &Command, deadline: Instant) -> Result<CommandReply, ProposeError> {
        self.inner.router.propose(command, deadline, RetryPolicy::WhileLed).await
    }

    /// Brings a command of one leadership into the log, under its epoch or not at all (P13): it is neither
    /// sent on to another leader nor stamped with another epoch.
    pub async fn propose_in_epoch(
        &self,
        epoch: Epoch,
        command: &Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        self.inner.router.propose_in_epoch(epoch, command, deadline).await
    }

    /// Proposes an entry without a stamp, an `EpochStart`, if this node still leads in that term of Raft.
    pub async fn propose_as_leader(
        &self,
        term: u64,
        command: Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        self.inner.router.proposer.propose_as_leader(term, command, deadline).await
    }

    /// For the judge alone: an entry with a stamp of its own, as one that a former leadership left on its way would
    /// come. None: nobody knows what became of it.
    #[cfg(feature = "planted-bugs")]
    pub async fn propose_stamped(
        &self,
        term: u64,
        entry: &reveille_ledger::command::Entry,
        deadline: Instant,
    ) -> Option<Result<CommandReply, ProposeError>> {
        let written = self.inner.router.proposer.write_as_leader(term, entry, deadline).await;
        (written != Err(ProposeError::Unknown)).then_some(written)
    }

    /// A term stands: from here on commands are stamped by it and enter the log of this node, while it leads.
    pub fn set_stamp(&self, stamp: Arc<dyn Stamp>) {
        self.inner.router.proposer.set_stamp(Some(stamp));
    }

    /// The term has ended: proposals wait for the next one.
    pub fn clear_stamp(&self) {
        self.inner.router.proposer.set_stamp(None);
    }

    /// Reads the state that this node has applied. No entry is applied meanwhile: be short, and never wait
    /// in it.
    pub fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.inner.applied_state.read(read)
    }

    /// Waits until every write that was answered before this call, on any node, is applied here; gives the
    /// applied index.
    pub async fn linearizable(&self, deadline: Instant) -> Result<u64, ReadError> {
        self.inner.router.linearizable(deadline).await
    }

    /// As [`Replica::linearizable`], for whoever waits at a terminal: ends with [`ReadError::NoLeader`] as soon
    /// as there is no leader for longer than an election takes.
    pub async fn linearizable_while_led(&self, deadline: Instant) -> Result<u64, ReadError> {
        tokio::select! {
            biased;
            read = self.inner.router.linearizable(deadline) => read,
            () = self.inner.router.leader_liveness.leaderless() => Err(ReadError::NoLeader),
        }
    }

    /// The applied index, now and whenever it grows.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.inner.applied_state.applied.subscribe()
    }

    /// Waits until `index` is applied here; gives the applied index. `None`: the deadline came first.
    pub async fn wait_applied(&self, index: u64, deadline: Instant) -> Option<u64> {
        self.inner.router.wait_applied(index, deadline).await
    }

    /// Hashes of the state at indexes that other nodes have hashed too (I11), by index.
    pub fn checkpoints(&self) -> BTreeMap<u64, Hash> {
        self.inner.applied_state.checkpoints.all()
    }

    /// Takes the hash of the state when nothing was applied since index `seen`, and it is not too large to be walked
    /// while entries wait; gives the index that is applied now.
    pub fn take_checkpoint_when_quiet(&self, seen: u64) -> u64 {
        self.read(|ledger| self.inner.applied_state.checkpoints.take_when_quiet(ledger, seen))
    }

    /// A reader of effects from here on. Look at the state first.
    pub fn effects(&self) -> Hints {
        Hints::new(self.inner.applied_state.hints.subscribe())
    }

    /// What this node believes to be.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.inner.router.role.clone()
    }

    /// When this leader's last message was sent that a quorum has acknowledged (P9). `None`: it does not
    /// lead, or no quorum has answered it yet.
    pub fn last_quorum_acked(&self) -> Option<Instant> {
        last_quorum_acked(&self.inner.raft)
    }

    /// For how long this node had no sign of a leader that a quorum stands behind, once that is longer than
    /// an election takes ([`LEADERLESS_AFTER`](crate::LEADERLESS_AFTER)).
    pub fn leaderless_for(&self) -> Option<Duration> {
        self.inner.router.leader_liveness.leaderless_for()
    }

    /// The members, as far as this node knows.
    pub fn members(&self) -> BTreeMap<NodeId, Member> {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        members(&metrics.membership_config)
    }

    /// Names a successor; returns when another node leads, or at the deadline. Only a leader can.
    pub async fn transfer_leader(&self, to: NodeId, deadline: Instant) -> Result<(), MembershipError> {
        if !matches!(*self.role().borrow(), Role::Leader { .. }) {
            return Err(MembershipError::NotLeader);
        }
        if !self.members().get(&to).is_some_and(|member| member.votes) {
            return Err(MembershipError::NotPossible(format!("node {to} does not vote")));
        }
        // A leader that hands over takes no commands any more: not for the sake of a node that is gone.
        if !self.answers(to) {
            return Err(MembershipError::NotPossible(format!("node {to} does not answer")));
        }
        self.inner.raft.trigger().transfer_leader(to.0).await.map_err(|_| MembershipError::Stopped)?;
        let mut role = self.role();
        let led = role.wait_for(|role| matches!(role, Role::Follower { leader: Some(_) } | Role::Stopped));
        match tokio::time::timeout_at(deadline.into(), led).await {
            Ok(_) => Ok(()),
            Err(_) => Err(MembershipError::Unknown),
        }
    }

    fn answers(&self, node: NodeId) -> bool {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let acked = metrics.heartbeat.as_ref().and_then(|all| all.get(&node.0).copied().flatten());
        acked.is_some_and(|acked| acked.elapsed() < ANSWERED_WITHIN)
    }

    /// Does not stand for election for this long (P13: a leader that handed over because it could not do
    /// its work), unless for five seconds no leader is heard of. It still votes.
    pub fn pause_candidacy(&self, duration: Duration) {
        self.inner.eligibility.pause_candidacy(duration);
    }

    /// Adds a node that learns; on the leader. It votes after [`Replica::promote`].
    pub async fn add_learner(&self, node: NodeId, member: Member, deadline: Instant) -> Result<(), MembershipError> {
        change_membership(&self.inner.raft, MembershipChange::Learn(node, member), deadline).await
    }

    /// Lets a node that learns vote; on the leader.
    pub async fn promote(&self, node: NodeId, deadline: Instant) -> Result<(), MembershipError> {
        change_membership(&self.inner.raft, MembershipChange::Promote(node), deadline).await
    }

    /// Takes a node out of the cluster; on the leader. Drain it first (P22); its id is never used again.
    pub async fn remove(&self, node: NodeId, deadline: Instant) -> Result<(), MembershipError> {
        change_membership(&self.inner.raft, MembershipChange::Remove(node), deadline).await
    }

    /// Asks the node that listens at a peer address for its identity: so the founders of a cluster find each other.
    pub async fn identify(&self, address: &str, limit: Duration) -> Result<PeerIdentity, PeerError> {
        self.inner.router.client.identify(address, limit).await
    }

    /// The way to a member, this node among them. `None`: not a member.
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        let client = self.inner.router.client.clone();
        if node == self.inner.identity.node() {
            let to = Destination { node, address: String::new() };
            return Some(Peer { client, to, own: Some(Arc::clone(&self.inner.application)) });
        }
        Some(Peer { client, to: self.inner.router.destination(node)?, own: None })
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.inner.identity.node()
    }

    /// The highest level of the ledger that this node applies: see [`Options::highest_level`].
    pub fn highest_level(&self) -> u32 {
        self.inner.applied_state.highest_level
    }

    /// What this process drew for its life: see [`Options::life`].
    pub fn process_nonce(&self) -> u64 {
        self.inner.process_nonce
    }

    /// The ledger knows a later life of this node than its data folder does: it stops, and no process starts with
    /// that folder again (P10).
    pub fn mark_outdated(&self, why: &str) {
        if let Err(fatal_error) = self.inner.identity.mark_outdated(why) {
            tracing::error!(error = %fatal_error, "the data folder could not take note that it is too old: do not start it again");
        }
        self.inner.fatal_errors.raise(FatalError::Outdated(why.to_owned()));
    }

    /// The cluster that this node belongs to, if any yet.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.inner.identity.cluster()
    }

    /// Raft's own runtime: for what must go on while the rest of the process is busy, such as a leader's
    /// actors. Whatever runs here never blocks for long, or elections follow.
    pub fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Does what blocks where it holds nobody up. An error: it panicked, or the runtime ended.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        self.inner.execution.blocking(work).await
    }

    /// For how long the log's disk has been at the write or sync that runs now. `None`: it is idle.
    pub fn sync_running_for(&self) -> Option<Duration> {
        self.inner.log.sync_running_for()
    }

    /// How the log fares.
    pub fn log(&self) -> &WalHealth {
        &self.inner.log
    }

    /// Set when this node must stop, and say why.
    pub fn fatal_error(&self) -> watch::Receiver<Option<FatalError>> {
        self.inner.fatal_errors.watch()
    }

    /// Stops taking part and closes the data folder. `false`: not all of it was done by the deadline; the
    /// rest goes on, and what was acknowledged is on disk in any case.
    pub async fn shutdown(&self, deadline: Instant) -> bool {
        self.inner.stop.cancel();
        let mut ended = self.inner.ended.clone();
        let all = ended.wait_for(|ended| *ended);
        matches!(tokio::time::timeout_at(deadline.into(), all).await, Ok(Ok(_)))
    }
}

// A node that drops its last handle without a shutdown stops all the same.
impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
