//! Members of the cluster and how they change: one node at a time, on the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use openraft::errors::{ChangeMembershipError, ClientWriteError, InitializeError, RaftError};
use reveille_ledger::ids::NodeId;
use tokio::time::timeout_at;

use crate::Raft;
use crate::fatal_error::FatalError;
use crate::tls::KeyPin;
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
    /// Hash of its public key: no other node can call in its name. `None` in a cluster without certificates.
    pub key: Option<KeyPin>,
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
    /// Another change is not finished yet. The caller tries again.
    #[error("another change of the members is not finished")]
    InProgress,
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
        key: node.key,
    };
    stored.nodes().map(|(id, node)| (NodeId(*id), member(id, node))).collect()
}

pub(crate) fn peer_node(member: &Member) -> PeerNode {
    PeerNode { address: member.address.clone(), name: member.name.clone(), key: member.key }
}

/// Writes the first membership. Raft accepts it only in an empty log.
pub(crate) async fn initialize(raft: &Raft, all: &BTreeMap<NodeId, Member>) -> Result<(), MembershipError> {
    let nodes: BTreeMap<u64, PeerNode> = all.iter().map(|(id, member)| (id.0, peer_node(member))).collect();
    raft.initialize(nodes).await.map_err(|error| match error {
        RaftError::APIError(InitializeError::NotAllowed(_)) => MembershipError::Initialized,
        RaftError::APIError(error) => MembershipError::NotPossible(error.to_string()),
        RaftError::Fatal(_) => MembershipError::Stopped,
    })
}

/// Waits for a change of the membership until the deadline.
pub(crate) async fn change_membership<T>(
    change: impl Future<Output = Result<T, RaftError<TypeConfig, ClientWriteError<TypeConfig>>>>,
    deadline: Instant,
) -> Result<(), MembershipError> {
    match timeout_at(deadline.into(), change).await {
        Ok(result) => result.map(drop).map_err(failed),
        Err(_) => Err(MembershipError::Unknown),
    }
}

fn failed(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => MembershipError::NotLeader,
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => MembershipError::Unknown,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))) => {
            MembershipError::InProgress
        }
        RaftError::APIError(error) => MembershipError::NotPossible(error.to_string()),
        RaftError::Fatal(_) => MembershipError::Stopped,
    }
}
