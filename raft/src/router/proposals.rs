//! Proposals: to the proposer of this node if it leads, else to the leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use reveille_ledger::GENESIS_LEVEL;
use reveille_ledger::command::{Actor, Command};
use reveille_ledger::ids::{Epoch, NodeId};
use reveille_ledger::reply::CommandReply;
use reveille_proto::peer::v1;

use super::Router;
use crate::election::role::Role;
use crate::peer::PeerError;
use crate::proposer::{ProposeError, RetryBackoff, TryResult, encode};
use crate::state_machine::apply_thread::decode_reply;
use crate::wire::milliseconds;

/// Extra time to wait for the leader's answer after the deadline that was sent to the leader.
const ANSWER_GRACE: Duration = Duration::from_millis(250);

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

impl Router {
    /// Proposes a command of this actor at the leader, wherever it is, and retries according to `policy`.
    pub async fn propose(
        &self,
        actor: &Actor,
        command: &Command,
        deadline: Instant,
        policy: RetryPolicy,
    ) -> Result<CommandReply, ProposeError> {
        self.propose_bytes(self.encode(actor, command)?, deadline, policy).await
    }

    /// Brings an encoded actor and its command into the log of the leader.
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
        actor: &Actor,
        command: &Command,
        deadline: Instant,
    ) -> Result<CommandReply, ProposeError> {
        let command = self.encode(actor, command)?;
        let permit = self.proposer.in_flight.acquire(command.len(), deadline).await?;
        match self.proposer.try_once(command, Some(epoch), permit, deadline).await {
            TryResult::Done(reply) => Ok(reply),
            // The stamp is missing or was refused: that leadership has ended.
            TryResult::Retry(ProposeError::NotReady) => Err(ProposeError::EpochOver),
            TryResult::Failed(error) | TryResult::Retry(error) => Err(error),
        }
    }

    /// Encodes an actor and its command. Refuses a command that the applied level does not allow (P23). The level never
    /// falls, so a command that passes here is also allowed when it is applied.
    fn encode(&self, actor: &Actor, command: &Command) -> Result<Bytes, ProposeError> {
        let needs = command.level();
        if needs > GENESIS_LEVEL {
            let ledger = self.applied_state.ledger.read().head().level;
            if needs > ledger {
                return Err(ProposeError::AboveLevel { needs, ledger });
            }
        }
        encode(actor, command)
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
