//! The transport of a real node: gRPC over TCP with persistent connections. It retries nothing.
//!
//! With certificates every connection is encrypted, and a request is accepted only from the node that the caller's
//! certificate names. Without them, as in tests, every caller can act as a member.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::iter::successors;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::middleware::from_fn_with_state;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use reveille_proto::peer::v1::peer_service_client::PeerServiceClient;
use reveille_proto::peer::v1::peer_service_server::{PeerService, PeerServiceServer};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};

use super::rpc::for_each_request;
use super::{Destination, Handler, MESSAGE_BYTES_MAX, PeerError, Rejection, Request, Response, Transport};
use crate::handshakes::{HANDSHAKE_LIMIT, connections, with_handshakes};
use crate::identity::ClusterId;
use crate::injected_bugs;
use crate::listen::{self, CertifiedCaller, Client, HTTP2_PREFACE, Incoming};
use crate::tls::NodeTls;

/// Limit of opening a connection; the next call tries again.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// Path and maximum size of the only request of a caller without a certificate.
const JOIN_PATH: &str = "/reveille.peer.v1.PeerService/Join";
const JOIN_BYTES_MAX: usize = 4 * 1024;
/// A connection is closed if a ping is not answered. Without pings a healed partition waits for TCP's retransmission,
/// which backs off to many seconds.
const PING_EVERY: Duration = Duration::from_millis(1_000);
const PING_LIMIT: Duration = Duration::from_millis(1_500);
/// Maximum number of concurrent requests of one peer. The proposer limits proposals in flight.
const STREAMS_MAX: u32 = 4_096;
/// Interval at which the connections of removed nodes are ended.
const END_REMOVED_EVERY: Duration = Duration::from_secs(1);
/// Number of such checks after a change of the authorities that this node trusts.
const CHECKS_AFTER_CHANGE: u32 = 10;
/// Time that running requests have to end when the node stops.
const DRAIN: Duration = Duration::from_millis(500);

/// The connection that a request uses. Bulk data has a separate connection, so that it does not delay a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Priority {
    Prompt,
    Bulk,
}

fn priority_of(request: &Request) -> Priority {
    match request {
        Request::SendBlocks(_) | Request::FetchBlocks(_) => Priority::Bulk,
        Request::Application(request) if request.bulk => Priority::Bulk,
        _ => Priority::Prompt,
    }
}

/// The connections to peers, each with the generation of the certificates with which it was opened.
type Channels = Arc<Mutex<HashMap<(Destination, Priority), (u64, Channel)>>>;
/// The connections from peers.
type Callers = Arc<Mutex<Vec<CertifiedCaller>>>;

/// gRPC between peers: one connection for each peer and priority, opened at the first call.
pub struct GrpcTransport {
    address: SocketAddr,
    listener: Mutex<Option<std::net::TcpListener>>,
    channels: Channels,
    /// `None`: connections are not encrypted.
    tls: Option<NodeTls>,
    /// Runtime of `serve`. All connections run on it, even if the call comes from another runtime.
    runtime: OnceLock<Handle>,
}

impl GrpcTransport {
    /// Binds the address. Serving begins when the replica is ready. With port 0 the system chooses the port.
    pub fn bind(listen: SocketAddr) -> io::Result<GrpcTransport> {
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        Ok(GrpcTransport {
            address: listener.local_addr()?,
            listener: Mutex::new(Some(listener)),
            channels: Arc::default(),
            tls: None,
            runtime: OnceLock::new(),
        })
    }

    /// Encrypts all connections, and talks only to members of the cluster. Without this call any caller can act as a
    /// member.
    pub fn with_certificates(self, tls: &NodeTls) -> GrpcTransport {
        GrpcTransport { tls: injected_bugs::peers_are_encrypted().then(|| tls.clone()), ..self }
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn channel(&self, to: &Destination, priority: Priority) -> Result<Channel, PeerError> {
        let mut channels = self.channels.lock();
        // The node and its key belong to it: both are checked when the connection opens.
        let key = (to.clone(), priority);
        // After a change of the certificates, new requests open a connection, and the former one ends with its last.
        let generation = self.tls.as_ref().map_or(0, NodeTls::generation);
        if let Some((opened, channel)) = channels.get(&key)
            && *opened == generation
        {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{}", to.address))
            .map_err(|error| PeerError::Unreachable(format!("'{}' is not an address: {error}", to.address)))?
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true);
        let _inside = self.runtime.get().map(Handle::enter);
        let channel = match &self.tls {
            Some(tls) => encrypted(&endpoint, tls.clone(), to.clone()),
            None => endpoint.connect_lazy(),
        };
        channels.insert(key, (generation, channel.clone()));
        Ok(channel)
    }
}

#[async_trait]
impl Transport for GrpcTransport {
    async fn serve(&self, handler: Arc<dyn Handler>, stop: CancellationToken) -> io::Result<()> {
        let listener = self.listener.lock().take().ok_or_else(|| io::Error::other("this transport serves already"))?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let ends = Arc::clone(&handler);
        let when_ended = Arc::new(move |peer| ends.connection_ended(NodeId(peer)));
        let incoming = Incoming::new(listener, "peers", HTTP2_PREFACE).reporting_ends(when_ended);
        let callers = Callers::default();
        let incoming = match &self.tls {
            Some(tls) => {
                let (tls, callers) = (tls.clone(), Arc::clone(&callers));
                with_handshakes(incoming, move |connection| {
                    let (tls, callers) = (tls.clone(), Arc::clone(&callers));
                    async move {
                        let connection = connection.encrypt(&tls).await?;
                        callers.lock().push(connection.caller());
                        Ok(connection)
                    }
                })
            }
            None => connections(incoming, None),
        };
        if let Some(tls) = self.tls.clone() {
            tokio::spawn(end_removed(tls, Arc::clone(&handler), callers, Arc::clone(&self.channels), stop.clone()));
        }
        // This succeeds: a second call of `serve` has no listener and fails above.
        let _ = self.runtime.set(Handle::current());
        let service = PeerServiceServer::new(Receiver { handler, cluster: self.tls.as_ref().map(NodeTls::cluster) })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let encrypts = self.tls.is_some();
        let bounded =
            from_fn_with_state(listen::message_memory(), move |State(memory), request: HttpRequest, next| async move {
                let is_joining = is_unauthenticated(encrypts, &request);
                let client = request.extensions().get::<Client>().filter(|_| is_joining).cloned();
                let request = match is_joining {
                    true => match join_request(request).await {
                        Ok(request) => request,
                        Err(refusal) => return refusal.into_http(),
                    },
                    false => request,
                };
                // Held until the answer.
                let handled = client.map(|client| client.handle_join());
                if let Some(None) = handled {
                    return Status::unavailable("too many nodes join now; try again").into_http();
                }
                let answer = listen::meter_memory(memory, request, next).await;
                answer.unwrap_or_else(|| Status::aborted("this node works on too many large messages").into_http())
            });
        let routes = Routes::new(service).into_axum_router().layer(bounded);
        let drained = stop.clone();
        let serving = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_LIMIT))
            .add_routes(Routes::from(routes))
            .serve_with_incoming_shutdown(incoming, drained.cancelled_owned());
        tokio::spawn(async move {
            let given_up = async {
                stop.cancelled().await;
                tokio::time::sleep(DRAIN).await;
            };
            tokio::select! {
                result = serving => if let Err(error) = result {
                    tracing::error!(%error, "the peer listener ended");
                },
                () = given_up => {}
            }
        });
        Ok(())
    }

    async fn call(&self, to: &Destination, request: Request, limit: Duration) -> Result<Response, PeerError> {
        let mut client = PeerServiceClient::new(self.channel(to, priority_of(&request))?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let name = request.name().to_owned();
        match tokio::time::timeout(limit, send(&mut client, request, limit)).await {
            Ok(answer) => answer.map_err(peer_error),
            Err(_) => Err(PeerError::Lost(format!("{name} to {to}: nothing within {} ms", limit.as_millis()))),
        }
    }
}

/// Returns a channel whose connections are encrypted, and reach no other node than `to`.
fn encrypted(endpoint: &Endpoint, tls: NodeTls, to: Destination) -> Channel {
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let (tls, to) = (tls.clone(), to.clone());
        async move {
            let stream = TcpStream::connect(&to.address).await?;
            stream.set_nodelay(true)?;
            let stream = tls.connect(to.node, stream).await?;
            if to.key.is_some() && NodeTls::pin_of_called(&stream) != to.key {
                return Err(io::Error::other(format!("the certificate at {to} has another key than this member")));
            }
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    }))
}

/// Returns true if the caller has no certificate, although this node asks for one.
fn is_unauthenticated(encrypts: bool, request: &HttpRequest) -> bool {
    let client = request.extensions().get::<Client>();
    encrypts && client.is_none_or(|client| client.certificate.is_none())
}

/// Returns the request of a caller without a certificate, with its whole body: only a short request to join.
async fn join_request(request: HttpRequest) -> Result<HttpRequest, Status> {
    let (head, body) = request.into_parts();
    if head.uri.path() != JOIN_PATH {
        return Err(Status::failed_precondition("without a certificate a node can only join"));
    }
    match timeout(HANDSHAKE_LIMIT, to_bytes(body, JOIN_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(HttpRequest::from_parts(head, Body::from(body))),
        _ => Err(Status::invalid_argument("the request to join is too long or incomplete")),
    }
}

/// Ends the connections from and to removed nodes, and those from callers with a certificate of an authority that this
/// node no longer trusts, each second until `stop`.
async fn end_removed(
    tls: NodeTls,
    handler: Arc<dyn Handler>,
    callers: Callers,
    channels: Channels,
    stop: CancellationToken,
) {
    let (mut seen, mut checks) = (tls.generation(), 0);
    while stop.run_until_cancelled(tokio::time::sleep(END_REMOVED_EVERY)).await.is_some() {
        let generation = tls.generation();
        // A handshake that was under way at the change ends within its limit.
        checks = if std::mem::replace(&mut seen, generation) == generation {
            u32::saturating_sub(checks, 1)
        } else {
            CHECKS_AFTER_CHANGE
        };
        callers.lock().retain(|caller| {
            caller.keep_unless(|node, certificate| handler.is_removed(node) || (checks > 0 && !tls.trusts(certificate)))
        });
        channels.lock().retain(|(to, _), _| !handler.is_removed(to.node));
    }
}

/// Returns the message of a status with all its causes. `tonic` says only "transport error" for a failed handshake.
pub(crate) fn connect_error(status: &Status) -> String {
    let mut text = status.message().to_owned();
    for cause in causes(status).map(|cause| cause.to_string()) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns the causes of a status, the nearest one first.
fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(status.source(), |&cause| cause.source())
}

/// Converts a gRPC status into the caller's error.
fn peer_error(status: Status) -> PeerError {
    let text = status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition => Rejection::Unauthorized(text).into(),
        Code::PermissionDenied => Rejection::Removed(text).into(),
        Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted => Rejection::Malformed(text).into(),
        Code::Aborted => Rejection::Unavailable(text).into(),
        Code::Unimplemented => Rejection::Unimplemented(text).into(),
        _ if was_never_sent(&status) => PeerError::Unreachable(connect_error(&status)),
        code => PeerError::Lost(format!("{code:?}: {text}")),
    }
}

/// Returns true if the request had no connection, so that the server cannot have executed it.
pub fn was_never_sent(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<tonic::ConnectError>())
}

fn status(rejection: Rejection) -> Status {
    match rejection {
        Rejection::Unauthorized(text) => Status::failed_precondition(text),
        Rejection::Removed(text) => Status::permission_denied(text),
        Rejection::Unimplemented(text) => Status::unimplemented(text),
        Rejection::Malformed(text) => Status::invalid_argument(text),
        Rejection::Unavailable(text) => Status::aborted(text),
    }
}

struct Receiver {
    handler: Arc<dyn Handler>,
    /// The cluster whose certificates callers must have. `None`: connections are not encrypted.
    cluster: Option<ClusterId>,
}

impl Receiver {
    async fn receive(&self, request: Request, client: Option<Client>) -> Result<Response, Rejection> {
        let client = client.unwrap_or_default();
        if let Some(cluster) = self.cluster {
            self.check_caller(cluster, &request, &client)?;
        }
        if let Request::Append(append) = &request {
            client.name(append.header.as_ref().map_or(0, |header| header.from));
        }
        self.handler.handle(request).await
    }

    /// Checks that the caller's certificate is the one of the node that the request names as its sender. Without a
    /// certificate a caller may only join.
    fn check_caller(&self, cluster: ClusterId, request: &Request, client: &Client) -> Result<(), Rejection> {
        let Some(certificate) = &client.certificate else {
            return match request {
                Request::Join(join) if join.header.is_none() => Ok(()),
                _ => Err(Rejection::Unauthorized("without a certificate a node can only join".to_owned())),
            };
        };
        let from = NodeId(request.header().map_or(0, |header| header.from));
        if !client.is_certified(cluster, from) {
            return Err(Rejection::Unauthorized(format!("the certificate of this connection is not node {from}'s")));
        }
        if self.handler.pinned_key(from).is_some_and(|pin| pin != certificate.pin) {
            return Err(Rejection::Unauthorized(format!("node {from} has another key than the member of this id")));
        }
        Ok(())
    }
}

macro_rules! grpc {
    ($($(#[$doc:meta])* $name:ident $method:ident $request:ident $response:ident;)*) => {
        async fn send(
            client: &mut PeerServiceClient<Channel>,
            request: Request,
            limit: Duration,
        ) -> Result<Response, Status> {
            match request {
                $(Request::$name(message) => {
                    let mut request = tonic::Request::new(message);
                    request.set_timeout(limit);
                    client.$method(request).await.map(|answer| Response::$name(answer.into_inner()))
                })*
            }
        }

        #[tonic::async_trait]
        impl PeerService for Receiver {
            $(async fn $method(
                &self,
                request: tonic::Request<v1::$request>,
            ) -> Result<tonic::Response<v1::$response>, Status> {
                let client = request.extensions().get::<Client>().cloned();
                match self.receive(Request::$name(request.into_inner()), client).await {
                    Ok(Response::$name(answer)) => Ok(tonic::Response::new(answer)),
                    Ok(_) => Err(Status::internal("another answer than that of the request")),
                    Err(rejection) => Err(status(rejection)),
                }
            })*
        }
    };
}

for_each_request!(grpc);
