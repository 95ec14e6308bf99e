//! [`Replica`]: the handle that the rest of a node holds to propose, to read, and to follow what is applied.

mod runtime_watchdog;
mod start;
pub(crate) mod status;

pub(crate) use start::check_continued;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::async_runtime::WatchReceiver;
use openraft::{ChangeMembers, Instant as _};
use reveille_ledger::command::{Actor, Command, Entry};
use reveille_ledger::ids::{Epoch, Hash, NodeId, RunId, Time};
use reveille_ledger::reply::CommandReply;
use reveille_ledger::{ArchivePartKey, Ledger};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Raft;
use crate::archive::{ArchiveError, ArchiveReader};
use crate::election::eligibility::Eligibility;
use crate::election::leader_liveness::last_quorum_acked;
use crate::election::role::Role;
use crate::execution::Execution;
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::identity::{ClusterId, Identity};
use crate::membership::{Member, MembershipError, change_membership, initialize, members, peer_node};
use crate::peer::{Application, Destination, Peer};
use crate::proposer::{EntryStamp, ProposeError};
use crate::router::{ReadError, RetryPolicy, Router};
use crate::snapshot::manager::SnapshotManager;
use crate::snapshot::{PinnedSnapshot, SnapshotError};
use crate::state_machine::applied_state::{AppliedState, record_lock_time};
use crate::state_machine::checkpoints::Checkpoints;
use crate::state_machine::hint::Hints;
use crate::tls::{JoinToken, NodeTls};
use crate::wal::WalHandle;

/// A member that acknowledged nothing for this long cannot be the target of a leadership transfer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// Number of heartbeats without an acknowledgement after which a member may be dead.
const MISSED_HEARTBEATS: u32 = 10;

/// One node's replica of the ledger. Cheap to clone; all clones share one replica.
#[derive(Clone)]
pub struct Replica {
    pub(crate) inner: Arc<ReplicaShared>,
}

pub(crate) struct ReplicaShared {
    pub raft: Raft,
    pub applied_state: Arc<AppliedState>,
    pub archive: ArchiveReader,
    pub identity: Arc<Identity>,
    pub process_nonce: u64,
    pub router: Arc<Router>,
    pub eligibility: Eligibility,
    pub application: Arc<dyn Application>,
    pub snapshots: Arc<SnapshotManager>,
    pub tls: Option<NodeTls>,
    pub fatal_errors: FatalErrorCell,
    pub log: WalHandle,
    pub execution: Execution,
    pub runtime: Handle,
    pub stop: CancellationToken,
    pub ended: watch::Receiver<bool>,
}

impl Replica {
    /// Creates the cluster. Called once, on one node that never belonged to a cluster. All `members` vote, including
    /// this node; the others join when this node calls them. The caller draws `cluster` at random.
    pub async fn initialize(
        &self,
        cluster: ClusterId,
        members: &BTreeMap<NodeId, Member>,
    ) -> Result<(), MembershipError> {
        let initialized = self.inner.raft.is_initialized().await.map_err(|_| MembershipError::Stopped)?;
        if initialized {
            return Err(MembershipError::Initialized);
        }
        // Write the identity first: a log that is not empty must belong to a cluster.
        self.inner.identity.join(cluster, true)?;
        self.inner.router.leader_liveness.record_contact();
        initialize(&self.inner.raft, members).await
    }

    /// Proposes a command of the cluster itself, from any node, and returns the ledger's reply, which may be a refusal.
    /// After an error other than [`ProposeError::Unknown`] the command did not happen.
    pub async fn propose(&self, command: &Command, deadline: Instant) -> Result<CommandReply, ProposeError> {
        self.inner.router.propose(&Actor::System, command, deadline, RetryPolicy::UntilDeadline).await
    }

    /// As [`Replica::propose`], for the caller of an API, who waits. Fails with [`ProposeError::NoLeader`] as soon as
    /// no leader was heard for longer than an election takes, unless the command may have happened already.
    pub async fn propose_while_led(
        &self,
        actor: &Actor,
        command: &Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        self.inner.router.propose(actor, command, deadline, RetryPolicy::WhileLed).await
    }

    /// Proposes a command of one leadership, under its epoch or not at all (P13). The command is neither forwarded to
    /// another leader nor stamped with another epoch.
    pub async fn propose_in_epoch(
        &self,
        epoch: Epoch,
        actor: &Actor,
        command: &Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        self.inner.router.propose_in_epoch(epoch, actor, command, deadline).await
    }

    /// Proposes an entry without a stamp, an `EpochStart`, if this node still leads in that term of Raft. Other
    /// proposals cannot be stamped before it is applied.
    pub async fn propose_as_leader(
        &self,
        term: u64,
        command: Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        let entry = Entry { epoch: Epoch(0), now: Time(0), actor: Actor::System, command };
        self.inner.router.proposer.write_as_leader(term, &entry, deadline).await
    }

    /// For the judge: writes an entry that already has a stamp, as if a former leadership had left it in transit.
    /// `None`: the outcome is unknown.
    #[cfg(feature = "injected-bugs")]
    pub async fn propose_stamped(
        &self,
        term: u64,
        entry: &Entry,
        deadline: Instant,
    ) -> Option<Result<CommandReply, ProposeError>> {
        let written = self.inner.router.proposer.write_as_leader(term, entry, deadline).await;
        (written != Err(ProposeError::Unknown)).then_some(written)
    }

    /// Begins a leadership: from now on `stamp` stamps the commands that enter the log of this node.
    pub fn set_stamp(&self, stamp: Arc<dyn EntryStamp>) {
        self.inner.router.proposer.set_stamp(Some(stamp));
    }

    /// Ends the leadership: proposals wait for the next one.
    pub fn clear_stamp(&self) {
        self.inner.router.proposer.set_stamp(None);
    }

    /// Reads the applied state of this node. No entry is applied during the read: the closure must be short and must
    /// not wait.
    pub fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.inner.applied_state.read(read)
    }

    /// Returns the part of the archive that has this run, or its summary, as a ledger with only the rows of the part.
    /// With a tenant only parts that may have its runs are opened. `None`: no part has it.
    pub async fn archived(
        &self,
        run: RunId,
        tenant: Option<&str>,
    ) -> Result<Option<(ArchivePartKey, Arc<Ledger>)>, ArchiveError> {
        self.inner.archive.archived(run, tenant).await
    }

    /// Opens a part of the archive. `None`: its retention has ended since it was listed.
    pub async fn open_part(&self, key: ArchivePartKey) -> Result<Option<Arc<Ledger>>, ArchiveError> {
        self.inner.archive.open(key).await
    }

    /// Returns the blocks of the archive that are missing or damaged on this node, as far as known.
    pub fn missing_blocks(&self) -> Vec<Hash> {
        self.inner.snapshots.folder().missing_of_archive()
    }

    /// Forgets missing blocks that the state names no more. Returns those that are left. It reads all parts, without
    /// the lock.
    pub fn drop_unneeded_missing_blocks(&self) -> Vec<Hash> {
        self.inner.archive.drop_unneeded_missing_blocks()
    }

    /// Returns which of these blocks of the archive are not readable on this node, and of at most `others` more that it
    /// lacks. Blocks on the disk.
    ///
    /// # Errors
    /// The disk failed to read, so a block may be intact.
    pub fn unreadable_blocks(&self, asked: BTreeSet<Hash>, others: usize) -> Result<BTreeSet<Hash>, SnapshotError> {
        self.inner.archive.unreadable(asked, others)
    }

    /// Returns a block of the archive for a peer. `None`: it is not readable here either. Blocks on the disk.
    pub fn block(&self, hash: Hash) -> Option<Vec<u8>> {
        self.inner.archive.block(hash)
    }

    /// Makes a snapshot for a copy elsewhere, and reads the same state. Its blocks are kept until the result is
    /// dropped; blocks of the archive only as long as the newest state names them. Blocks on the disk.
    pub fn pinned_snapshot<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Result<(PinnedSnapshot, T), SnapshotError> {
        self.inner.snapshots.build_pinned(read)
    }

    /// Stores a block of the archive that a peer sent, if its bytes match `hash`. Blocks on the disk.
    pub fn put_block(&self, hash: Hash, bytes: &[u8]) -> io::Result<()> {
        self.inner.snapshots.put_block(hash, bytes).map_err(io::Error::other)
    }

    /// Waits until every write that was answered before this call, on any node, is applied on this node. Returns the
    /// applied index.
    pub async fn linearizable(&self, deadline: Instant) -> Result<u64, ReadError> {
        self.inner.router.linearizable(deadline).await
    }

    /// As [`Replica::linearizable`], for calls that an operator waits for. Fails with [`ReadError::NoLeader`] as soon
    /// as no leader was heard for longer than an election takes.
    pub async fn linearizable_while_led(&self, deadline: Instant) -> Result<u64, ReadError> {
        tokio::select! {
            biased;
            read = self.inner.router.linearizable(deadline) => read,
            () = self.inner.router.leader_liveness.leaderless() => Err(ReadError::NoLeader),
        }
    }

    /// Returns the applied index, which changes whenever it grows.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.inner.applied_state.applied.subscribe()
    }

    /// Waits until `index` is applied on this node. Returns the applied index. `None`: the deadline came first.
    pub async fn wait_applied(&self, index: u64, deadline: Instant) -> Option<u64> {
        self.inner.router.wait_applied(index, deadline).await
    }

    /// Returns hashes of the state, by index. The other nodes hash at the same indexes (I11).
    pub fn checkpoints(&self) -> BTreeMap<u64, Hash> {
        self.inner.applied_state.checkpoints.all()
    }

    /// Hashes the state on another thread if nothing was applied since index `seen`. Returns the applied index.
    pub fn take_checkpoint_when_quiet(&self, seen: u64) -> u64 {
        let checkpoints = &self.inner.applied_state.checkpoints;
        let (index, state) = self.read(|ledger| {
            let index = ledger.head().applied;
            let is_new = index == seen && !checkpoints.contains(index);
            let begun = Instant::now();
            let state = is_new.then(|| ledger.freeze());
            if is_new {
                record_lock_time("hash", begun);
            }
            (index, state)
        });
        if let Some(state) = state {
            Checkpoints::hash_later(checkpoints, self.inner.execution, index, state);
        }
        index
    }

    /// Returns a reader of the effects from this call on. Earlier effects are visible in the state only.
    pub fn hints(&self) -> Hints {
        Hints::new(self.inner.applied_state.hints.subscribe())
    }

    /// Returns the role of this node in its own view, which may be out of date.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.inner.router.role.clone()
    }

    /// Returns the time at which this leader sent its last message that a quorum has acknowledged (P9). `None`: this
    /// node does not lead, or no quorum has answered yet.
    pub fn last_quorum_acked(&self) -> Option<Instant> {
        last_quorum_acked(&self.inner.raft)
    }

    /// Returns the time without contact to a leader that has a quorum. `None` while it is shorter than an election
    /// takes ([`LEADERLESS_AFTER`](crate::LEADERLESS_AFTER)).
    pub fn leaderless_for(&self) -> Option<Duration> {
        self.inner.router.leader_liveness.leaderless_for()
    }

    /// Returns the members that this node knows.
    pub fn members(&self) -> BTreeMap<NodeId, Member> {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        members(&metrics.membership_config)
    }

    /// Returns true if the node is a member, as far as this node knows. A node that is being removed is a member
    /// until a majority has stored the change.
    pub fn is_member(&self, node: NodeId) -> bool {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let memberships = [&metrics.committed_membership_config, &metrics.membership_config];
        memberships.into_iter().any(|membership| membership.get_node(&node.0).is_some())
    }

    /// Returns true if a member votes, as far as this node knows.
    pub fn votes(&self, node: NodeId) -> bool {
        self.inner.raft.voter_ids().any(|voter| voter == node.0)
    }

    /// As leader: hands the leadership over to `to`. Returns when another node leads. Fails with `Unknown` at the
    /// deadline.
    pub async fn transfer_leader(&self, to: NodeId, deadline: Instant) -> Result<(), MembershipError> {
        if !matches!(*self.role().borrow(), Role::Leader { .. }) {
            return Err(MembershipError::NotLeader);
        }
        if !self.members().get(&to).is_some_and(|member| member.votes) {
            return Err(MembershipError::NotPossible(format!("node {to} does not vote")));
        }
        // A leader that hands over accepts no commands, so its successor must be alive.
        if !self.answers(to) {
            return Err(MembershipError::NotPossible(format!("node {to} does not answer")));
        }
        self.inner.raft.trigger().transfer_leader(to.0).await.map_err(|_| MembershipError::Stopped)?;
        let mut role = self.role();
        let led = role.wait_for(|role| matches!(role, Role::Follower { leader: Some(_) } | Role::Stopped));
        tokio::time::timeout_at(deadline.into(), led).await.map(drop).map_err(|_| MembershipError::Unknown)
    }

    /// On the leader: returns true if the member has acknowledged something within two seconds.
    pub fn answers(&self, node: NodeId) -> bool {
        self.answered_within(node, ANSWERED_WITHIN)
    }

    /// On the leader: returns true if the member has acknowledged one of the last ten heartbeats. On a busy machine a
    /// member that runs may miss them.
    pub fn answers_now(&self, node: NodeId) -> bool {
        let heartbeat = Duration::from_millis(self.inner.raft.config().heartbeat_interval);
        self.answered_within(node, MISSED_HEARTBEATS * heartbeat)
    }

    fn answered_within(&self, node: NodeId, within: Duration) -> bool {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let acked = metrics.heartbeat.as_ref().and_then(|all| all.get(&node.0).copied().flatten());
        acked.is_some_and(|acked| acked.elapsed() < within)
    }

    /// Stops campaigning for `duration`, unless no leader is heard for five seconds. The node still votes. Used after a
    /// leader handed over because it could not do its work (P13).
    pub fn pause_candidacy(&self, duration: Duration) {
        self.inner.eligibility.pause_candidacy(duration);
    }

    /// On the leader: adds a learner. It votes after [`Replica::promote`].
    pub async fn add_learner(&self, node: NodeId, member: Member, deadline: Instant) -> Result<(), MembershipError> {
        // Does not wait until the learner has caught up: check its lag before promoting it.
        change_membership(self.inner.raft.add_learner(node.0, peer_node(&member), false), deadline).await
    }

    /// On the leader: makes a learner a voter.
    pub async fn promote(&self, node: NodeId, deadline: Instant) -> Result<(), MembershipError> {
        let change = ChangeMembers::AddVoterIds(BTreeSet::from([node.0]));
        change_membership(self.inner.raft.change_membership(change, false), deadline).await
    }

    /// Returns true if a change of the members is half done: two sets of voters count. A leader that dies in the middle
    /// of a change leaves such a state.
    pub fn has_unfinished_change(&self) -> bool {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_joint_config().len() > 1
    }

    /// On the leader: finishes a change that is half done.
    pub async fn finish_change(&self, deadline: Instant) -> Result<(), MembershipError> {
        let change = ChangeMembers::AddVoterIds(BTreeSet::new());
        change_membership(self.inner.raft.change_membership(change, false), deadline).await
    }

    /// On the leader: removes a member. Drain the member first (P22). Its id is never used again.
    pub async fn remove(&self, node: NodeId, deadline: Instant) -> Result<(), MembershipError> {
        let ids = BTreeSet::from([node.0]);
        let change = if self.votes(node) { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) };
        change_membership(self.inner.raft.change_membership(change, false), deadline).await
    }

    /// Makes a token that admits one new node through this one, within `valid_for` of ledger time. `address` is this
    /// node's peer address. `None`: the cluster has no certificate authority.
    pub fn join_token(&self, new: NodeId, address: &str, valid_for: Duration) -> Option<JoinToken> {
        let now = self.read(|ledger| ledger.head().real_now());
        let expires_at_s = now.unix_s().saturating_add(valid_for.as_secs());
        Some(self.inner.tls.as_ref()?.join_token(new, address, expires_at_s))
    }

    /// Returns a secret for one purpose, the same on all members. A cluster without certificates, which is for tests on
    /// one machine, has no secret: its id stands for one.
    pub fn derived_secret(&self, purpose: &str) -> [u8; 32] {
        let id = || self.cluster().map_or(0, |cluster| cluster.0).to_be_bytes();
        self.tls().map_or_else(|| blake3::derive_key(purpose, &id()), |tls| tls.derived_secret(purpose))
    }

    /// Returns keys and certificates of this node. `None` in a cluster without certificates.
    pub fn tls(&self) -> Option<&NodeTls> {
        self.inner.tls.as_ref()
    }

    /// Returns a member to send requests to, possibly this node. `None`: not a member.
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        let client = self.inner.router.client.clone();
        if node == self.inner.identity.node() {
            let to = Destination { node, address: String::new(), key: None };
            return Some(Peer { client, to, own: Some(Arc::clone(&self.inner.application)) });
        }
        Some(Peer { client, to: self.inner.router.destination(node)?, own: None })
    }

    /// Returns the id of this node.
    pub fn node(&self) -> NodeId {
        self.inner.identity.node()
    }

    /// Returns the highest ledger level that this node applies: see [`ReplicaOptions::highest_level`].
    pub fn highest_level(&self) -> u32 {
        self.inner.applied_state.highest_level
    }

    /// Returns the random number of this process: see [`ReplicaOptions::process_nonce`].
    pub fn process_nonce(&self) -> u64 {
        self.inner.process_nonce
    }

    /// Marks the data folder as outdated and stops the node: the ledger knows a later process of this node than the
    /// data folder. No process may start with this folder again (P10).
    pub fn mark_outdated(&self, why: &str) {
        if let Err(fatal_error) = self.inner.identity.mark_outdated(why) {
            tracing::error!(error = %fatal_error, "could not record that this data folder is outdated: do not start it again");
        }
        self.inner.fatal_errors.raise(FatalError::Outdated(why.to_owned()));
    }

    /// Stops the node: its state at this index differs from that of a majority (P2).
    pub fn stop_diverged(&self, index: u64) {
        self.inner.fatal_errors.raise(FatalError::Diverged { index });
    }

    /// Returns the cluster that this node belongs to. `None`: it belongs to no cluster yet.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.inner.identity.cluster()
    }

    /// Returns Raft's runtime, for tasks that must run while the rest of the process is busy, such as a leader's
    /// actors. A task here must not block: a blocked runtime causes elections.
    pub fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Runs a blocking closure on a thread for blocking work. Fails if the closure panicked or the runtime ended.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        self.inner.execution.blocking(work).await
    }

    /// Returns the health of the log.
    pub fn log_health(&self) -> &WalHandle {
        &self.inner.log
    }

    /// Returns the fatal error, which is set when this node must stop.
    pub fn fatal_error(&self) -> watch::Receiver<Option<FatalError>> {
        self.inner.fatal_errors.watch()
    }

    /// Stops Raft and closes the data folder. `false`: the deadline came first, and the stop continues. In both cases
    /// everything acknowledged is on disk.
    pub async fn shutdown(&self, deadline: Instant) -> bool {
        self.inner.stop.cancel();
        let mut ended = self.inner.ended.clone();
        let all = ended.wait_for(|ended| *ended);
        matches!(tokio::time::timeout_at(deadline.into(), all).await, Ok(Ok(_)))
    }
}

// Dropping the last handle without a shutdown stops the node too.
impl Drop for ReplicaShared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
