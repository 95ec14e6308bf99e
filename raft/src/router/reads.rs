//! Linearizable reads: the leader names an index, and this node waits until that index is applied.

use std::time::Instant;

use openraft::ReadPolicy;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use tokio::time::timeout_at;

use super::Router;
use crate::election::role::Role;
use crate::proposer::RetryBackoff;
use crate::wire::milliseconds;

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

impl Router {
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
