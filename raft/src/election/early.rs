//! An election as soon as the leader's promise is over, if the leader's connection has ended.
//!
//! A leader that dies ends its connections at once; one that is slow or cut off does not. So the end of its connection
//! is a hint that no heartbeat will come. It changes no rule: followers keep their promise not to vote for the maximum
//! of `election_ms` after they heard the leader (P9), and a pre-vote fails while others hear it. The hint only saves
//! the random time that a follower would wait afterwards. A forged hint causes only a pre-vote.

use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use reveille_ledger::ids::NodeId;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::eligibility::Eligibility;
use super::leader_liveness::LeaderLiveness;
use super::role::Role;
use crate::Raft;

/// The followers ask for votes one after the other, in the order of their ids, so that their votes are not divided.
const APART: Duration = Duration::from_millis(150);

/// Asks for votes early when a connection of the leader has ended.
#[derive(Clone)]
pub(crate) struct EarlyElection {
    pub raft: Raft,
    pub own: NodeId,
    pub role: watch::Receiver<Role>,
    pub liveness: LeaderLiveness,
    pub eligibility: Eligibility,
    /// Time after the last heartbeat in which followers give no other node their vote.
    pub promised: Duration,
    /// Interval of heartbeats: the others may have heard the leader so much later.
    pub heartbeat: Duration,
    pub runtime: Handle,
}

impl EarlyElection {
    /// A connection on which `peer` sent entries has ended.
    pub fn connection_ended(&self, peer: NodeId) {
        if self.follows(peer) {
            self.runtime.spawn(self.clone().campaign(peer));
        }
    }

    fn follows(&self, peer: NodeId) -> bool {
        *self.role.borrow() == Role::Follower { leader: Some(peer) }
    }

    async fn campaign(self, leader: NodeId) {
        let silent_for = self.promised + self.heartbeat + APART * self.others_first(leader);
        while let Some(left) = silent_for.checked_sub(self.liveness.silence()).filter(|left| !left.is_zero()) {
            let silence = self.liveness.silence();
            tokio::time::sleep(left).await;
            // It has another connection.
            if self.liveness.silence() < silence {
                return;
            }
        }
        if self.follows(leader) && self.eligibility.may_campaign() {
            tracing::info!(%leader, "the leader's connection ended and no heartbeat came: asking for votes");
            // It fails only if Raft has stopped.
            let _ = self.raft.trigger().elect(true).await;
        }
    }

    /// Number of voters that ask before this node.
    fn others_first(&self, leader: NodeId) -> u32 {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let voters = metrics.membership_config.membership().voter_ids();
        voters.filter(|voter| *voter < self.own.0 && *voter != leader.0).count() as u32
    }
}
