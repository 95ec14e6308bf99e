//! A fake node: a gRPC server on its own port that answers as a test defines, without code of the real server. Messages
//! are passed as bytes, so that one handler serves every method.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use prost::Message;
use prost::bytes::{Buf, BufMut};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::Grpc;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The messages of a response. A streaming method may have several.
pub type Answer = Result<Vec<Vec<u8>>, Status>;
type Handler = Arc<dyn Fn(&str, &[u8]) -> Answer + Send + Sync>;
type RequestLog = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A running fake node. It stops with the runtime of its test.
pub struct Fake {
    address: SocketAddr,
    requested: RequestLog,
}

impl Fake {
    /// Starts a fake node. The handler gets the method's name, such as `GetRun`, and the bytes of the request.
    pub async fn start(handler: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requested = RequestLog::default();
        let one = One { handler: Arc::new(handler), requested: requested.clone(), method: String::new() };
        let answer = move |request: http::Request<Body>| {
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let one = One { method, ..one.clone() };
            async move { Grpc::new(Raw).server_streaming(one, request).await }
        };
        let routes = Routes::from(Router::new().fallback(answer));
        let server = tonic::transport::Server::builder().add_routes(routes);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Fake { address, requested }
    }

    /// Starts a fake node that knows only one method.
    pub async fn answering<M: Message>(method: &'static str, message: M) -> Fake {
        let bytes = message.encode_to_vec();
        Fake::start(
            move |requested, _| if requested == method { Ok(vec![bytes.clone()]) } else { Err(unknown(requested)) },
        )
        .await
    }

    /// Starts a fake node that refuses every request.
    pub async fn refusing(code: Code, reason: &'static str, message: &'static str) -> Fake {
        Fake::start(move |_, _| Err(refusal(code, reason, message))).await
    }

    /// Runs the binary against it.
    pub async fn reveille(&self, line: &str) -> crate::terminal::Ended {
        crate::terminal::reveille(&format!("--endpoint {} {line}", self.address)).await
    }

    /// Runs a command that does not end by itself, until `is_enough` is true for its output.
    pub async fn followed(&self, line: &str, is_enough: impl Fn(&str, &str) -> bool) -> crate::terminal::Ended {
        let address = self.address.to_string();
        let words = ["--endpoint", &address].into_iter().chain(line.split_whitespace()).collect::<Vec<_>>();
        crate::terminal::until(&mut crate::terminal::command(&words), is_enough).await
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the names of the called methods, in order.
    pub fn methods(&self) -> Vec<String> {
        self.requested.lock().expect("unpoisoned").iter().map(|(method, _)| method.clone()).collect()
    }

    /// Returns the requests of one method, in order.
    pub fn requests<M: Message + Default>(&self, method: &str) -> Vec<M> {
        let requested = self.requested.lock().expect("unpoisoned");
        let of_method = requested.iter().filter(|(called, _)| called == method);
        of_method.map(|(_, bytes)| M::decode(bytes.as_slice()).expect("a request")).collect()
    }
}

/// Returns a response with one message.
pub fn one<M: Message>(message: M) -> Answer {
    Ok(vec![message.encode_to_vec()])
}

/// Returns an error in the form of a real node.
pub fn refusal(code: Code, reason: &str, message: &str) -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info(reason, "reveille", std::collections::HashMap::new());
    Status::with_error_details(code, message, details)
}

/// Returns an error about a field, in the form of a real node.
pub fn refusal_of(reason: &str, field: &str, message: &str) -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info(reason, "reveille", std::collections::HashMap::new());
    details.add_bad_request_violation(field, message);
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// Returns the error for a method that the test did not expect.
pub fn unknown(method: &str) -> Status {
    Status::unimplemented(format!("{method} was not foreseen"))
}

#[derive(Clone)]
struct One {
    handler: Handler,
    requested: RequestLog,
    method: String,
}

impl Service<Request<Vec<u8>>> for One {
    type Response = Response<tokio_stream::Iter<std::vec::IntoIter<Result<Vec<u8>, Status>>>>;
    type Error = Status;
    type Future = Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let bytes = request.into_inner();
        self.requested.lock().expect("unpoisoned").push((self.method.clone(), bytes.clone()));
        let messages = (self.handler)(&self.method, &bytes);
        let stream = messages.map(|all| tokio_stream::iter(all.into_iter().map(Ok).collect::<Vec<_>>()));
        ready(stream.map(Response::new))
    }
}

/// A codec that passes messages as bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length).to_vec()))
    }
}
