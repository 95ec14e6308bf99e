//! Conversions between protobuf messages and the types of this crate. They never panic, whatever the input.

use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::vote::RaftLeaderId;
use prost::bytes::Bytes;
use reveille_ledger::ids::Hash;
use reveille_proto::peer::v1;

use crate::peer::{PeerError, Rejection};
use crate::types::{
    EntryBytes, EntryPayload, LeaderId, LogEntry, LogId, StoredMembership, TypeConfig, Vote, decode_membership,
    encode_membership,
};

/// Reason why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(String);

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Rejection {
        Rejection::Malformed(malformed.0)
    }
}

impl From<Malformed> for PeerError {
    fn from(malformed: Malformed) -> PeerError {
        PeerError::Lost(format!("an answer that makes no sense: {malformed}"))
    }
}

fn required<T>(field: Option<T>, name: &str) -> Result<T, Malformed> {
    field.ok_or_else(|| Malformed(format!("field {name} is missing")))
}

pub(crate) fn from_log_id(id: &LogId) -> v1::LogId {
    v1::LogId { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

pub(crate) fn to_log_id(id: &v1::LogId) -> LogId {
    LogId { leader_id: LeaderId::new(id.term, id.leader), index: id.index }
}

pub(crate) fn from_vote(vote: &Vote) -> v1::Ballot {
    v1::Ballot { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
}

pub(crate) fn to_vote(ballot: &v1::Ballot) -> Vote {
    Vote { leader_id: LeaderId::new(ballot.term, ballot.node), committed: ballot.committed }
}

pub(crate) fn to_required_vote(ballot: Option<v1::Ballot>) -> Result<Vote, Malformed> {
    required(ballot, "vote").map(|ballot| to_vote(&ballot))
}

fn from_entry(entry: LogEntry) -> Result<v1::LogEntry, Malformed> {
    use v1::log_entry::Payload;
    let payload = match entry.payload {
        EntryPayload::Blank => Payload::Blank(v1::Blank {}),
        EntryPayload::Normal(command) => Payload::Command(command.0),
        EntryPayload::Membership(membership) => {
            Payload::Membership(encode_membership(&membership).map_err(|error| Malformed(error.to_string()))?.into())
        }
    };
    Ok(v1::LogEntry { id: Some(from_log_id(&entry.log_id)), payload: Some(payload) })
}

fn to_entry(entry: v1::LogEntry) -> Result<LogEntry, Malformed> {
    use v1::log_entry::Payload;
    let log_id = to_log_id(&required(entry.id, "entry.id")?);
    let payload = match required(entry.payload, "entry.payload")? {
        Payload::Blank(_) => EntryPayload::Blank,
        Payload::Command(command) => EntryPayload::Normal(EntryBytes(command)),
        Payload::Membership(bytes) => {
            EntryPayload::Membership(decode_membership(&bytes).map_err(|error| Malformed(error.to_string()))?)
        }
    };
    Ok(LogEntry { log_id, payload })
}

pub(crate) fn from_append(request: AppendEntriesRequest<TypeConfig>) -> Result<v1::AppendRequest, Malformed> {
    Ok(v1::AppendRequest {
        header: None,
        vote: Some(from_vote(&request.vote)),
        previous: request.prev_log_id.as_ref().map(from_log_id),
        entries: request.entries.into_iter().map(from_entry).collect::<Result<_, _>>()?,
        committed: request.leader_commit.as_ref().map(from_log_id),
    })
}

pub(crate) fn to_append(request: v1::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Malformed> {
    let previous = request.previous.as_ref().map(to_log_id);
    let entries = request.entries.into_iter().map(to_entry).collect::<Result<Vec<_>, _>>()?;
    let mut expected = previous.as_ref().map_or(0, |id| id.index.saturating_add(1));
    for entry in &entries {
        if entry.log_id.index != expected {
            return Err(Malformed(format!("entry {} stands where {expected} belongs", entry.log_id.index)));
        }
        expected = expected.saturating_add(1);
    }
    Ok(AppendEntriesRequest {
        vote: to_required_vote(request.vote)?,
        prev_log_id: previous,
        entries,
        leader_commit: request.committed.as_ref().map(to_log_id),
    })
}

/// `PartialSuccess` counts as success: only a network creates it, and this crate's does not.
pub(crate) fn from_append_response(response: &AppendEntriesResponse<TypeConfig>) -> v1::AppendResponse {
    use v1::append_response::Outcome;
    let outcome = match response {
        AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_) => Outcome::Accepted(v1::Accepted {}),
        AppendEntriesResponse::Conflict => Outcome::Conflict(v1::Conflict {}),
        AppendEntriesResponse::HigherVote(vote) => Outcome::HigherVote(from_vote(vote)),
    };
    v1::AppendResponse { outcome: Some(outcome) }
}

pub(crate) fn to_append_response(response: v1::AppendResponse) -> Result<AppendEntriesResponse<TypeConfig>, Malformed> {
    use v1::append_response::Outcome;
    Ok(match required(response.outcome, "outcome")? {
        Outcome::Accepted(_) => AppendEntriesResponse::Success,
        Outcome::Conflict(_) => AppendEntriesResponse::Conflict,
        Outcome::HigherVote(vote) => AppendEntriesResponse::HigherVote(to_vote(&vote)),
    })
}

macro_rules! votes {
    ($from:ident $to:ident $from_response:ident $to_response:ident $request:ident $response:ident) => {
        pub(crate) fn $from(request: &VoteRequest<TypeConfig>) -> v1::$request {
            v1::$request {
                header: None,
                vote: Some(from_vote(&request.vote)),
                last: request.last_log_id.as_ref().map(from_log_id),
                leadership_transfer: request.leadership_transfer,
            }
        }

        pub(crate) fn $to(request: v1::$request) -> Result<VoteRequest<TypeConfig>, Malformed> {
            let mut vote = VoteRequest::new(to_required_vote(request.vote)?, request.last.as_ref().map(to_log_id));
            vote.leadership_transfer = request.leadership_transfer;
            Ok(vote)
        }

        pub(crate) fn $from_response(response: &VoteResponse<TypeConfig>) -> v1::$response {
            v1::$response {
                vote: Some(from_vote(&response.vote)),
                granted: response.vote_granted,
                last: response.last_log_id.as_ref().map(from_log_id),
            }
        }

        pub(crate) fn $to_response(response: v1::$response) -> Result<VoteResponse<TypeConfig>, Malformed> {
            let last = response.last.as_ref().map(to_log_id);
            Ok(VoteResponse::new(to_required_vote(response.vote)?, last, response.granted))
        }
    };
}

votes!(from_vote_request to_vote_request from_vote_response to_vote_response VoteRequest VoteResponse);
votes!(from_pre_vote_request to_pre_vote_request from_pre_vote_response to_pre_vote_response PreVoteRequest PreVoteResponse);

pub(crate) fn from_membership(membership: &StoredMembership) -> Result<(Option<v1::LogId>, Bytes), Malformed> {
    let bytes = encode_membership(membership.membership()).map_err(|error| Malformed(error.to_string()))?;
    Ok((membership.log_id().as_ref().map(from_log_id), bytes.into()))
}

pub(crate) fn to_membership(id: Option<v1::LogId>, bytes: &[u8]) -> Result<StoredMembership, Malformed> {
    let membership = decode_membership(bytes).map_err(|error| Malformed(error.to_string()))?;
    Ok(StoredMembership::new(id.as_ref().map(to_log_id), membership))
}

pub(crate) fn to_hash(bytes: &[u8]) -> Result<Hash, Malformed> {
    bytes.try_into().map(Hash).map_err(|_| Malformed(format!("a hash of {} bytes", bytes.len())))
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
