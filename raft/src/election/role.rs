//! This node's role as Raft reports it. The report may be out of date.
//!
//! A leader that is cut off from the quorum reports the leader role for a while. Therefore no email depends on a role.
//! Emails depend only on a committed and applied claim (P4) and on an applied epoch (P13).

use openraft::ServerState;
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use reveille_ledger::ids::NodeId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::election::leader_liveness::LeaderLiveness;
use crate::types::TypeConfig;

/// The role of a node in its own view, which may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Elected by a quorum in this term of Raft. A leader with a new term has a new leadership, even if it had no other
    /// role in between.
    Leader {
        /// The term of Raft, which is not an epoch.
        term: u64,
    },
    /// Follows a leader or waits for one. A learner is a follower too.
    Follower {
        /// The leader that the node knows. `None`: it knows no leader.
        leader: Option<NodeId>,
    },
    /// Requests votes.
    Candidate,
    /// Raft has stopped on this node.
    Stopped,
}

fn role_of(metrics: &RaftServerMetrics<TypeConfig>) -> Role {
    match metrics.state {
        ServerState::Leader => Role::Leader { term: metrics.vote.leader_id.term },
        ServerState::Candidate => Role::Candidate,
        ServerState::Follower | ServerState::Learner => {
            let leader = metrics.current_leader.filter(|leader| *leader != metrics.id);
            Role::Follower { leader: leader.map(NodeId) }
        }
        ServerState::Shutdown => Role::Stopped,
    }
}

/// Copies openraft's view to `role` until openraft ends or `stop` is cancelled, then sets `Stopped`.
pub(crate) async fn follow(
    mut metrics: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    role: watch::Sender<Role>,
    leader_liveness: LeaderLiveness,
    stop: CancellationToken,
) {
    loop {
        let current = role_of(&metrics.borrow_and_update());
        let changed = role.send_if_modified(|known| std::mem::replace(known, current) != current);
        if changed && matches!(current, Role::Leader { .. }) {
            leader_liveness.record_contact();
        }
        if current == Role::Stopped {
            return;
        }
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { break },
            () = stop.cancelled() => break,
        }
    }
    role.send_replace(Role::Stopped);
}
