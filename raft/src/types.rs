//! openraft's type parameters for this node, and the encodings for disk and wire.
//!
//! No type of openraft reaches the disk or a peer. Log ids and votes are stored as [`LogPoint`] and [`VoteRecord`],
//! memberships by [`encode_membership`], entries and replies as opaque bytes.

use std::collections::{BTreeMap, BTreeSet};

use openraft::alias::{EntryOf, LogIdOf, StoredMembershipOf, VoteOf};
use openraft::raft::responder::Responder;
use openraft::vote::RaftLeaderId;
use prost::bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::tls::KeyPin;
use crate::wal::{LogPoint, VoteRecord};

/// The type parameters. A leader id is (term, node) in a total order, so one term may have two leaders. Therefore a
/// term is never used as an epoch (P13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig {}

// Not made by openraft's macro, which has no parameter for the responder.
impl openraft::RaftTypeConfig for TypeConfig {
    type D = EntryBytes;
    type R = ReplyBytes;
    type NodeId = u64;
    type Node = PeerNode;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = openraft_rt_tokio::TokioRuntime;
    type Responder<T>
        = WriteResponder<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// A log index together with the leadership that proposed the entry.
pub type LogId = LogIdOf<TypeConfig>;
/// openraft's type of a vote.
pub type Vote = VoteOf<TypeConfig>;
/// openraft's type of an entry.
pub type LogEntry = EntryOf<TypeConfig>;
/// A membership: voters, in one or two overlapping sets, and learners.
pub type Membership = openraft::Membership<u64, PeerNode>;
/// A membership and the log id of the entry that holds it.
pub type StoredMembership = StoredMembershipOf<TypeConfig>;
/// Content of an entry: a command, a membership, or nothing.
pub type EntryPayload = openraft::EntryPayload<EntryBytes, u64, PeerNode>;
/// The leadership that proposed an entry.
pub type LeaderId = openraft::alias::LeaderIdOf<TypeConfig>;

/// Address, name and key of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerNode {
    /// `host:port` of its peer listener.
    pub address: String,
    /// Display name.
    pub name: String,
    /// Hash of its public key. `None` in a cluster without certificates.
    pub key: Option<KeyPin>,
}

/// A command of the ledger as bytes that Raft does not read. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, derive_more::Debug, derive_more::Display)]
#[debug("{} bytes", _0.len())]
#[display("{self:?}")]
pub struct EntryBytes(pub Bytes);

// openraft requires serde. This crate does not use it to store entries.
impl Serialize for EntryBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EntryBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(|bytes| EntryBytes(Bytes::from(bytes)))
    }
}

/// The reply of `apply` to the proposer, as bytes that Raft does not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyBytes(pub Vec<u8>);

/// Closure that openraft calls with the outcome of a write, or drops when Raft stops.
///
/// openraft's own responders log a warning when the caller's deadline has passed, which is normal here. The closure
/// also owns the in-flight permit of the write and releases it when the write is done.
pub struct WriteResponder<T> {
    then: Box<dyn FnOnce(T) + Send>,
}

impl<T> WriteResponder<T> {
    /// `then` receives the outcome. It runs on openraft's tasks and must not block.
    pub fn new(then: impl FnOnce(T) + Send + 'static) -> WriteResponder<T> {
        WriteResponder { then: Box::new(then) }
    }
}

impl<T: Send + 'static> Responder<TypeConfig, T> for WriteResponder<T> {
    fn on_complete(self, result: T) {
        (self.then)(result);
    }
}

/// Converts a log id for disk.
pub fn to_point(id: &LogId) -> LogPoint {
    LogPoint { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

/// Converts a log id for openraft.
pub fn to_log_id(point: LogPoint) -> LogId {
    LogId { leader_id: LeaderId::new(point.term, point.leader), index: point.index }
}

/// Converts a vote for disk.
pub fn to_vote_record(vote: &Vote) -> VoteRecord {
    VoteRecord { term: vote.leader_id.term, leader: vote.leader_id.node_id, committed: vote.committed }
}

/// Converts a vote for openraft.
pub fn to_vote(record: VoteRecord) -> Vote {
    Vote { leader_id: LeaderId::new(record.term, record.leader), committed: record.committed }
}

/// Encoding of a membership. The order of the fields is the format.
#[derive(Serialize, Deserialize)]
struct MembershipRecord {
    /// Sets of voters: one, or two during a change.
    configs: Vec<BTreeSet<u64>>,
    /// Every member, voters and learners: id, address, name, hash of the public key.
    members: Vec<(u64, String, String, Option<KeyPin>)>,
}

/// Error for bytes that are not a membership.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes of a membership can not be read: {0}")]
pub struct MalformedMembership(String);

/// Encodes a membership for disk and wire.
pub fn encode_membership(membership: &Membership) -> Result<Vec<u8>, MalformedMembership> {
    let members =
        membership.nodes().map(|(id, node)| (*id, node.address.clone(), node.name.clone(), node.key)).collect();
    let record = MembershipRecord { configs: membership.get_joint_config().clone(), members };
    postcard::to_stdvec(&record).map_err(|error| MalformedMembership(error.to_string()))
}

/// Decodes the bytes of [`encode_membership`].
pub fn decode_membership(bytes: &[u8]) -> Result<Membership, MalformedMembership> {
    let record: MembershipRecord =
        postcard::from_bytes(bytes).map_err(|error| MalformedMembership(error.to_string()))?;
    let members = record.members.into_iter().map(|(id, address, name, key)| (id, PeerNode { address, name, key }));
    let members: BTreeMap<u64, PeerNode> = members.collect();
    if record.configs.is_empty() && members.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(record.configs, members).map_err(|error| MalformedMembership(error.to_string()))
}
