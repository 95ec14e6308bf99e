//! The transport of a real node: gRPC over TCP with persistent connections. It retries nothing.
//!
//! It uses plain HTTP/2: the operator must protect the peer port (docs/how-to/run-nodes.md).

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use reveille_proto::peer::v1::peer_service_client::PeerServiceClient;
use reveille_proto::peer::v1::peer_service_server::{PeerService, PeerServiceServer};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};

use crate::listen::{self, Client, HTTP2_PREFACE, Incoming};

use super::rpc::for_each_request;
use super::{Destination, Handler, MESSAGE_BYTES_MAX, PeerError, Rejection, Request, Response, Transport};

/// Limit of opening a connection; the next call tries again.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// A connection is closed if a ping is not answered. Without pings a healed partition waits for TCP's retransmission,
/// which backs off to many seconds.
const PING_EVERY: Duration = Duration::from_millis(1_000);
const PING_LIMIT: Duration = Duration::from_millis(1_500);
/// Maximum number of concurrent requests of one peer. The proposer limits proposals in flight.
const STREAMS_MAX: u32 = 4_096;
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
        Request::SendBlock(_) => Priority::Bulk,
        Request::Application(request) if request.bulk => Priority::Bulk,
        _ => Priority::Prompt,
    }
}

/// gRPC between peers: one connection for each peer and priority, opened at the first call.
pub struct GrpcTransport {
    address: SocketAddr,
    listener: Mutex<Option<std::net::TcpListener>>,
    channels: Mutex<HashMap<(String, Priority), Channel>>,
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
            channels: Mutex::new(HashMap::new()),
            runtime: OnceLock::new(),
        })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn channel(&self, to: &Destination, priority: Priority) -> Result<Channel, PeerError> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&(to.address.clone(), priority)) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{}", to.address))
            .map_err(|error| PeerError::Unreachable(format!("'{}' is no address: {error}", to.address)))?
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true);
        let _inside = self.runtime.get().map(Handle::enter);
        let channel = endpoint.connect_lazy();
        channels.insert((to.address.clone(), priority), channel.clone());
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
        // This succeeds: a second call of `serve` has no listener and fails above.
        let _ = self.runtime.set(Handle::current());
        let service = PeerServiceServer::new(Receiver { handler })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let bounded = from_fn_with_state(listen::message_memory(), |State(memory), request, next| async {
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

/// Converts a gRPC status into the caller's error.
fn peer_error(status: Status) -> PeerError {
    let text = status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition => Rejection::Unauthorized(text).into(),
        Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted => Rejection::Malformed(text).into(),
        Code::Aborted => Rejection::Unavailable(text).into(),
        Code::Unimplemented => Rejection::Unimplemented(text).into(),
        _ if was_never_sent(&status) => PeerError::Unreachable(text),
        code => PeerError::Lost(format!("{code:?}: {text}")),
    }
}

fn was_never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn status(rejection: Rejection) -> Status {
    match rejection {
        Rejection::Unauthorized(text) => Status::failed_precondition(text),
        Rejection::Unimplemented(text) => Status::unimplemented(text),
        Rejection::Malformed(text) => Status::invalid_argument(text),
        Rejection::Unavailable(text) => Status::aborted(text),
    }
}

struct Receiver {
    handler: Arc<dyn Handler>,
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
                let request = Request::$name(request.into_inner());
                if let (Request::Append(append), Some(client)) = (&request, client) {
                    client.name(append.header.as_ref().map_or(0, |header| header.from));
                }
                match self.handler.handle(request).await {
                    Ok(Response::$name(answer)) => Ok(tonic::Response::new(answer)),
                    Ok(_) => Err(Status::internal("another answer than that of the request")),
                    Err(rejection) => Err(status(rejection)),
                }
            })*
        }
    };
}

for_each_request!(grpc);
