//! Limits of every listener of a node: connections, time until a client sends its first bytes, memory of messages.
//!
//! Used by the peer listener here, and by the node's listeners for the admin API, health and web pages. A connection
//! without first bytes is closed after [`FIRST_BYTES_WITHIN`]. If all places are taken, a new connection takes that of
//! one that nothing keeps (`open_connections`).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures::Stream;
use parking_lot::Mutex;
use reveille_ledger::ids::{NodeId, TokenId};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, PollSemaphore, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::identity::ClusterId;
pub use crate::open_connections::{
    CONNECTIONS_MAX, CONNECTIONS_OF_TENANTS_MAX, CONNECTIONS_OF_TOKEN_MAX, CallingToken,
};
use crate::open_connections::{HandledJoin, OpenConnections};
use crate::tls::{NodeTls, PeerCertificate, ServerTls};

/// Time after which the connection of a client without a certificate ends: a request to join is answered within it.
const UNAUTHENTICATED_ENDS_AFTER: Duration = Duration::from_secs(30);
/// A client must send its first bytes within this time.
pub const FIRST_BYTES_WITHIN: Duration = Duration::from_secs(10);
/// Number of bytes with which every HTTP/2 connection begins (RFC 9113, 3.4).
pub const HTTP2_PREFACE: usize = 24;
/// Silence after which the system probes a connection, and the interval of its probes.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
/// A connection ends after this many probes without an answer.
const KEEP_ALIVE_PROBES: u32 = 3;
/// Pause after a failed accept. Without it the next accept would fail too, for example when no file handles are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Pause until a connection is looked for again that can end for a waiting one.
const END_AGAIN: Duration = Duration::from_secs(1);
/// Maximum bytes of all messages that one listener has read and not answered. Further messages are refused.
pub const MESSAGES_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Stream of the accepted connections of a listener, at most [`CONNECTIONS_MAX`] at a time.
pub struct Incoming {
    listener: TcpListener,
    name: &'static str,
    preface: usize,
    has_handshakes: bool,
    when_ended: Option<WhenEnded>,
    open: Arc<OpenConnections>,
    permits: PollSemaphore,
    /// Accepted, and waits for its permit.
    accepted: Option<TcpStream>,
    /// True if another connection was ended for the one that waits.
    has_ended_one: bool,
    end_again: Option<Pin<Box<Sleep>>>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// `name` is for log lines. Each connection must send `preface` bytes within [`FIRST_BYTES_WITHIN`]. With zero the
    /// caller must limit that time itself.
    pub fn new(listener: TcpListener, name: &'static str, preface: usize) -> Incoming {
        let permits = PollSemaphore::new(Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        let open = OpenConnections::new(false);
        Incoming {
            listener,
            name,
            preface,
            has_handshakes: false,
            when_ended: None,
            open,
            permits,
            accepted: None,
            has_ended_one: false,
            end_again: None,
            pause: None,
        }
    }

    /// Only permitted calls keep a connection if others wait ([`Client::permit`]). Otherwise clients without any
    /// permission could hold all connections, because they may answer pings for ever.
    pub fn kept_by_calls(self) -> Incoming {
        Incoming { open: OpenConnections::new(true), ..self }
    }

    /// The connections have handshakes: until these are over, nothing keeps them.
    pub(crate) fn before_handshakes(self) -> Incoming {
        Incoming { has_handshakes: true, ..self }
    }

    /// Returns the name for log lines and metrics.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// `when_ended` is called at the end of each connection whose [`Client`] was named.
    pub fn reporting_ends(self, when_ended: WhenEnded) -> Incoming {
        Incoming { when_ended: Some(when_ended), ..self }
    }

    fn connection(&self, stream: TcpStream, permit: Option<OwnedSemaphorePermit>) -> Connection {
        // Without TCP_NODELAY a short answer may wait for the acknowledgement of the previous answer.
        let _ = stream.set_nodelay(true);
        let _ = keep_alive(&stream);
        let client = Client::of(&self.open);
        if !self.has_handshakes {
            self.open.keep(client.place);
        }
        Connection {
            stream: Either::Left(stream),
            silent: (self.preface > 0).then(|| (self.preface, Box::pin(sleep(FIRST_BYTES_WITHIN)))),
            cut: Box::pin(client.cut.clone().cancelled_owned()),
            late: None,
            _end: ConnectionEnd { client: client.clone(), when_ended: self.when_ended.clone() },
            client,
            _permit: permit,
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    /// The stream never ends and yields no error: a failed accept is logged and tried again.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Connection>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            if self.accepted.is_none() {
                match ready!(self.listener.poll_accept(cx)) {
                    Ok((stream, _)) => (self.accepted, self.has_ended_one) = (Some(stream), false),
                    Err(error) => {
                        tracing::warn!(%error, listener = self.name, "a connection was not accepted");
                        self.pause = Some(Box::pin(sleep(ACCEPT_AGAIN)));
                        continue;
                    }
                }
            }
            // The semaphore is never closed.
            if let Poll::Ready(permit) = self.permits.poll_acquire(cx)
                && let Some(stream) = self.accepted.take()
            {
                return Poll::Ready(Some(Ok(self.connection(stream, permit))));
            }
            while !self.has_ended_one {
                self.has_ended_one = self.open.end_one(Instant::now());
                if !self.has_ended_one {
                    let again = self.end_again.get_or_insert_with(|| Box::pin(sleep(END_AGAIN)));
                    ready!(again.as_mut().poll(cx));
                }
                self.end_again = None;
            }
            return Poll::Pending;
        }
    }
}

/// Lets the system detect a dead client: HTTP/1.1 has no pings.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_AFTER)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES)?;
    Ok(())
}

/// One connection. Dropping it lets the listener accept another connection.
pub struct Connection {
    stream: Either<TcpStream, TlsStream<TcpStream>>,
    /// Number of first bytes that are still missing, and their deadline. `None`: all have arrived.
    silent: Option<(usize, Pin<Box<Sleep>>)>,
    client: Client,
    /// Ready when the connection is to end: for a new one, or because the client's [`CertifiedCaller`] is cut off.
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Ready when the connection of a client without a certificate is to end.
    late: Option<Pin<Box<Sleep>>>,
    _end: ConnectionEnd,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Returns the address of the other side.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match &self.stream {
            Either::Left(stream) => stream.peer_addr().ok(),
            Either::Right(stream) => stream.get_ref().0.peer_addr().ok(),
        }
    }

    /// Returns what ends the connection from outside.
    pub(crate) fn caller(&self) -> CertifiedCaller {
        self.client.caller()
    }

    /// Returns what ends the connection for a new one. It ends no handshake: the caller must do that.
    pub(crate) fn cut(&self) -> CancellationToken {
        self.client.cut.clone()
    }

    /// Makes the handshake of TLS. The caller limits the time. The connection of a client without a certificate ends
    /// after [`UNAUTHENTICATED_ENDS_AFTER`], or earlier if there are too many of them.
    pub(crate) async fn encrypt(mut self, tls: &NodeTls) -> io::Result<Connection> {
        let Either::Left(plain) = self.stream else { return Ok(self) };
        let encrypted = tls.accept(plain).await?;
        self.client.certificate = PeerCertificate::of(&encrypted).map(Arc::new);
        if self.client.certificate.is_some() {
            self.client.open.keep(self.client.place);
        } else if self.client.join() {
            self.late = Some(Box::pin(sleep(UNAUTHENTICATED_ENDS_AFTER)));
        } else {
            return Err(io::Error::other("too many callers without a certificate"));
        }
        Ok(Connection { stream: Either::Right(encrypted), ..self })
    }

    /// Makes the handshake of TLS with a client, which has no certificate. The caller limits the time.
    pub(crate) async fn encrypt_for_client(self, tls: &ServerTls) -> io::Result<Connection> {
        let Either::Left(plain) = self.stream else { return Ok(self) };
        let encrypted = tls.accept(plain).await?;
        self.client.open.keep(self.client.place);
        Ok(Connection { stream: Either::Right(encrypted), ..self })
    }

    /// Fails if the connection is to end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let is_late = self.late.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready());
        if is_late || self.cut.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_end(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let Some((left, until)) = &mut self.silent else { return read };
        let came = buf.filled().len() - before;
        if came >= *left {
            self.silent = None;
            return read;
        }
        *left -= came;
        if read.is_pending() {
            ready!(until.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // A client that reads nothing must not keep the connection either.
        self.poll_end(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Frees the place of a connection and reports its end when it is dropped.
struct ConnectionEnd {
    client: Client,
    when_ended: Option<WhenEnded>,
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        self.client.open.remove(self.client.place);
        let client = self.client.number.load(Ordering::Relaxed);
        if client != 0
            && let Some(when_ended) = &self.when_ended
        {
            when_ended(client);
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client.clone()
    }
}

/// Called with the number of the client whose connection has ended.
pub type WhenEnded = Arc<dyn Fn(u64) + Send + Sync>;

/// The client of a connection, as far as the requests on it named one. Each request has it as an extension.
#[derive(Clone, Debug, Default)]
pub struct Client {
    number: Arc<AtomicU64>,
    /// All connections of the listener, and the number of this one.
    open: Arc<OpenConnections>,
    place: u64,
    /// The node that the certificate was found to name; 0: none yet.
    certified: Arc<AtomicU64>,
    /// Ends the connection.
    cut: CancellationToken,
    /// The client's certificate. `None`: it sent none, or the connection is not encrypted.
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
}

impl Client {
    fn of(open: &Arc<OpenConnections>) -> Client {
        let cut = CancellationToken::new();
        Client {
            number: Arc::default(),
            open: Arc::clone(open),
            place: open.add(cut.clone()),
            certified: Arc::default(),
            cut,
            certificate: None,
        }
    }

    /// Records which client sends on this connection; 0 is no client.
    pub fn name(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Records that a call on this connection is permitted. `None`: of a caller without a token. Returns false if the
    /// token, or all tokens of tenants together, keep as many connections as they may: the call is to be refused.
    pub fn permit(&self, token: Option<CallingToken>) -> bool {
        self.open.permit(self.place, token, Instant::now())
    }

    /// Records that a call with this token was denied, because it is not valid: it no longer keeps the connection.
    pub fn deny(&self, token: TokenId) {
        self.open.deny(self.place, token);
    }

    /// Records that the client has no certificate. Returns false if there are too many of them.
    fn join(&self) -> bool {
        self.open.join(self.place)
    }

    /// Keeps the connection of a client without a certificate until the result is dropped: its request to join is
    /// being handled. `None`: there are too many of them.
    pub(crate) fn handle_join(&self) -> Option<HandledJoin> {
        self.open.handle_join(self.place)
    }

    /// Returns what ends the connection.
    fn caller(&self) -> CertifiedCaller {
        let (certified, certificate) = (Arc::downgrade(&self.certified), self.certificate.clone());
        CertifiedCaller { certified, certificate, cut: self.cut.clone() }
    }

    /// Returns true if the client's certificate is the one of `node`. Each connection has one caller, so the name is
    /// looked up once.
    pub(crate) fn is_certified(&self, cluster: ClusterId, node: NodeId) -> bool {
        if self.certified.load(Ordering::Relaxed) == node.0 && node.0 != 0 {
            return true;
        }
        let is_certified = self.certificate.as_ref().is_some_and(|certificate| certificate.names(cluster, node));
        if is_certified {
            self.certified.store(node.0, Ordering::Relaxed);
        }
        is_certified
    }
}

/// The certified client of an open connection, for a list of all of them.
pub(crate) struct CertifiedCaller {
    certified: Weak<AtomicU64>,
    certificate: Option<Arc<PeerCertificate>>,
    cut: CancellationToken,
}

impl CertifiedCaller {
    /// Ends the connection if its client is to be cut off. Returns false if the connection is over.
    pub fn keep_unless(&self, cut_off: impl FnOnce(NodeId, &PeerCertificate) -> bool) -> bool {
        let Some(certified) = self.certified.upgrade() else { return false };
        let node = NodeId(certified.load(Ordering::Relaxed));
        if self.certificate.as_ref().is_some_and(|certificate| cut_off(node, certificate)) {
            self.cut.cancel();
        }
        true
    }
}

/// Memory budget for the messages of one listener.
pub fn message_memory() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MESSAGES_BYTES_MAX))
}

/// Middleware that counts the bytes read of a request against `memory` until its answer begins. Returns `None` if the
/// budget was exhausted and the request was not handled. It does not wait for memory: unread bytes would fill the
/// window of the connection and delay every other request on it.
pub async fn meter_memory(memory: Arc<Semaphore>, request: Request, next: Next) -> Option<Response> {
    let held = Arc::new(Mutex::new(MemoryUse::default()));
    let message = |body| Body::new(MeteredBody { body, memory, held: Arc::clone(&held) });
    let answer = next.run(request.map(message)).await;
    let is_refused = held.lock().is_refused;
    (!is_refused).then_some(answer)
}

/// Memory that a request holds.
#[derive(Default)]
struct MemoryUse {
    taken: Option<OwnedSemaphorePermit>,
    is_refused: bool,
}

/// A request's body that takes memory as it is read.
struct MeteredBody {
    body: Body,
    memory: Arc<Semaphore>,
    held: Arc<Mutex<MemoryUse>>,
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = frame.as_ref().and_then(|frame| Some(frame.as_ref().ok()?.data_ref()?.len())).unwrap_or(0);
        let taken =
            u32::try_from(bytes).ok().and_then(|bytes| Arc::clone(&self.memory).try_acquire_many_owned(bytes).ok());
        let mut held = self.held.lock();
        match (taken, &mut held.taken) {
            (Some(more), Some(taken)) => taken.merge(more),
            (Some(first), none) => *none = Some(first),
            (None, _) => {
                held.is_refused = true;
                return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::OutOfMemory)))));
            }
        }
        Poll::Ready(frame)
    }
}
