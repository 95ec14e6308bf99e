//! The receiving side: hands each request that was let in to whom it concerns.
//!
//! A request of another cluster, or meant for another node, is refused at the `door`, before anything is read of it.
//! Every answer comes within a bounded time: what waits, waits no longer than its caller says it does.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{AppendEntriesResponse, TransferLeaderRequest};
use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;

use super::authenticator::Authenticator;
use super::{Handler, PeerService, Rejection, Request, Response};
use crate::Raft;
use crate::election::eligibility::Eligibility;
use crate::proposer::router::Router;
use crate::proposer::{ProposeError, check_forwarded};
use crate::snapshot::transfer::SnapshotReceiver;
use crate::state_machine::apply_thread::reply_bytes;
use crate::wire;

/// Raft's own requests end within this, a disk that stalls included.
const RAFT_LIMIT: Duration = Duration::from_secs(10);
/// The application's requests end within this, whatever their caller says.
const SERVICE_LIMIT: Duration = Duration::from_secs(10);
/// A part of an audience is taken over within this; its caller may wait less.
const TAKE_LIMIT: Duration = Duration::from_secs(60);
/// A barrier waits out a silent node's lease at most, and some.
const BARRIER_LIMIT: Duration = Duration::from_secs(30);
/// A vote of a peer is at most this far above the local term. No cluster holds that many elections between two
/// requests; one request with the highest term of all would make every later election impossible.
const TERM_JUMP_MAX: u64 = 1 << 32;
/// A refused request is logged at most once within this: a caller that forges one can forge a thousand a second.
const REFUSAL_LOGGED_EVERY: Duration = Duration::from_secs(10);
/// No caller waits longer for a proposal or a read than this.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// Everything that answers peers.
pub(crate) struct Dispatch {
    pub authenticator: Arc<Authenticator>,
    pub raft: Raft,
    pub router: Arc<Router>,
    pub eligibility: Eligibility,
    pub snapshots: SnapshotReceiver,
    pub service: Arc<dyn PeerService>,
    /// When a refused request was last logged.
    pub refusal_logged: Mutex<Option<Instant>>,
}

/// What the transport hands requests to, from the first moment: the port is open as soon as the state is; until Raft
/// runs, a caller is told to come again.
pub(crate) struct StartupHandler {
    /// Set once, when Raft runs.
    pub dispatch: OnceLock<Dispatch>,
}

#[async_trait]
impl Handler for StartupHandler {
    async fn handle(&self, request: Request) -> Result<Response, Rejection> {
        match self.dispatch.get() {
            Some(dispatch) => dispatch.handle(request).await,
            None => Err(Rejection::Unavailable("this node is starting".to_owned())),
        }
    }
}

#[async_trait]
impl Handler for Dispatch {
    async fn handle(&self, request: Request) -> Result<Response, Rejection> {
        if let Request::Describe(_) = request {
            let told = self.describe().await?;
            // Founders of a cluster ask before there are members. Other strangers are told no more than that.
            let v1::DescribeResponse { node, name, cluster, .. } = &told;
            let stranger = || v1::DescribeResponse {
                node: *node,
                name: name.clone(),
                cluster: cluster.clone(),
                ..v1::DescribeResponse::default()
            };
            return Ok(Response::Describe(if self.refusal(&request).is_ok() { told } else { stranger() }));
        }
        self.check_sender(&request)?;
        let from = self.authenticator.authenticate(&request)?;
        match request {
            Request::Append(request) => self.append(request).await.map(Response::Append),
            Request::Vote(request) => self.vote(request).await.map(Response::Vote),
            Request::PreVote(request) => self.pre_vote(request).await.map(Response::PreVote),
            Request::TransferLeader(request) => self.transfer_leader(request).await.map(Response::TransferLeader),
            Request::OfferSnapshot(request) => self.snapshots.offer(request).await.map(Response::OfferSnapshot),
            Request::SendChunk(request) => self.snapshots.chunk(request).await.map(Response::SendChunk),
            Request::InstallSnapshot(request) => {
                self.snapshots.install(&self.raft, request).await.map(Response::InstallSnapshot)
            }
            Request::Propose(request) => self.propose(request).await.map(Response::Propose),
            Request::ReadIndex(request) => Ok(Response::ReadIndex(self.read_index(request).await)),
            Request::RenewLease(request) => {
                let question = wire::to_lease_question(from, &request)?;
                let answer = within(SERVICE_LIMIT, self.service.renew_lease(question)).await?;
                Ok(Response::RenewLease(wire::from_lease_answer(answer)))
            }
            Request::Barrier(request) => {
                let question = wire::to_barrier_question(request)?;
                let limit = question.patience.min(SERVICE_LIMIT);
                let answer = within(limit, self.service.barrier(question)).await?;
                Ok(Response::Barrier(wire::from_barrier_answer(answer)))
            }
            Request::HoldBarrier(request) => {
                let question = wire::to_held_question(request)?;
                let limit = question.patience.min(BARRIER_LIMIT);
                let report = within(limit, self.service.hold_barrier(question)).await?;
                Ok(Response::HoldBarrier(wire::from_report(report)))
            }
            Request::HandOver(request) => {
                let limit = Duration::from_millis(request.remaining_ms).min(SERVICE_LIMIT);
                let answer = within(limit, self.service.hand_over(NodeId(request.node), limit)).await?;
                Ok(Response::HandOver(v1::HandOverResponse { refusal: answer.err().unwrap_or_default() }))
            }
            Request::MakePart(request) => {
                let made = within(SERVICE_LIMIT, self.service.make_part(wire::to_make_part(request))).await?;
                Ok(Response::MakePart(wire::from_part_made(made)))
            }
            Request::FetchPart(request) => {
                let question = wire::to_fetch_part(&request)?;
                let (piece, total) =
                    within(SERVICE_LIMIT, self.service.fetch_part(question)).await?.unwrap_or_default();
                Ok(Response::FetchPart(v1::FetchPartResponse { piece: piece.into(), total }))
            }
            Request::HoldParts(request) => {
                let parts = wire::to_hold_parts(&request)?;
                let lacking = within(SERVICE_LIMIT, self.service.hold_parts(parts)).await?;
                Ok(Response::HoldParts(wire::from_lacking(lacking)))
            }
            Request::TakePart(request) => {
                let question = wire::to_take_part(&request)?;
                let taken = within(TAKE_LIMIT, self.service.take_part(question)).await?;
                Ok(Response::TakePart(v1::TakePartResponse { refusal: taken.err().unwrap_or_default() }))
            }
            Request::Describe(_) => self.describe().await.map(Response::Describe),
            Request::Clock(_) => Ok(Response::Clock(wire::from_clock(self.service.clock()))),
        }
    }
}

async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T, Rejection> {
    let late = |_| Rejection::Unavailable(format!("no answer within {} ms", limit.as_millis()));
    tokio::time::timeout(limit, answer).await.map_err(late)
}

async fn raft<T, E: std::fmt::Display>(answer: impl Future<Output = Result<T, E>>) -> Result<T, Rejection> {
    within(RAFT_LIMIT, answer).await?.map_err(|error| Rejection::Unavailable(error.to_string()))
}

fn deadline(remaining_ms: u64) -> Instant {
    let now = Instant::now();
    now.checked_add(Duration::from_millis(remaining_ms).min(PATIENCE_MAX)).unwrap_or(now)
}

impl Dispatch {
    async fn append(&self, request: v1::AppendRequest) -> Result<v1::AppendResponse, Rejection> {
        let request = wire::to_append(request)?;
        let matched = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let committed = request.leader_commit;
        let answer = raft(self.raft.append_entries(request)).await?;
        if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
            self.router.leader_liveness.record_contact();
        }
        if answer.is_success()
            && let (Some(matched), Some(committed)) = (matched, committed)
        {
            self.eligibility.record_append(matched.index, committed.index);
        }
        Ok(wire::from_append_response(&answer))
    }

    /// The one question that a stranger may ask.
    async fn describe(&self) -> Result<v1::DescribeResponse, Rejection> {
        let description = within(SERVICE_LIMIT, self.service.describe()).await?;
        description
            .map(wire::from_description)
            .ok_or_else(|| Rejection::Unavailable("this node is starting".to_owned()))
    }

    /// Refuses a caller that is no member, a vote in the name of another node, and a term that no election reaches.
    /// A node that knows no members yet takes the first entries from any caller that knows the cluster's id.
    fn check_sender(&self, request: &Request) -> Result<(), Rejection> {
        let refused = self.refusal(request);
        if let Err(rejection) = &refused {
            let now = Instant::now();
            let mut logged = self.refusal_logged.lock();
            if logged.is_none_or(|last| now.duration_since(last) >= REFUSAL_LOGGED_EVERY) {
                *logged = Some(now);
                tracing::warn!(%rejection, "a request on the peer port was refused");
            }
        }
        refused
    }

    fn refusal(&self, request: &Request) -> Result<(), Rejection> {
        // A request without a header is refused by the doorman.
        let Some(from) = request.header().map(|header| header.from) else { return Ok(()) };
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        if members.nodes().next().is_some() && members.get_node(&from).is_none() {
            return Err(Rejection::Unauthorized(format!("node {from} is no member of this cluster")));
        }
        let ballot = match request {
            Request::Append(request) => request.vote.as_ref(),
            Request::Vote(request) => request.vote.as_ref(),
            Request::PreVote(request) => request.vote.as_ref(),
            Request::TransferLeader(request) => request.from_leader.as_ref(),
            Request::InstallSnapshot(request) => request.vote.as_ref(),
            _ => None,
        };
        let Some(ballot) = ballot else { return Ok(()) };
        if ballot.node != from {
            return Err(Rejection::Malformed(format!("node {from} sends a vote of node {}", ballot.node)));
        }
        let own = self.raft.metrics().borrow_watched().current_term;
        if ballot.term > own.saturating_add(TERM_JUMP_MAX) {
            let text = format!("term {} is more than {TERM_JUMP_MAX} above the local term {own}", ballot.term);
            return Err(Rejection::Malformed(text));
        }
        Ok(())
    }

    fn check_may_vote(&self) -> Result<(), Rejection> {
        if self.eligibility.may_vote() {
            return Ok(());
        }
        Err(Rejection::Unavailable(
            "this node lost the tail of its log and does not vote until it has caught up".to_owned(),
        ))
    }

    async fn vote(&self, request: v1::VoteRequest) -> Result<v1::VoteResponse, Rejection> {
        self.check_may_vote()?;
        let request = wire::to_vote_request(request)?;
        let answer = raft(self.raft.vote(request)).await?;
        Ok(wire::from_vote_response(&answer))
    }

    async fn pre_vote(&self, request: v1::PreVoteRequest) -> Result<v1::PreVoteResponse, Rejection> {
        self.check_may_vote()?;
        let request = wire::to_pre_vote_request(request)?;
        let answer = raft(self.raft.pre_vote(request)).await?;
        Ok(wire::from_pre_vote_response(&answer))
    }

    async fn transfer_leader(
        &self,
        request: v1::TransferLeaderRequest,
    ) -> Result<v1::TransferLeaderResponse, Rejection> {
        if request.to_node == self.authenticator.identity.node().0 && !self.eligibility.may_campaign() {
            return Ok(v1::TransferLeaderResponse { refusal: "this node does not stand for election now".to_owned() });
        }
        let from = wire::to_required_vote(request.from_leader)?;
        let last = request.last.as_ref().map(wire::to_log_id);
        let request = TransferLeaderRequest::new(from, request.to_node, last);
        let answer = raft(self.raft.handle_transfer_leader(request)).await?;
        Ok(v1::TransferLeaderResponse { refusal: answer.err().map(|error| error.to_string()).unwrap_or_default() })
    }

    async fn propose(&self, request: v1::ProposeRequest) -> Result<v1::ProposeResponse, Rejection> {
        use v1::propose_response::Outcome;
        check_forwarded(&request.command).map_err(Rejection::Malformed)?;
        let outcome = match self.router.propose_here(request.command, deadline(request.remaining_ms)).await {
            Ok(reply) => Outcome::Reply(reply_bytes(&reply)),
            Err(error) => refused(error)?,
        };
        Ok(v1::ProposeResponse { outcome: Some(outcome) })
    }

    async fn read_index(&self, request: v1::ReadIndexRequest) -> v1::ReadIndexResponse {
        let index = self.router.read_index_here(deadline(request.remaining_ms)).await;
        v1::ReadIndexResponse { index: index.unwrap_or_default() }
    }
}

fn refused(error: ProposeError) -> Result<v1::propose_response::Outcome, Rejection> {
    use v1::not_proposed::Cause;
    use v1::propose_response::Outcome;
    let cause = match error {
        ProposeError::NoLeader | ProposeError::EpochOver => Cause::NotLeader,
        ProposeError::NotReady => Cause::NotReady,
        ProposeError::Busy => Cause::Busy,
        ProposeError::Stopped => Cause::Stopped,
        ProposeError::TooLarge { .. } | ProposeError::AboveLevel { .. } => {
            return Err(Rejection::Malformed(error.to_string()));
        }
        ProposeError::Unknown => return Ok(Outcome::Unknown(v1::Unknown {})),
    };
    Ok(Outcome::NotProposed(v1::NotProposed { cause: cause.into() }))
}
