//! The HTTP listeners of a node, and the limits that apply to all of them.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use reveille_raft::connections;
use reveille_raft::listen::{FIRST_BYTES_WITHIN, Incoming};
use reveille_raft::tls::ServerTls;
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

/// Maximum size of a request's head (request line and headers), in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Time limit for a client to send the head of a request, and the same again for the body.
pub const READ_TIMEOUT: Duration = FIRST_BYTES_WITHIN;
/// Maximum lifetime of a connection. Each connection carries one request.
pub const CONNECTION_WITHIN: Duration = Duration::from_secs(45);

/// Serves `router` on `listener` until `stop` is cancelled. `name` identifies the listener in the log. Without `tls`
/// connections are in plaintext.
pub async fn serve(
    name: &'static str,
    router: Router,
    listener: TcpListener,
    tls: Option<ServerTls>,
    stop: CancellationToken,
) {
    let mut incoming = connections(Incoming::new(listener, name, 0), tls);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT).keep_alive(false).max_buf_size(HEAD_BYTES_MAX);
    loop {
        let Some(Some(Ok(stream))) = stop.run_until_cancelled(incoming.next()).await else { return };
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        // Errors of client connections are not logged.
        tokio::spawn(tokio::time::timeout(CONNECTION_WITHIN, connection));
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Runs in real time: the timeouts apply to real sockets, which a paused test clock does not advance.
    #[tokio::test]
    async fn silent_and_slow_connections_are_closed_and_others_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let router = Router::new().route("/livez", get(|| async { "alive" }));
        let serving = tokio::spawn(serve("test", router, listener, None, stop.clone()));
        let mut bad = Vec::new();
        for at in 0..500 {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            if at % 2 == 0 {
                stream.write_all(b"GET /livez HTTP/1.1\r\nHost").await.expect("half a head");
            }
            bad.push(stream);
        }
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer, and the end of the connection");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        for mut stream in bad {
            let mut rest = Vec::new();
            let closed = tokio::time::timeout(3 * READ_TIMEOUT, stream.read_to_end(&mut rest)).await;
            assert!(closed.is_ok(), "still open");
        }
        stop.cancel();
        serving.await.expect("it ends");
    }
}
