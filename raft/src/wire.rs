//! The only conversions between the words on the wire and the types of this crate.
//!
//! Whatever arrives may be nonsense: reading gives an error, never a panic, and nothing half-read.

use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::vote::RaftLeaderId;
use prost::bytes::Bytes;
use reveille_ledger::ids::{Epoch, Hash, Holder, Incarnation, NodeId, RunId, Time};
use reveille_proto::peer::v1;

use crate::identity::ClusterId;
use crate::peer::{
    About, BarrierAnswer, BarrierQuestion, BarrierReport, ClockReading, Crossed, Description, Hiccup, LeaseAnswer,
    LeaseQuestion, Rejection,
};
use crate::types::{
    Entry, EntryBytes, EntryPayload, LeaderId, LogId, StoredMembership, TypeConfig, Vote, decode_membership,
    encode_membership,
};

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(String);

impl Malformed {
    pub fn new(what: impl Into<String>) -> Malformed {
        Malformed(what.into())
    }
}

impl From<Malformed> for Rejection {
    fn from(malformed: Malformed) -> Rejection {
        Rejection::Malformed(malformed.0)
    }
}

impl From<Malformed> for Hiccup {
    fn from(malformed: Malformed) -> Hiccup {
        Hiccup::Lost(format!("an answer that makes no sense: {malformed}"))
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

fn from_entry(entry: Entry) -> Result<v1::LogEntry, Malformed> {
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

fn to_entry(entry: v1::LogEntry) -> Result<Entry, Malformed> {
    use v1::log_entry::Payload;
    let log_id = to_log_id(&required(entry.id, "entry.id")?);
    let payload = match required(entry.payload, "entry.payload")? {
        Payload::Blank(_) => EntryPayload::Blank,
        Payload::Command(command) => EntryPayload::Normal(EntryBytes(command)),
        Payload::Membership(bytes) => {
            EntryPayload::Membership(decode_membership(&bytes).map_err(|error| Malformed(error.to_string()))?)
        }
    };
    Ok(Entry { log_id, payload })
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

/// `PartialSuccess` is only ever made by a network, and ours makes none.
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

pub(crate) fn from_hash(hash: Hash) -> Bytes {
    Bytes::copy_from_slice(&hash.0)
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn from_lease_question(question: &LeaseQuestion) -> v1::RenewLeaseRequest {
    v1::RenewLeaseRequest {
        header: None,
        incarnation: question.holder.incarnation.0,
        applied: question.applied,
        lacking: question.lacking.iter().copied().map(from_hash).collect(),
    }
}

pub(crate) fn to_lease_question(from: NodeId, request: &v1::RenewLeaseRequest) -> Result<LeaseQuestion, Malformed> {
    Ok(LeaseQuestion {
        holder: Holder { node: from, incarnation: Incarnation(request.incarnation) },
        applied: request.applied,
        lacking: request.lacking.iter().map(|hash| to_hash(hash)).collect::<Result<_, _>>()?,
    })
}

pub(crate) fn from_lease_answer(answer: LeaseAnswer) -> v1::RenewLeaseResponse {
    match answer {
        LeaseAnswer::Granted { lease, epoch, floor } => {
            v1::RenewLeaseResponse { lease_ms: milliseconds(lease), refusal: String::new(), epoch: epoch.0, floor }
        }
        LeaseAnswer::Refused(refusal) => v1::RenewLeaseResponse { refusal, ..v1::RenewLeaseResponse::default() },
    }
}

pub(crate) fn to_lease_answer(response: v1::RenewLeaseResponse) -> LeaseAnswer {
    if response.lease_ms == 0 {
        return LeaseAnswer::Refused(response.refusal);
    }
    LeaseAnswer::Granted {
        lease: Duration::from_millis(response.lease_ms),
        epoch: Epoch(response.epoch),
        floor: response.floor,
    }
}

pub(crate) fn from_barrier_question(question: &BarrierQuestion) -> v1::BarrierRequest {
    let about = match &question.about {
        About::OptedOut { tenant, key } => {
            v1::barrier_request::About::OptedOut(v1::OptedOut { tenant: tenant.clone(), key: key.clone() })
        }
        About::Run(run) => v1::barrier_request::About::Run(from_run(*run)),
    };
    v1::BarrierRequest {
        header: None,
        index: question.index,
        remaining_ms: milliseconds(question.patience),
        about: Some(about),
    }
}

pub(crate) fn to_barrier_question(request: v1::BarrierRequest) -> Result<BarrierQuestion, Malformed> {
    let about = match required(request.about, "about")? {
        v1::barrier_request::About::OptedOut(opted_out) => {
            About::OptedOut { tenant: opted_out.tenant, key: opted_out.key }
        }
        v1::barrier_request::About::Run(run) => About::Run(to_run(run)),
    };
    Ok(BarrierQuestion { index: request.index, about, patience: Duration::from_millis(request.remaining_ms) })
}

pub(crate) fn from_held_question(question: &BarrierQuestion) -> v1::HoldBarrierRequest {
    use v1::{barrier_request, hold_barrier_request};
    let v1::BarrierRequest { header, index, remaining_ms, about } = from_barrier_question(question);
    let about = about.map(|about| match about {
        barrier_request::About::OptedOut(opted_out) => hold_barrier_request::About::OptedOut(opted_out),
        barrier_request::About::Run(run) => hold_barrier_request::About::Run(run),
    });
    v1::HoldBarrierRequest { header, index, remaining_ms, about }
}

pub(crate) fn to_held_question(request: v1::HoldBarrierRequest) -> Result<BarrierQuestion, Malformed> {
    use v1::{barrier_request, hold_barrier_request};
    let about = request.about.map(|about| match about {
        hold_barrier_request::About::OptedOut(opted_out) => barrier_request::About::OptedOut(opted_out),
        hold_barrier_request::About::Run(run) => barrier_request::About::Run(run),
    });
    let v1::HoldBarrierRequest { header, index, remaining_ms, .. } = request;
    to_barrier_question(v1::BarrierRequest { header, index, remaining_ms, about })
}

pub(crate) fn from_report(report: Result<BarrierReport, String>) -> v1::HoldBarrierResponse {
    match report {
        Ok(report) => v1::HoldBarrierResponse {
            refusal: String::new(),
            crossed: from_barrier_answer(BarrierAnswer { confirmed: true, crossed: report.crossed }).crossed,
            unconfirmed: report.unconfirmed.into_iter().map(|node| node.0).collect(),
        },
        Err(refusal) => v1::HoldBarrierResponse { refusal, ..v1::HoldBarrierResponse::default() },
    }
}

pub(crate) fn to_report(response: v1::HoldBarrierResponse) -> Result<Result<BarrierReport, String>, Malformed> {
    if !response.refusal.is_empty() {
        return Ok(Err(response.refusal));
    }
    let answer = v1::BarrierResponse { confirmed: true, crossed: response.crossed };
    let crossed = to_barrier_answer(answer)?.crossed;
    Ok(Ok(BarrierReport { crossed, unconfirmed: response.unconfirmed.into_iter().map(NodeId).collect() }))
}

pub(crate) fn from_description(description: Description) -> v1::DescribeResponse {
    let (state_hash_index, state_hash) = match description.state_hash {
        Some((index, hash)) => (index, hash.0.to_vec()),
        None => (0, Vec::new()),
    };
    v1::DescribeResponse {
        node: description.node.0,
        name: description.name,
        address: description.address,
        cluster: description.cluster.map(|cluster| cluster.0.to_be_bytes().to_vec()).unwrap_or_default().into(),
        incarnation: description.incarnation.0,
        applied: description.applied,
        state_hash: state_hash.into(),
        state_hash_index,
        wall_ms: description.wall.0,
        version: description.version,
        tzdb: description.tzdb,
    }
}

pub(crate) fn to_description(response: v1::DescribeResponse) -> Description {
    let cluster = <[u8; 16]>::try_from(response.cluster.as_ref()).ok();
    let state_hash = <[u8; 32]>::try_from(response.state_hash.as_ref()).ok();
    Description {
        node: NodeId(response.node),
        name: response.name,
        address: response.address,
        cluster: cluster.map(|cluster| ClusterId(u128::from_be_bytes(cluster))),
        incarnation: Incarnation(response.incarnation),
        applied: response.applied,
        state_hash: state_hash.map(|hash| (response.state_hash_index, Hash(hash))),
        wall: Time(response.wall_ms),
        version: response.version,
        tzdb: response.tzdb,
    }
}

pub(crate) fn from_barrier_answer(answer: BarrierAnswer) -> v1::BarrierResponse {
    let crossed = answer.crossed.into_iter().map(|crossed| v1::CrossedHandOff {
        run: Some(from_run(crossed.run)),
        recipient: crossed.recipient,
        fence: crossed.fence.to_string(),
    });
    v1::BarrierResponse { confirmed: answer.confirmed, crossed: crossed.collect() }
}

pub(crate) fn to_barrier_answer(response: v1::BarrierResponse) -> Result<BarrierAnswer, Malformed> {
    let crossed = response.crossed.into_iter().map(|crossed| {
        Ok(Crossed {
            run: to_run(required(crossed.run, "crossed.run")?),
            recipient: crossed.recipient,
            fence: crossed.fence.parse().map_err(|_| Malformed(format!("'{}' is no fence", crossed.fence)))?,
        })
    });
    Ok(BarrierAnswer { confirmed: response.confirmed, crossed: crossed.collect::<Result<_, Malformed>>()? })
}

fn from_run(run: RunId) -> v1::Run {
    v1::Run { index: run.index, place: run.place }
}

fn to_run(run: v1::Run) -> RunId {
    RunId { index: run.index, place: run.place }
}

pub(crate) fn from_clock(reading: ClockReading) -> v1::ClockResponse {
    v1::ClockResponse { wall_ms: reading.wall.0, boot_ms: reading.boot_ms }
}

pub(crate) fn to_clock(response: v1::ClockResponse) -> ClockReading {
    ClockReading { wall: Time(response.wall_ms), boot_ms: response.boot_ms }
}
