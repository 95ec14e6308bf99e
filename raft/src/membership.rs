//! Members of the cluster and how they change: one node at a time, on the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use openraft::ChangeMembers;
use openraft::errors::{ClientWriteError, InitializeError, RaftError};
use reveille_ledger::ids::NodeId;
use tokio::time::timeout_at;

use crate::Raft;
use crate::fatal_error::FatalError;
use crate::types::{PeerNode, StoredMembership, TypeConfig};

/// A member of the cluster, as recorded in the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Display name.
    pub name: String,
    /// `host:port` of its peer listener, reachable by the other members.
    pub address: String,
    /// True if the member votes. False if it is a learner.
    pub votes: bool,
}

/// Reason why the membership did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// This node does not lead. The caller must ask the leader.
    #[error("this node does not lead; ask the leader")]
    NotLeader,
    /// This node already belongs to a cluster.
    #[error("this node belongs to a cluster already")]
    Initialized,
    /// The change does not fit the current members.
    #[error("not possible: {0}")]
    NotPossible(String),
    /// The change may have happened. The caller must read the members.
    #[error("the outcome is unknown: read the members")]
    Unknown,
    /// This node is stopping.
    #[error("this node is stopping")]
    Stopped,
    /// The data folder could not be written.
    #[error(transparent)]
    Fatal(#[from] FatalError),
}

/// The members of a stored membership.
pub(crate) fn members(stored: &StoredMembership) -> BTreeMap<NodeId, Member> {
    let voters: BTreeSet<u64> = stored.voter_ids().collect();
    let member = |id: &u64, node: &PeerNode| Member {
        name: node.name.clone(),
        address: node.address.clone(),
        votes: voters.contains(id),
    };
    stored.nodes().map(|(id, node)| (NodeId(*id), member(id, node))).collect()
}

fn node(member: &Member) -> PeerNode {
    PeerNode { address: member.address.clone(), name: member.name.clone() }
}

/// Writes the first membership. Raft accepts it only in an empty log.
pub(crate) async fn initialize(raft: &Raft, all: &BTreeMap<NodeId, Member>) -> Result<(), MembershipError> {
    let nodes: BTreeMap<u64, PeerNode> = all.iter().map(|(id, member)| (id.0, node(member))).collect();
    raft.initialize(nodes).await.map_err(|error| match error {
        RaftError::APIError(InitializeError::NotAllowed(_)) => MembershipError::Initialized,
        RaftError::APIError(error) => MembershipError::NotPossible(error.to_string()),
        RaftError::Fatal(_) => MembershipError::Stopped,
    })
}

/// One change of the membership.
pub(crate) enum MembershipChange {
    /// Adds a node as a learner.
    Learn(NodeId, Member),
    /// Makes a learner a voter.
    Promote(NodeId),
    /// Removes a node.
    Remove(NodeId),
}

pub(crate) async fn change_membership(
    raft: &Raft,
    change: MembershipChange,
    deadline: Instant,
) -> Result<(), MembershipError> {
    let done = async {
        match change {
            // Does not wait until the learner has caught up: check its lag before promoting it.
            MembershipChange::Learn(id, member) => raft.add_learner(id.0, node(&member), false).await.map(drop),
            MembershipChange::Promote(id) => {
                raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::from([id.0])), false).await.map(drop)
            }
            MembershipChange::Remove(id) => {
                let ids = BTreeSet::from([id.0]);
                let votes = raft.voter_ids().any(|voter| voter == id.0);
                let change = if votes { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) };
                raft.change_membership(change, false).await.map(drop)
            }
        }
    };
    match timeout_at(deadline.into(), done).await {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(MembershipError::Unknown),
    }
}

fn failed(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => MembershipError::NotLeader,
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => MembershipError::Unknown,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
            MembershipError::NotPossible(error.to_string())
        }
        RaftError::APIError(error) => MembershipError::NotPossible(error.to_string()),
        RaftError::Fatal(_) => MembershipError::Stopped,
    }
}
