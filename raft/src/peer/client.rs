//! Sends peer requests: [`PeerClient`] adds the header that names cluster, sender and addressee.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::ids::{GROUP, NodeId};
use reveille_proto::peer::v1;

use super::{Destination, PeerError, Rpc, Transport};
use crate::identity::{ClusterId, Identity};

/// Identity of a node, which it sends to any caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node, for display.
    pub name: String,
    /// Cluster of the node. `None`: it belongs to no cluster yet.
    pub cluster: Option<ClusterId>,
}

/// Sends any request to any peer, with this node as the sender.
#[derive(Clone)]
pub(crate) struct PeerClient {
    pub transport: Arc<dyn Transport>,
    pub identity: Arc<Identity>,
}

impl PeerClient {
    /// Asks the node that listens at `address` for its identity. Neither node has to belong to a cluster.
    pub async fn identify(&self, address: &str, limit: Duration) -> Result<PeerIdentity, PeerError> {
        let to = Destination { node: NodeId(0), address: address.to_owned() };
        let header = v1::Header { group: GROUP, from: self.identity.node().0, ..v1::Header::default() };
        let request = v1::IdentifyRequest { header: Some(header) }.into_request();
        let answer = v1::IdentifyRequest::from_response(self.transport.call(&to, request, limit).await?)?;
        let cluster = <[u8; 16]>::try_from(answer.cluster.as_ref()).ok();
        let cluster = cluster.map(|cluster| ClusterId(u128::from_be_bytes(cluster)));
        Ok(PeerIdentity { node: NodeId(answer.node), name: answer.name, cluster })
    }

    /// Sends a request and waits at most `limit` for the answer.
    pub async fn ask<R: Rpc>(&self, to: &Destination, request: R, limit: Duration) -> Result<R::Response, PeerError> {
        let cluster = self.identity.cluster().ok_or_else(|| {
            PeerError::Unreachable("this node does not belong to a cluster yet: run 'reveille cluster init'".to_owned())
        })?;
        let mut request = request.into_request();
        request.set_header(v1::Header {
            cluster: cluster.0.to_be_bytes().to_vec().into(),
            group: GROUP,
            from: self.identity.node().0,
            to: to.node.0,
        });
        let name = request.name().to_owned();
        let answer = self.transport.call(to, request, limit).await;
        if answer.is_err() {
            metrics::counter!("reveille_peer_errors_total", "rpc" => name).increment(1);
        }
        R::from_response(answer?)
    }
}
