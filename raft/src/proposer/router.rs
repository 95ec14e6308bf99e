//! Sends a proposal or a read from any node to the leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::ReadPolicy;
use openraft::async_runtime::WatchReceiver;
use prost::bytes::Bytes;
use reveille_ledger::GENESIS_LEVEL;
use reveille_ledger::command::Command;
use reveille_ledger::ids::{Epoch, NodeId};
use reveille_ledger::reply::CommandReply;
use reveille_proto::peer::v1;
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::Raft;
use crate::election::leader_liveness::LeaderLiveness;
use crate::election::role::Role;
use crate::peer::client::PeerClient;
use crate::peer::{Destination, PeerError};
use crate::proposer::{ProposeError, Proposer, RetryBackoff, TryResult, encode};
use crate::state_machine::applied_state::AppliedState;
use crate::state_machine::apply_thread::decode_reply;
use crate::wire::milliseconds;

/// Extra time to wait for the leader's answer after the deadline that was sent to the leader.
const ANSWER_GRACE: Duration = Duration::from_millis(250);

/// Reason why a linearizable read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No leader with a quorum answered by the deadline.
    #[error("no leader can be reached: a majority of the nodes must run and reach each other")]
    NoLeader,
    /// The leader answered, but this node did not apply the index by the deadline.
    #[error("this node is behind: it has not applied entry {0} yet")]
    Behind(u64),
    /// This node is stopping.
    #[error("this node is stopping")]
    Stopped,
}

/// Limit of the retries of a proposal while there is no leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// Until its deadline. For actors.
    UntilDeadline,
    /// Until no leader was heard for longer than an election takes. For calls that an operator waits for.
    WhileLed,
    /// As long as this node leads: for the command of a peer, which is never forwarded again.
    HereOnly,
}

/// Finds the leader and retries until a deadline.
pub(crate) struct Router {
    pub raft: Raft,
    pub applied_state: Arc<AppliedState>,
    pub client: PeerClient,
    pub proposer: Proposer,
    pub role: watch::Receiver<Role>,
    pub leader_liveness: LeaderLiveness,
}

impl Router {
    /// Starts the proposer. Must be called on Raft's runtime.
    pub fn new(
        raft: Raft,
        applied_state: Arc<AppliedState>,
        client: PeerClient,
        role: watch::Receiver<Role>,
    ) -> Router {
        let proposer = Proposer::start(raft.clone(), client.identity.node());
        let leader_liveness = LeaderLiveness::new(raft.clone());
        Router { raft, applied_state, client, proposer, role, leader_liveness }
    }

    /// Returns id and address of a member. `None`: not a member.
    pub fn destination(&self, node: NodeId) -> Option<Destination> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let member = metrics.membership_config.get_node(&node.0)?;
        Some(Destination { node, address: member.address.clone() })
    }

    /// Proposes a command at the leader, wherever it is, and retries according to `policy`.
    pub async fn propose(
        &self,
        command: &Command,
        deadline: Instant,
        policy: RetryPolicy,
    ) -> Result<CommandReply, ProposeError> {
        self.propose_bytes(self.encode(command)?, deadline, policy).await
    }

    /// Brings an encoded command into the log of the leader.
    pub async fn propose_bytes(
        &self,
        command: Bytes,
        deadline: Instant,
        policy: RetryPolicy,
    ) -> Result<CommandReply, ProposeError> {
        let permit = self.proposer.in_flight.acquire(command.len(), deadline).await?;
        let mut backoff = RetryBackoff::new();
        loop {
            let role = *self.role.borrow();
            // Checked only before an attempt. A command that entered a log may still happen, so its outcome is awaited.
            if policy == RetryPolicy::WhileLed && self.leader_liveness.leaderless_for().is_some() {
                return Err(if role == Role::Stopped { ProposeError::Stopped } else { ProposeError::NoLeader });
            }
            let result = match role {
                Role::Leader { .. } => {
                    self.proposer.try_once(command.clone(), None, Arc::clone(&permit), deadline).await
                }
                _ if policy == RetryPolicy::HereOnly => TryResult::Failed(ProposeError::NoLeader),
                Role::Follower { leader: Some(leader) } => self.forward(leader, command.clone(), deadline).await,
                Role::Follower { leader: None } | Role::Candidate => TryResult::Retry(ProposeError::NoLeader),
                Role::Stopped => TryResult::Failed(ProposeError::Stopped),
            };
            match result {
                TryResult::Done(reply) => return Ok(reply),
                TryResult::Failed(error) => return Err(error),
                TryResult::Retry(error) => self.wait(&mut backoff, role, deadline).await.ok_or(error)?,
            }
        }
    }

    /// Proposes a command of one leadership on this node, under its epoch or not at all (P13). The command is neither
    /// forwarded nor stamped again: a decision of a deposed leader must not run under the next epoch.
    pub async fn propose_in_epoch(
        &self,
        epoch: Epoch,
        command: &Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        let command = self.encode(command)?;
        let permit = self.proposer.in_flight.acquire(command.len(), deadline).await?;
        match self.proposer.try_once(command, Some(epoch), permit, deadline).await {
            TryResult::Done(reply) => Ok(reply),
            // The stamp is missing or was refused: that leadership has ended.
            TryResult::Retry(ProposeError::NotReady) => Err(ProposeError::EpochOver),
            TryResult::Failed(error) | TryResult::Retry(error) => Err(error),
        }
    }

    /// Encodes a command. Refuses a command that the applied level does not allow (P23). The level never falls, so a
    /// command that passes here is also allowed when it is applied.
    fn encode(&self, command: &Command) -> Result<Bytes, ProposeError> {
        let needs = command.level();
        if needs > GENESIS_LEVEL {
            let ledger = self.applied_state.ledger.read().head().level;
            if needs > ledger {
                return Err(ProposeError::AboveLevel { needs, ledger });
            }
        }
        encode(command)
    }

    async fn forward(&self, leader: NodeId, command: Bytes, deadline: Instant) -> TryResult {
        let Some(to) = self.destination(leader) else { return TryResult::Retry(ProposeError::NoLeader) };
        let remaining = deadline.saturating_duration_since(Instant::now());
        let request = v1::ProposeRequest { header: None, command, remaining_ms: milliseconds(remaining) };
        match self.client.ask(&to, request, remaining + ANSWER_GRACE).await {
            Ok(answer) => classify_response(answer),
            Err(PeerError::Unreachable(_) | PeerError::Rejected(_)) => TryResult::Retry(ProposeError::NoLeader),
            Err(PeerError::Lost(_)) => TryResult::Failed(ProposeError::Unknown),
        }
    }

    /// Waits until the role changes, a leadership begins or ends, or the back-off passes. `None`: the deadline came
    /// first.
    async fn wait(&self, backoff: &mut RetryBackoff, seen: Role, deadline: Instant) -> Option<()> {
        let mut role = self.role.clone();
        let mut stamp = self.proposer.stamp();
        let pause = tokio::time::sleep(backoff.take());
        let change = async {
            tokio::select! {
                () = pause => {}
                _ = role.wait_for(|role| *role != seen) => {}
                _ = stamp.changed() => {}
            }
        };
        timeout_at(deadline.into(), change).await.ok()
    }

    /// Waits until every write that was answered before this call is applied on this node. Returns the applied index.
    pub async fn linearizable(&self, deadline: Instant) -> Result<u64, ReadError> {
        let mut backoff = RetryBackoff::new();
        let index = loop {
            let role = *self.role.borrow();
            let found = match role {
                Role::Leader { .. } => self.read_index_here(deadline).await,
                Role::Follower { leader: Some(leader) } => self.read_index_of(leader, deadline).await,
                Role::Follower { leader: None } | Role::Candidate => None,
                Role::Stopped => return Err(ReadError::Stopped),
            };
            match found {
                Some(index) => break index,
                None => self.wait(&mut backoff, role, deadline).await.ok_or(ReadError::NoLeader)?,
            }
        };
        self.wait_applied(index, deadline).await.ok_or(ReadError::Behind(index))
    }

    /// As leader: returns the index that a read must have applied, after a quorum has confirmed the leadership. `None`:
    /// the leadership was not confirmed by the deadline.
    pub async fn read_index_here(&self, deadline: Instant) -> Option<u64> {
        let asked = self.raft.get_read_linearizer(ReadPolicy::ReadIndex);
        let linearizer = timeout_at(deadline.into(), asked).await.ok()?.ok()?;
        Some(linearizer.read_log_id().index())
    }

    async fn read_index_of(&self, leader: NodeId, deadline: Instant) -> Option<u64> {
        let to = self.destination(leader)?;
        let remaining = deadline.saturating_duration_since(Instant::now());
        let request = v1::ReadIndexRequest { header: None, remaining_ms: milliseconds(remaining) };
        let answer = self.client.ask(&to, request, remaining).await.ok()?;
        (answer.index > 0).then_some(answer.index)
    }

    /// Waits until `index` is applied on this node. Returns the applied index. `None`: the deadline came first.
    pub async fn wait_applied(&self, index: u64, deadline: Instant) -> Option<u64> {
        let mut applied = self.applied_state.applied.subscribe();
        let reached = applied.wait_for(|applied| *applied >= index);
        timeout_at(deadline.into(), reached).await.ok()?.ok().map(|applied| *applied)
    }
}

/// Converts the leader's answer to a forwarded proposal.
fn classify_response(answer: v1::ProposeResponse) -> TryResult {
    use v1::not_proposed::Cause;
    use v1::propose_response::Outcome;
    let not_proposed = match answer.outcome {
        Some(Outcome::Reply(bytes)) => {
            return decode_reply(&bytes).map_or(TryResult::Failed(ProposeError::Unknown), TryResult::Done);
        }
        Some(Outcome::Unknown(_)) | None => return TryResult::Failed(ProposeError::Unknown),
        Some(Outcome::NotProposed(not_proposed)) => not_proposed,
    };
    match not_proposed.cause() {
        Cause::NotLeader | Cause::Stopped => TryResult::Retry(ProposeError::NoLeader),
        Cause::NotReady => TryResult::Retry(ProposeError::NotReady),
        Cause::Busy => TryResult::Retry(ProposeError::Busy),
        Cause::Unspecified => TryResult::Failed(ProposeError::Unknown),
    }
}
