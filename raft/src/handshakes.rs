//! The TLS handshakes of a listener. They run at once, so that a silent caller delays no other one. If all places are
//! taken, a new caller ends the oldest unfinished handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::timeout;

use crate::listen::{CONNECTIONS_MAX, Connection, Incoming};
use crate::peer::log_interval::LogInterval;
use crate::tls::ServerTls;

/// Limit of one handshake.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// The connections of a listener, after their handshakes.
pub type AcceptedConnections = BoxStream<'static, io::Result<Connection>>;

/// Returns the connections of a listener for clients. Without `tls` they are in plaintext.
pub fn connections(incoming: Incoming, tls: Option<ServerTls>) -> AcceptedConnections {
    let Some(tls) = tls.map(Arc::new) else { return incoming.boxed() };
    with_handshakes(incoming, move |connection| {
        let tls = Arc::clone(&tls);
        async move { connection.encrypt_for_client(&tls).await }
    })
}

/// Returns the connections that `handshake` accepts. Failures are counted, and logged now and then.
pub(crate) fn with_handshakes<F>(
    incoming: Incoming,
    handshake: impl Fn(Connection) -> F + Send + 'static,
) -> AcceptedConnections
where
    F: Future<Output = io::Result<Connection>> + Send + 'static,
{
    let (listener, logged) = (incoming.name(), Arc::new(LogInterval::default()));
    let accepted = move |accepted: io::Result<Connection>| {
        let logged = Arc::clone(&logged);
        let from = accepted.as_ref().ok().and_then(Connection::peer_address);
        let cut = accepted.as_ref().ok().map(Connection::cut);
        let handshake = accepted.ok().map(&handshake);
        async move {
            let done = cut?.run_until_cancelled_owned(timeout(HANDSHAKE_LIMIT, handshake?)).await;
            let done = done.unwrap_or_else(|| Ok(Err(io::Error::other("a new caller needed its place"))));
            match done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(connection) => Some(Ok(connection)),
                Err(error) => {
                    metrics::counter!("reveille_handshakes_failed_total", "listener" => listener).increment(1);
                    if logged.is_due() {
                        let from = from.map(tracing::field::display);
                        tracing::warn!(listener, from, %error, "a connection was refused");
                    }
                    None
                }
            }
        }
    };
    // One more than the places: a new connection is accepted while all of them are taken by handshakes.
    incoming
        .before_handshakes()
        .map(accepted)
        .buffer_unordered(CONNECTIONS_MAX + 1)
        .filter_map(std::future::ready)
        .boxed()
}
