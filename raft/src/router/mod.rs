//! The router sends proposals and reads from any node to the leader, and retries until a deadline.

mod proposals;
mod reads;

use std::sync::Arc;
use std::time::Instant;

use openraft::async_runtime::WatchReceiver;
use reveille_ledger::ids::NodeId;
use tokio::sync::watch;
use tokio::time::timeout_at;

pub(crate) use self::proposals::RetryPolicy;
pub use self::reads::ReadError;
use crate::Raft;
use crate::election::leader_liveness::LeaderLiveness;
use crate::election::role::Role;
use crate::peer::Destination;
use crate::peer::client::PeerClient;
use crate::proposer::{Proposer, RetryBackoff};
use crate::state_machine::applied_state::AppliedState;

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

    /// Returns id, address and key of a member. `None`: not a member.
    pub fn destination(&self, node: NodeId) -> Option<Destination> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let member = metrics.membership_config.get_node(&node.0)?;
        Some(Destination { node, address: member.address.clone(), key: member.key })
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
}
