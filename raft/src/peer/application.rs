//! Requests of the application between nodes: bytes in, bytes out, within a deadline.
//!
//! The cluster crate implements [`Application`], gives it to [`crate::Replica::start`], and sends requests with
//! [`Peer::ask`]. This crate does not read the bytes. It checks that the sender is a member, limits the size of a
//! message ([`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX)), and ends each request at its deadline.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;

use super::client::PeerClient;
use super::{Destination, PeerError, Rejection};

/// The application's handler for requests of its peers.
#[async_trait]
pub trait Application: Send + Sync + 'static {
    /// Answers a request of a member. After `limit` the caller stops waiting, and the future is dropped.
    async fn answer(&self, from: NodeId, payload: Vec<u8>, limit: Duration) -> Result<Vec<u8>, Rejection>;
}

/// One request of the application.
#[derive(Clone, Debug)]
pub struct ApplicationRequest {
    /// Name of the request, for logs and metrics.
    pub name: &'static str,
    /// Content, which only the application of the other node reads.
    pub payload: Vec<u8>,
    /// True if the answer may be large. Such a request uses the connection for bulk data, so that it delays no
    /// heartbeat.
    pub bulk: bool,
}

/// A member of the cluster to which the application sends requests. The member may be this node itself.
pub struct Peer {
    pub(crate) client: PeerClient,
    pub(crate) to: Destination,
    /// The application of this node if the member is this node: such a request skips the network. `None` for other
    /// members.
    pub(crate) own: Option<Arc<dyn Application>>,
}

impl Peer {
    /// Id of the member.
    pub fn node(&self) -> NodeId {
        self.to.node
    }

    /// Sends a request and waits at most `limit` for the answer.
    pub async fn ask(&self, request: ApplicationRequest, limit: Duration) -> Result<Vec<u8>, PeerError> {
        let ApplicationRequest { name, payload, bulk } = request;
        if let Some(own) = &self.own {
            let late = |_| PeerError::Lost(format!("{name} to this node: no answer within {} ms", limit.as_millis()));
            return Ok(tokio::time::timeout(limit, own.answer(self.to.node, payload, limit)).await.map_err(late)??);
        }
        let remaining_ms = limit.as_millis() as u64;
        let (name, payload) = (name.to_owned(), payload.into());
        let request = v1::ApplicationRequest { header: None, name, payload, remaining_ms, bulk };
        Ok(self.client.ask(&self.to, request, limit).await?.payload.into())
    }
}
