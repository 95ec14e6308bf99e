//! Status of a node's Raft for operators and metrics: numbers of one instant.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use reveille_ledger::ids::NodeId;

use crate::election::role::Role;
use crate::membership::{Member, members};
use crate::replica::Replica;

/// One node's view of Raft. Indexes are log indexes; zero means none yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Id of this node.
    pub node: NodeId,
    /// Role of this node in its own view.
    pub role: Role,
    /// Leader that this node knows, possibly itself. `None` while this node is leaderless.
    pub leader: Option<NodeId>,
    /// Time without contact to a leader that has a quorum. `None` while it is shorter than an election takes.
    pub leaderless_for: Option<Duration>,
    /// Term of Raft, which is not an epoch.
    pub term: u64,
    /// Index of the last entry in this node's log.
    pub last_index: u64,
    /// Index of the last entry that this node knows to be committed.
    pub committed_index: u64,
    /// Index of the last applied entry.
    pub applied_index: u64,
    /// Index of the last entry in this node's newest snapshot.
    pub snapshot_index: u64,
    /// Index of the last entry that this node's log has purged.
    pub purged_index: u64,
    /// All members. Only a leader knows the positions of their logs.
    pub members: BTreeMap<NodeId, MemberStatus>,
}

/// One member in the view of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The member.
    pub member: Member,
    /// Index up to which the member's log equals the leader's. `None` unless this node leads.
    pub matched_index: Option<u64>,
    /// Number of entries that the member lacks. `None` unless this node leads.
    pub lag: Option<u64>,
}

impl Replica {
    /// Returns this node's current view of Raft.
    pub fn status(&self) -> Status {
        let inner = &self.inner;
        let leaderless_for = inner.router.leader_liveness.leaderless_for();
        let metrics = inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let last_index = metrics.last_log_index.unwrap_or_default();
        let own = inner.identity.node();
        let member_status = |(id, member): (NodeId, Member)| {
            let replication = metrics.replication.as_ref();
            let matched = replication.and_then(|all| all.get(&id.0)).map(|log_id| log_id.map_or(0, |id| id.index));
            let matched_index = if id == own && replication.is_some() { Some(last_index) } else { matched };
            let lag = matched_index.map(|matched| last_index.saturating_sub(matched));
            (id, MemberStatus { member, matched_index, lag })
        };
        Status {
            node: own,
            role: *inner.router.role.borrow(),
            leader: metrics.current_leader.map(NodeId).filter(|_| leaderless_for.is_none()),
            leaderless_for,
            term: metrics.current_term,
            last_index,
            committed_index: metrics.cluster_committed.map_or(0, |id| id.index),
            applied_index: *inner.applied_state.applied.borrow(),
            snapshot_index: metrics.snapshot.map_or(0, |id| id.index),
            purged_index: metrics.purged.map_or(0, |id| id.index),
            members: members(&metrics.membership_config).into_iter().map(member_status).collect(),
        }
    }
}
