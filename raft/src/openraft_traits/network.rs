//! openraft's network: converts its requests and sends them with the peer client.
//!
//! openraft retries and backs off; this module retries nothing. An append with entries waits for the follower's disk,
//! so it has a separate limit instead of openraft's heartbeat interval.

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

use crate::peer::client::PeerClient;
use crate::peer::{Destination, PeerError, Rejection};
use crate::snapshot::Manifest;
use crate::snapshot::manager::OpenraftSnapshot;
use crate::snapshot::manager::SnapshotManager;
use crate::snapshot::transfer;
use crate::types::{PeerNode, TypeConfig, Vote};
use crate::wire;

/// Limit of an append with entries, including the sync on the follower's disk. After it openraft tries again.
const APPEND_LIMIT: Duration = Duration::from_secs(2);

/// Makes a [`Link`] to each member.
pub(crate) struct PeerNetwork {
    pub client: PeerClient,
    pub snapshots: Arc<SnapshotManager>,
}

impl RaftNetworkFactory<TypeConfig> for PeerNetwork {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &PeerNode) -> Link {
        let to = Destination { node: NodeId(target), address: node.address.clone(), key: node.key };
        Link { client: self.client.clone(), snapshots: Arc::clone(&self.snapshots), to }
    }
}

/// Connection to one member.
pub(crate) struct Link {
    pub client: PeerClient,
    pub snapshots: Arc<SnapshotManager>,
    pub to: Destination,
}

/// openraft backs off after `Unreachable` and retries at once after any other error.
fn rpc_error(error: PeerError) -> RPCError<TypeConfig> {
    match error {
        PeerError::Unreachable(_)
        | PeerError::Rejected(Rejection::Unauthorized(_) | Rejection::Removed(_) | Rejection::Unavailable(_)) => {
            RPCError::Unreachable(Unreachable::new(&error))
        }
        PeerError::Lost(_) | PeerError::Rejected(Rejection::Unimplemented(_) | Rejection::Malformed(_)) => {
            RPCError::Network(NetworkError::new(&error))
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
        let is_from_the_start = request.prev_log_id.is_none();
        let request = wire::from_append(request).map_err(malformed)?;
        let answer = self.client.ask(&self.to, request, limit).await.map_err(rpc_error)?;
        let answer = wire::to_append_response(answer).map_err(malformed)?;
        if answer.is_conflict() && is_from_the_start {
            // An append from the empty log cannot conflict. openraft panics on a conflict at index 0, so the answer is
            // rejected.
            return Err(rpc_error(Rejection::Malformed("a conflict with the empty log".to_owned()).into()));
        }
        Ok(answer)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let request = wire::from_vote_request(&request);
        let answer = self.client.ask(&self.to, request, option.hard_ttl()).await.map_err(rpc_error)?;
        wire::to_vote_response(answer).map_err(malformed)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let request = wire::from_pre_vote_request(&request);
        let answer = self.client.ask(&self.to, request, option.hard_ttl()).await.map_err(rpc_error)?;
        wire::to_pre_vote_response(answer).map_err(malformed)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: OpenraftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = transfer::send(&self.client, &self.snapshots, &self.to, vote, snapshot.snapshot) => {
                sent.map(SnapshotResponse::new).map_err(|error| rpc_error(error).into())
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
        let answer = self.client.ask(&self.to, message, option.hard_ttl()).await.map_err(rpc_error)?;
        if answer.refusal.is_empty() {
            return Ok(Ok(()));
        }
        Err(rpc_error(Rejection::Unavailable(answer.refusal).into()))
    }
}
