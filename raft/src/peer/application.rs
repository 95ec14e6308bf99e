//! Requests of the application between nodes: bytes in, bytes out, within a deadline.
//!
//! The cluster crate implements [`Application`], gives it to [`crate::Replica::start`], and asks through [`Peer::ask`].
//! This crate does not read the bytes. It checks that the sender is a member, bounds the message
//! ([`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX)), and ends each request at its deadline.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;

use super::client::PeerClient;
use super::{Destination, PeerError, Rejection};

/// What the application answers to its peers.
#[async_trait]
pub trait Application: Send + Sync + 'static {
    /// The name of this node. Callers that are no members get it too.
    fn name(&self) -> String;

    /// Answers a request of a member. After `limit` the caller has given up, and the future is dropped.
    async fn answer(&self, from: NodeId, payload: Vec<u8>, limit: Duration) -> Result<Vec<u8>, Rejection>;
}

/// One request of the application.
#[derive(Clone, Debug)]
pub struct ApplicationRequest {
    /// For logs and metrics.
    pub name: &'static str,
    /// Read by the application of the other node only.
    pub payload: Vec<u8>,
    /// The answer may be large. It then takes the connection for bulk data, so that it delays no heartbeat.
    pub bulk: bool,
}

/// One member of the cluster as the application asks it. The member may be this node itself.
pub struct Peer {
    pub(crate) client: PeerClient,
    pub(crate) to: Destination,
    /// The application of this node, if the member is this node: then the request skips the network.
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
