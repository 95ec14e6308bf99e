//! Requests between the nodes of one cluster, and the transport that carries them.
//!
//! [`Transport`] is the interface to the network: a node uses [`GrpcTransport`], tests and simulations use one in
//! memory. A transport carries protobuf messages (`reveille.peer.v1`) and knows nothing of Raft. Received requests go
//! to `dispatch`, which checks the sender before it reads anything else.
//!
//! Reading order: this file, `rpc` (the closed list of requests), `client` (sends them), `authenticator` and `dispatch`
//! (receive them), `join` (new members), `application` (opaque requests of the cluster crate), `grpc`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reveille_ledger::ids::NodeId;
use tokio_util::sync::CancellationToken;

use crate::tls::KeyPin;

mod application;
pub(crate) mod authenticator;
pub(crate) mod client;
pub(crate) mod dispatch;
mod grpc;
pub(crate) mod join;
pub(crate) mod log_interval;
mod rpc;

pub use application::{Application, ApplicationRequest, Peer};
pub(crate) use grpc::connect_error;
pub use grpc::{GrpcTransport, was_never_sent};
pub use rpc::{Request, Response, Rpc};

/// Largest message between peers. A batch of entries and a block of a snapshot stay well below it.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A peer: its id, and the address at which it listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{node} at {address}")]
pub struct Destination {
    /// Id of the node.
    pub node: NodeId,
    /// `host:port` of its peer listener.
    pub address: String,
    /// Hash of its public key: no request goes to a node with another one. `None`: its name is enough.
    pub key: Option<KeyPin>,
}

/// Reason why a request to a peer failed. The failure is transient: the caller retries or continues without the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// No connection: the request was not delivered.
    #[error("not reachable: {0}")]
    Unreachable(String),
    /// The connection broke or the limit passed: the request may have been executed.
    #[error("no answer: {0}")]
    Lost(String),
    /// The peer rejected the request and did not execute it.
    #[error("rejected: {0}")]
    Rejected(#[from] Rejection),
}

/// Reason why a node rejects a request. A rejected request changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The sender is not a member of this cluster, or the request is meant for another node.
    #[error("{0}")]
    Unauthorized(String),
    /// The sender was removed from this cluster, so it stops for good (P22).
    #[error("{0}")]
    Removed(String),
    /// The listener at that address serves no peer requests.
    #[error("it serves no peer requests: {0}")]
    Unimplemented(String),
    /// The request is invalid.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// The node cannot answer now: it is starting or stopping, does not vote yet, or is overloaded.
    #[error("{0}")]
    Unavailable(String),
}

/// Handler of the requests that arrive at this node.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers one request within a bounded time.
    async fn handle(&self, request: Request) -> Result<Response, Rejection>;

    /// A connection has ended on which `peer` sent entries, or another client in its name. Not every transport reports
    /// it.
    fn connection_ended(&self, _peer: NodeId) {}

    /// Returns the hash of the public key of a member that calls. `None`: this node does not know it, and the member's
    /// name is enough.
    fn pinned_key(&self, _node: NodeId) -> Option<KeyPin> {
        None
    }

    /// Returns true if the node was removed from the cluster: its connections end.
    fn is_removed(&self, _node: NodeId) -> bool {
        false
    }
}

/// Carries requests between nodes. Contract:
///
/// - Requests to one peer may be reordered and lost. No request is delivered twice.
/// - [`PeerError::Unreachable`] means that the request was not delivered.
/// - A call ends within its limit.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Starts to pass received requests to `handler`, until `stop`. Returns when the transport listens.
    async fn serve(&self, handler: Arc<dyn Handler>, stop: CancellationToken) -> io::Result<()>;

    /// Sends a request and waits at most `limit` for the answer.
    async fn call(&self, to: &Destination, request: Request, limit: Duration) -> Result<Response, PeerError>;
}
