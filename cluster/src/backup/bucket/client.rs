//! HTTP/1.1 to the service: one connection, deadlines for each wait, and few retries.
//!
//! Each request can be repeated: a file is written whole, and the same name always gets the same content.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::answer::ServiceError;
use super::signature::{BucketKey, SignedRequest, sha256};
use crate::backup::address::BucketAccess;
use crate::process::system_roots::system_roots;

/// Maximum size of an answer. No file of a backup is as large.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// How long the client waits.
#[derive(Clone, Copy, Debug)]
pub struct BucketTimeouts {
    /// Maximum time until a connection is open and encrypted.
    pub connect: Duration,
    /// Maximum time for a request and for its answer, in addition to that of their bytes.
    pub answer: Duration,
    /// Slowest pace of a body, in bytes a second.
    pub slowest: u64,
    /// Pauses before the attempts.
    pub pauses: &'static [Duration],
}

impl Default for BucketTimeouts {
    fn default() -> BucketTimeouts {
        const PAUSES: [Duration; 4] =
            [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
        BucketTimeouts {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            slowest: 128 * 1024,
            pauses: &PAUSES,
        }
    }
}

impl BucketTimeouts {
    fn of(&self, bytes: u64) -> Duration {
        self.answer + Duration::from_secs(bytes / self.slowest)
    }
}

/// A request without its signature.
pub struct BucketRequest {
    /// The method.
    pub method: Method,
    /// The path: the bucket, and a name.
    pub path: String,
    /// The encoded query, with its names in alphabetical order.
    pub query: String,
    /// The body.
    pub body: Bytes,
}

/// The answer to a request.
#[derive(Debug)]
pub struct BucketAnswer {
    /// Status of HTTP.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, whole.
    pub body: Bytes,
}

impl BucketAnswer {
    /// Returns the answer as an error.
    pub fn error(&self) -> io::Error {
        let ServiceError { code, message } = ServiceError::parse(&self.body);
        let parts = [self.status.as_str(), &code, &message];
        let said = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let kind = match (self.status, code.as_str()) {
            (StatusCode::NOT_FOUND, "NoSuchKey") => ErrorKind::NotFound,
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, format!("the service answered {said}"))
    }

    /// Returns true if the same request may succeed later.
    fn is_temporary(&self) -> bool {
        self.status.is_server_error()
            || matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
    }
}

/// A client of one service.
pub struct BucketClient {
    access: BucketAccess,
    timeouts: BucketTimeouts,
    /// A connection that waits for its next request.
    idle: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl BucketClient {
    /// Returns a client without a connection.
    pub fn new(access: BucketAccess, timeouts: BucketTimeouts) -> BucketClient {
        BucketClient { access, timeouts, idle: Mutex::new(None) }
    }

    /// Sends a request once after each of the pauses, until the service gives an answer that is not temporary.
    ///
    /// # Errors
    /// Returns the last error. A final refusal by the service is an answer and no error.
    pub async fn send(&self, request: &BucketRequest) -> io::Result<BucketAnswer> {
        let secret = &self.access.credentials;
        let bad = |why: &str| io::Error::other(format!("the credentials {secret} {why}"));
        let credentials = secret.read().map_err(|why| bad(&why))?;
        let credentials = BucketKey::parse(&credentials).ok_or_else(|| bad("are not ID:SECRET on one line"))?;
        let body_hash = sha256(&request.body);
        let mut failed = io::Error::other("no attempt was made");
        for pause in self.timeouts.pauses {
            tokio::time::sleep(*pause).await;
            match self.attempt(request, &body_hash, &credentials).await {
                Ok(answer) if answer.is_temporary() => failed = answer.error(),
                Ok(answer) => return Ok(answer),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn attempt(
        &self,
        request: &BucketRequest,
        body_hash: &str,
        credentials: &BucketKey,
    ) -> io::Result<BucketAnswer> {
        let mut connection = within(self.timeouts.connect, "connecting", self.connected()).await??;
        let signed = self.signed(request, body_hash, credentials)?;
        let wait = self.timeouts.of(request.body.len() as u64);
        let answer = within(wait, "waiting for an answer", connection.send_request(signed)).await?.map_err(broken)?;
        let status = answer.status();
        let headers = answer.headers().clone();
        let body = self.body(answer).await?;
        *self.idle.lock() = Some(connection);
        Ok(BucketAnswer { status, headers, body })
    }

    async fn body(&self, answer: Response<Incoming>) -> io::Result<Bytes> {
        let body = answer.into_body();
        let wait = self.timeouts.of(body.size_hint().exact().unwrap_or_default());
        let body = within(wait, "reading an answer", Limited::new(body, ANSWER_BYTES_MAX).collect()).await?;
        Ok(body.map_err(|error| io::Error::other(format!("the answer is not whole: {error}")))?.to_bytes())
    }

    fn signed(
        &self,
        request: &BucketRequest,
        body_hash: &str,
        credentials: &BucketKey,
    ) -> io::Result<Request<Full<Bytes>>> {
        let BucketRequest { method, path, query, body } = request;
        let BucketAccess { endpoint, region, .. } = &self.access;
        let signed = SignedRequest {
            method: method.as_str(),
            host: &endpoint.authority,
            path,
            query,
            region,
            body_hash,
            at: Timestamp::now(),
        };
        let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let built = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", &endpoint.authority)
            // A service asks for it also where there is no body.
            .header("content-length", body.len())
            .header("x-amz-content-sha256", body_hash)
            .header("x-amz-date", signed.date())
            .header("authorization", signed.authorization(credentials))
            .body(Full::new(body.clone()));
        built.map_err(io::Error::other)
    }

    /// Returns the idle connection if it is still open, or else a new one.
    async fn connected(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let idle = self.idle.lock().take();
        if let Some(mut idle) = idle
            && idle.ready().await.is_ok()
        {
            return Ok(idle);
        }
        self.connect().await
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let endpoint = &self.access.endpoint;
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        stream.set_nodelay(true)?;
        if !endpoint.tls {
            return handshake(stream).await;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(system_roots().map_err(io::Error::other)?)
            .with_no_client_auth();
        let name = ServerName::try_from(endpoint.host.clone()).map_err(io::Error::other)?;
        handshake(TlsConnector::from(Arc::new(config)).connect(name, stream).await?).await
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends with its sender, or with the connection. The sender gets its error too.
    tokio::spawn(connection);
    Ok(sender)
}

async fn within<T>(limit: Duration, doing: &str, work: impl Future<Output = T>) -> io::Result<T> {
    let late = |_| io::Error::new(ErrorKind::TimedOut, format!("{doing} took more than {limit:?}"));
    timeout(limit, work).await.map_err(late)
}

fn broken(error: hyper::Error) -> io::Error {
    let mut said = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    io::Error::other(said)
}
