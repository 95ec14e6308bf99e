//! openraft's asking side: its requests in our words, through the peer transport.
//!
//! openraft retries and backs off; nothing is retried here. An append that carries entries waits for the
//! follower's disk, so its limit is our own and not openraft's heartbeat interval.

use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;

use crate::archive::Archive;
use crate::peer::client::Caller;
use crate::peer::{Destination, Hiccup, Rejection};
use crate::snapshot::Manifest;
use crate::state_machine::Snapshot;
use crate::types::{PeerNode, TypeConfig, Vote};
use crate::{transfer, wire};

/// An append with entries, fsync at the follower included. A disk that needs longer is tried again.
const APPEND_LIMIT: Duration = Duration::from_secs(2);

/// Makes the asking side for each member.
pub(crate) struct Network {
    pub caller: Caller,
    pub archive: Arc<Archive>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &PeerNode) -> Link {
        let to = Destination { node: NodeId(target), address: node.address.clone() };
        Link { caller: self.caller.clone(), archive: Arc::clone(&self.archive), to }
    }
}

/// The way to one member.
pub(crate) struct Link {
    pub caller: Caller,
    pub archive: Arc<Archive>,
    pub to: Destination,
}

/// Unreachable makes openraft back off; any other error it retries at once.
fn rpc_error(hiccup: Hiccup) -> RPCError<TypeConfig> {
    match hiccup {
        Hiccup::Unreachable(_)
        | Hiccup::Rejected(Rejection::Stranger(_) | Rejection::Outdated(_) | Rejection::NotNow(_)) => {
            RPCError::Unreachable(Unreachable::new(&hiccup))
        }
        Hiccup::Lost(_) | Hiccup::Rejected(Rejection::NoPeer(_) | Rejection::Malformed(_)) => {
            RPCError::Network(NetworkError::new(&hiccup))
        }
    }
}

fn malformed(error: wire::Malformed) -> RPCError<TypeConfig> {
    rpc_error(error.into())
}

impl RaftNetworkV2<TypeConfig> for Link {
    type SnapshotData = Manifest;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let limit = if request.entries.is_empty() { option.hard_ttl() } else { APPEND_LIMIT };
        let (leader, previous) = (wire::from_vote(&request.vote), request.prev_log_id.as_ref().map(wire::from_log_id));
        let last = request.entries.last().map(|entry| wire::from_log_id(&entry.log_id));
        let request = wire::from_append(request).map_err(malformed)?;
        let mut answer = self.caller.ask(&self.to, request, limit).await.map_err(rpc_error)?;
        let life = answer.life.take();
        let answer = wire::to_append_response(answer).map_err(malformed)?;
        let recall = &self.caller.recall;
        recall.meet(self.to.node, life.as_ref()).map_err(|refused| rpc_error(refused.into()))?;
        if answer.is_conflict() && (previous.is_none() || recall.contradicts(self.to.node, &leader, previous.as_ref()))
        {
            // openraft takes it that neither comes to pass: nothing contradicts the empty log, and what was
            // acknowledged stays. The former would panic, the latter ask the same for ever.
            return Err(rpc_error(Rejection::NotNow("it denies what it has acknowledged".to_owned()).into()));
        }
        // A heartbeat is answered by what is in memory; entries, when they are on disk.
        if let Some(last) = last.filter(|_| answer.is_success()) {
            recall.acknowledged(self.to.node, life.as_ref(), &leader, &last);
        }
        Ok(answer)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let request = wire::from_vote_request(&request);
        let answer = self.caller.ask(&self.to, request, option.hard_ttl()).await.map_err(rpc_error)?;
        let recall = &self.caller.recall;
        recall.meet(self.to.node, answer.life.as_ref()).map_err(|refused| rpc_error(refused.into()))?;
        if answer.granted {
            recall.voted(self.to.node, answer.life.as_ref(), answer.vote.as_ref());
        }
        wire::to_vote_response(answer).map_err(malformed)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let request = wire::from_pre_vote_request(&request);
        let answer = self.caller.ask(&self.to, request, option.hard_ttl()).await.map_err(rpc_error)?;
        let met = self.caller.recall.meet(self.to.node, answer.life.as_ref());
        met.map_err(|refused| rpc_error(refused.into()))?;
        wire::to_pre_vote_response(answer).map_err(malformed)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = transfer::send(self, vote, snapshot.snapshot) => {
                sent.map(SnapshotResponse::new).map_err(|hiccup| rpc_error(hiccup).into())
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = v1::TransferLeaderRequest {
            header: None,
            from_leader: Some(wire::from_vote(request.from_leader())),
            to_node: *request.to_node_id(),
            last: request.last_log_id().map(wire::from_log_id),
        };
        let answer = self.caller.ask(&self.to, message, option.hard_ttl()).await.map_err(rpc_error)?;
        if answer.refusal.is_empty() {
            return Ok(Ok(()));
        }
        Err(rpc_error(Rejection::NotNow(answer.refusal).into()))
    }
}
