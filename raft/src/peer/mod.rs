//! What the nodes of one cluster ask of each other, and the seam through which they ask it.
//!
//! [`Transport`] is the seam: [`GrpcTransport`] is what a node uses, an in-memory one serves tests and
//! simulations. A transport carries our own messages (`reveille.peer.v1`) and knows nothing of Raft. What
//! arrives goes to `dispatch`, which checks the sender before anything else.
//!
//! Reading order: this file, `rpc` (the closed list of requests), `client` (sends them), `authenticator` and `dispatch`
//! (receive them), `application` (opaque requests of the cluster crate), `grpc`.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reveille_ledger::ids::NodeId;
use tokio_util::sync::CancellationToken;

mod application;
pub(crate) mod authenticator;
pub(crate) mod client;
pub(crate) mod dispatch;
mod grpc;
mod rpc;

pub use application::{Application, ApplicationRequest, Peer};
pub use client::PeerIdentity;
pub use grpc::GrpcTransport;
pub use rpc::{Request, Response, Rpc};

/// Bytes of one message between peers. A batch of entries is cut well below it; a chunk of a snapshot
/// travels in parts.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Where a peer is: its id, and the address at which it listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// Who is meant.
    pub node: NodeId,
    /// `host:port` of its peer listener.
    pub address: String,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.node, self.address)
    }
}

/// Why a peer did not answer. Transient: policy retries, or does without.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// No connection: the request was not delivered, and nothing happened there.
    #[error("not reachable: {0}")]
    Unreachable(String),
    /// The connection broke or the time was up: what was asked may have been done.
    #[error("no answer: {0}")]
    Lost(String),
    /// The peer answered that it does not do it. Nothing happened there.
    #[error("rejected: {0}")]
    Rejected(#[from] Rejection),
}

/// Why a node does not do what a peer asks. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The one who asks belongs elsewhere, or means somebody else.
    #[error("{0}")]
    Unauthorized(String),
    /// Who listens there serves no peers.
    #[error("it does not know what peers ask: {0}")]
    Unimplemented(String),
    /// The request makes no sense.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// Not now: the node starts, stops, or does not vote yet.
    #[error("{0}")]
    Unavailable(String),
}

/// What answers the requests that arrive at this node.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers one request within a bounded time.
    async fn handle(&self, request: Request) -> Result<Response, Rejection>;
}

/// How requests travel between nodes. Contract:
///
/// - Requests to one peer may overtake each other and may be lost; none is delivered twice.
/// - [`PeerError::Unreachable`] is only said when the request surely was not delivered.
/// - A call ends within its limit, whatever the network does.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Begins to receive: hands every request to `handler` until `stop`. Returns once it listens.
    async fn serve(&self, handler: Arc<dyn Handler>, stop: CancellationToken) -> io::Result<()>;

    /// Asks a peer, and waits for the answer at most `limit`.
    async fn call(&self, to: &Destination, request: Request, limit: Duration) -> Result<Response, PeerError>;
}
