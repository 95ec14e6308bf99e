//! Receives peer requests: checks each sender, then calls the part of this crate that answers the request.
//!
//! A request from another cluster or from a caller that is not a member is rejected before anything else in it is read.
//! Every request is answered within a bounded time.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{AppendEntriesResponse, TransferLeaderRequest};
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;

use super::authenticator::{authenticate, join_cluster};
use super::join::JoinHandler;
use super::log_interval::LogInterval;
use super::{Application, Handler, Rejection, Request, Response};
use crate::Raft;
use crate::election::early::EarlyElection;
use crate::election::eligibility::Eligibility;
use crate::identity::Identity;
use crate::proposer::{ProposeError, check_forwarded};
use crate::router::{RetryPolicy, Router};
use crate::snapshot::fetch;
use crate::snapshot::manager::SnapshotManager;
use crate::snapshot::transfer::SnapshotReceiver;
use crate::state_machine::apply_thread::encode_reply;
use crate::tls::KeyPin;
use crate::wire;

/// Limit of Raft's requests, so that a stalled disk does not block them for ever.
const RAFT_LIMIT: Duration = Duration::from_secs(10);
/// Maximum distance of a peer's term above the local term. No cluster holds that many elections between two requests.
/// One request with the highest possible term would prevent every later election.
const TERM_JUMP_MAX: u64 = 1 << 32;
/// Maximum time for a proposal, a read or a request of the application, even if its caller allows more.
const REQUEST_LIMIT_MAX: Duration = Duration::from_secs(60);

/// Handler of all peer requests while Raft runs.
pub(crate) struct Dispatch {
    pub identity: Arc<Identity>,
    pub raft: Raft,
    pub router: Arc<Router>,
    pub eligibility: Eligibility,
    pub early_election: EarlyElection,
    pub snapshots: Arc<SnapshotManager>,
    pub receiver: SnapshotReceiver,
    pub application: Arc<dyn Application>,
    /// Log lines about rejected requests.
    pub refusals_logged: LogInterval,
    pub join: JoinHandler,
}

/// Handler that the transport uses from the start. Until Raft runs, it rejects requests as `Unavailable`.
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

    fn connection_ended(&self, peer: NodeId) {
        if let Some(dispatch) = self.dispatch.get() {
            dispatch.connection_ended(peer);
        }
    }

    fn pinned_key(&self, node: NodeId) -> Option<KeyPin> {
        self.dispatch.get()?.pinned_key(node)
    }

    fn is_removed(&self, node: NodeId) -> bool {
        self.dispatch.get().is_some_and(|dispatch| dispatch.is_removed(node))
    }
}

#[async_trait]
impl Handler for Dispatch {
    async fn handle(&self, request: Request) -> Result<Response, Rejection> {
        // A joining node is not a member yet; its token is checked instead.
        if let Request::Join(request) = request {
            let joined = self.join.join(request).await;
            self.log_refusal(&joined);
            return joined.map(Response::Join);
        }
        let checked = self.check(&request);
        self.log_refusal(&checked);
        let from = checked?;
        match request {
            Request::Append(request) => self.append(request).await.map(Response::Append),
            Request::Vote(request) => self.vote(request).await.map(Response::Vote),
            Request::PreVote(request) => self.pre_vote(request).await.map(Response::PreVote),
            Request::TransferLeader(request) => self.transfer_leader(request).await.map(Response::TransferLeader),
            Request::OfferSnapshot(request) => self.receiver.offer(request).await.map(Response::OfferSnapshot),
            Request::SendBlocks(request) => self.receiver.blocks(request).await.map(Response::SendBlocks),
            Request::InstallSnapshot(request) => {
                self.receiver.install(&self.raft, request).await.map(Response::InstallSnapshot)
            }
            Request::FetchSnapshot(request) => {
                fetch::send_manifest(&self.snapshots, request).await.map(Response::FetchSnapshot)
            }
            Request::FetchBlocks(request) => {
                fetch::send_blocks(&self.snapshots, request).await.map(Response::FetchBlocks)
            }
            Request::Propose(request) => self.propose(request).await.map(Response::Propose),
            Request::ReadIndex(request) => Ok(Response::ReadIndex(self.read_index(request).await)),
            Request::Application(request) => self.application(from, request).await.map(Response::Application),
            // Answered above.
            Request::Join(_) => Err(Rejection::Malformed("a member does not join".to_owned())),
        }
    }

    fn connection_ended(&self, peer: NodeId) {
        self.early_election.connection_ended(peer);
    }

    fn pinned_key(&self, node: NodeId) -> Option<KeyPin> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.get_node(&node.0)?.key
    }

    fn is_removed(&self, node: NodeId) -> bool {
        !self.is_member(node) && self.removal_of(node).is_some()
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
    now.checked_add(Duration::from_millis(remaining_ms).min(REQUEST_LIMIT_MAX)).unwrap_or(now)
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
            within(RAFT_LIMIT, self.eligibility.wait_for_mark()).await?;
        }
        Ok(wire::from_append_response(&answer))
    }

    async fn application(
        &self,
        from: NodeId,
        request: v1::ApplicationRequest,
    ) -> Result<v1::ApplicationResponse, Rejection> {
        let limit = Duration::from_millis(request.remaining_ms).min(REQUEST_LIMIT_MAX);
        let payload = within(limit, self.application.answer(from, request.payload.into(), limit)).await??;
        Ok(v1::ApplicationResponse { payload: payload.into() })
    }

    fn log_refusal<T>(&self, answer: &Result<T, Rejection>) {
        if let Err(rejection) = answer
            && self.refusals_logged.is_due()
        {
            tracing::warn!(%rejection, "a request on the peer port was rejected");
        }
    }

    /// Returns the sender of an accepted request. The cluster is checked first: a removed node of another cluster must
    /// not stop because a node here has its id.
    fn check(&self, request: &Request) -> Result<NodeId, Rejection> {
        let (from, cluster) = authenticate(&self.identity, request)?;
        self.check_sender(from, request)?;
        join_cluster(&self.identity, cluster)?;
        Ok(from)
    }

    /// Rejects a caller that is not a member, a vote in the name of another node, and a term too far above the local
    /// one. A node that knows no members yet accepts entries from any caller that knows the cluster's id.
    fn check_sender(&self, from: NodeId, request: &Request) -> Result<(), Rejection> {
        if !self.is_member(from) {
            if let Some(removed) = self.removal_of(from) {
                return Err(Rejection::Removed(format!("entry {removed} removed node {from} from this cluster")));
            }
            // A node that joined while this one was down is unknown here. Its certificate shows that it was admitted,
            // and Raft decides about its votes and entries.
            if self.join.tls.is_none() || !request.is_of_raft() {
                return Err(Rejection::Unauthorized(format!("node {from} is not a member of this cluster")));
            }
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
        if ballot.node != from.0 {
            let voter = NodeId(ballot.node);
            return Err(Rejection::Malformed(format!("node {from} sends a vote of node {voter}")));
        }
        let own = self.raft.metrics().borrow_watched().current_term;
        if ballot.term > own.saturating_add(TERM_JUMP_MAX) {
            let text = format!("term {} is more than {TERM_JUMP_MAX} above the local term {own}", ballot.term);
            return Err(Rejection::Malformed(text));
        }
        Ok(())
    }

    /// Returns true if the node is a member as far as this node knows. A node that knows no members yet takes every
    /// sender for one.
    fn is_member(&self, node: NodeId) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        members.nodes().next().is_none() || members.get_node(&node.0).is_some()
    }

    /// Returns the log index of the entry that removed a node (P22). Until the membership has left it out too, it
    /// is a member: its vote may be needed for that.
    fn removal_of(&self, node: NodeId) -> Option<u64> {
        self.router.applied_state.read(|ledger| ledger.removed_nodes().get(&node).map(|removed| removed.index))
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
        if request.to_node == self.identity.node().0 && !self.eligibility.may_campaign() {
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
        let deadline = deadline(request.remaining_ms);
        let outcome = match self.router.propose_bytes(request.command, deadline, RetryPolicy::HereOnly).await {
            Ok(reply) => Outcome::Reply(encode_reply(&reply).into()),
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
