//! Sends requests to the cluster: tries its addresses in turn, and decides what a lost answer means.
//!
//! Any node accepts any request. A node that answers UNAVAILABLE with a reason has done nothing, so the client tries
//! the next address. It repeats this for [`RETRY_FOR`], because a fail-over takes about a second. Nodes that have had
//! no leader for longer than an election takes are no reason to wait. After a lost answer the request may have been
//! carried out; its [`RetrySafety`] decides if it is repeated.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message as _;
use prost::bytes::Bytes;
use reveille_proto::{ListPage, Listing, Unary};
use reveille_raft::tls::ClientTls;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_types::StatusExt;

use super::bytes_codec::BytesCodec;
use super::connection::{self, CONNECT_WITHIN, ConnectFailure};
use super::endpoint::Endpoint;
use super::failure::{Exit, Failure};
use super::target::{Target, unknown_cluster};
use crate::server::admin::LEADERLESS;
use crate::server::config::Config;

/// Time limit for retries while nodes answer that they cannot accept the request.
const RETRY_FOR: Duration = Duration::from_secs(5);
/// First pause between two rounds over all addresses. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Message of `tonic` for an answer in plain HTTP.
const NO_GRPC: &str = "grpc-status header missing";

/// Retry safety: whether a request may be repeated after its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety {
    /// The request changes nothing.
    Read,
    /// A repetition has no further effect.
    Repeatable,
    /// A repetition may have a further effect, so the client never repeats it.
    Once,
}

/// Client for the admin API, for one command.
pub struct Client {
    /// The nodes. An error is the failure of every request.
    target: Arc<Result<Target, Failure>>,
    /// When requests end without an answer. `None`: never.
    deadline: Mutex<Option<Instant>>,
    retry_for: Duration,
    request_id: String,
    channels: Mutex<BTreeMap<String, Channel>>,
    /// Retry safety of the request in progress. `None` when no answer is outstanding.
    asking: Mutex<Option<RetrySafety>>,
    /// Index of the address that answered last, which is tried first.
    answered: Mutex<Option<usize>>,
}

/// How an attempt at one address failed.
enum AttemptError {
    /// No connection, so no request was sent.
    Unreachable(Failure),
    /// The node answered that it cannot accept the request, and did nothing.
    NotNow(Failure),
    /// The node did nothing because it has had no leader for longer than an election takes.
    Leaderless(Failure),
    /// The connection broke before the answer.
    Lost(Failure),
    /// An answer that every node would give, or the end of the timeout.
    Final(Failure),
}

impl Client {
    /// `within` limits the whole command. `None` sets no limit.
    pub fn new(target: Arc<Result<Target, Failure>>, within: Option<Duration>, request_id: String) -> Client {
        Client {
            target,
            deadline: Mutex::new(within.map(|within| Instant::now() + within)),
            retry_for: RETRY_FOR,
            request_id,
            channels: Mutex::default(),
            asking: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    /// Makes the client try each address once per request; the caller then repeats the request.
    pub fn without_retries(self) -> Client {
        Client { retry_for: Duration::ZERO, ..self }
    }

    /// Returns the id under which this command may be repeated.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Sets a new deadline from now on. A command that sends requests until something happens sets one for each.
    pub fn set_timeout(&self, within: Duration) {
        *self.deadline.lock() = Some(Instant::now() + within);
    }

    /// Moves the deadline, if there is one, by the time that did not count.
    pub fn extend(&self, by: Duration) {
        let mut deadline = self.deadline.lock();
        *deadline = deadline.map(|at| at + by);
    }

    /// Removes the deadline.
    pub fn clear_deadline(&self) {
        *self.deadline.lock() = None;
    }

    /// Closes the connections: the next request makes its handshake anew.
    pub fn disconnect(&self) {
        self.channels.lock().clear();
    }

    /// Returns the address that answered last.
    pub fn answered_by(&self) -> Option<String> {
        Some(self.endpoints().get((*self.answered.lock())?)?.address.clone())
    }

    fn endpoints(&self) -> &[Endpoint] {
        self.target.as_ref().as_ref().map_or(&[], |target| &target.endpoints)
    }

    fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock()
    }

    /// Returns all addresses with their indices. The one that answered last comes first.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &Endpoint)> {
        let first = self.answered.lock().unwrap_or_default();
        let all = self.endpoints().iter().enumerate();
        all.clone().skip(first).chain(all.take(first))
    }

    /// Sends a request, and returns the first successful answer.
    pub async fn ask<Q: Unary>(&self, safety: RetrySafety, request: Q) -> Result<Q::Response, Failure> {
        let answer = self.ask_encoded(safety, Q::PATH, request.encode_to_vec().into()).await?;
        Q::Response::decode(answer).map_err(|error| Failure::of_status(&Status::internal(error.to_string())))
    }

    async fn ask_encoded(&self, safety: RetrySafety, path: &'static str, request: Bytes) -> Result<Bytes, Failure> {
        self.call(safety, request, |channel, request| unary(channel, path, request)).await
    }

    /// Reads one page of a list.
    pub async fn page<Q: Listing>(
        &self,
        request: Q,
        stale: bool,
        page_size: i32,
        page_token: String,
    ) -> Result<ListPage<Q::Item>, Failure> {
        Ok(Q::page(self.ask(RetrySafety::Read, request.at(stale, page_size, page_token)).await?))
    }

    /// Calls a method, also one with streams, and returns the first successful answer.
    pub async fn call<Q, A, F, Fut>(&self, safety: RetrySafety, message: Q, call: F) -> Result<A, Failure>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        *self.asking.lock() = Some(safety);
        let answer = async {
            let target = self.target.as_ref().as_ref().map_err(Clone::clone)?;
            let retry_until = Instant::now() + self.retry_for;
            let mut pause = FIRST_PAUSE;
            // If an answer was lost, the request may have been done, whatever other nodes answer later.
            let mut lost = None;
            loop {
                let mut refused = None;
                let mut worth_waiting = false;
                for (place, endpoint) in self.in_turn() {
                    match self.ask_at(target, endpoint, safety, message.clone(), &call).await {
                        Ok(answer) => {
                            *self.answered.lock() = Some(place);
                            return Ok(answer);
                        }
                        Err(AttemptError::Final(failure)) => return Err(failure),
                        Err(AttemptError::Lost(failure)) if safety == RetrySafety::Once => return Err(failure),
                        Err(AttemptError::Lost(failure)) => (worth_waiting, lost) = (true, Some(failure)),
                        Err(AttemptError::NotNow(failure)) => (worth_waiting, refused) = (true, Some(failure)),
                        Err(AttemptError::Leaderless(failure)) => refused = Some(failure),
                        Err(AttemptError::Unreachable(failure)) => refused = refused.or(Some(failure)),
                    }
                }
                if !worth_waiting || Instant::now() + pause > retry_until.min(self.deadline().unwrap_or(retry_until)) {
                    let no_address = || Failure::general("no address to ask at", "name a node: --endpoint HOST:PORT");
                    return Err(lost.or(refused).unwrap_or_else(no_address));
                }
                sleep(pause).await;
                pause *= 2;
            }
        };
        let answer = answer.await;
        *self.asking.lock() = None;
        answer
    }

    /// Returns the failure after Ctrl-C. It says if the request in progress may have been carried out.
    pub fn interrupted(&self) -> Failure {
        let failure = |message| Failure { next: None, ..Failure::new(Exit::Interrupted, "INTERRUPTED", message, "") };
        let failure = match *self.asking.lock() {
            None | Some(RetrySafety::Read) => failure("interrupted"),
            Some(safety) => self.may_have_happened(safety, failure("interrupted: it may have happened")),
        };
        Failure { exit: Exit::Interrupted, ..failure }
    }

    async fn ask_at<Q, A, F, Fut>(
        &self,
        target: &Target,
        endpoint: &Endpoint,
        safety: RetrySafety,
        message: Q,
        call: &F,
    ) -> Result<A, AttemptError>
    where
        F: Fn(Channel, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let link = target.link(endpoint).map_err(AttemptError::Unreachable)?;
        let channel =
            self.connect(target, endpoint, link.map(|(tls, _)| tls)).await.map_err(AttemptError::Unreachable)?;
        let mut request = Request::new(message);
        if let Some(token) = link.and_then(|(_, token)| token) {
            request.metadata_mut().insert("authorization", token.header().map_err(AttemptError::Final)?);
        }
        let answer = match self.deadline() {
            None => call(channel, request).await,
            Some(deadline) => {
                // The deadline is sent with the request, so that the node stops work that would be too late.
                request.set_timeout(deadline.saturating_duration_since(Instant::now()));
                let late = Status::deadline_exceeded("");
                timeout_at(deadline, call(channel, request)).await.unwrap_or(Err(late))
            }
        };
        let status = match answer {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => status,
        };
        let missed = self.missed(&endpoint.address, safety, &status);
        // A node that expects TLS breaks a connection in plaintext, and does nothing.
        if link.is_none()
            && matches!(missed, AttemptError::Lost(_) | AttemptError::Unreachable(_))
            && connection::shown_authority(endpoint).await.is_ok()
        {
            return Err(AttemptError::Unreachable(unknown_cluster(endpoint)));
        }
        Err(missed)
    }

    /// Classifies a status: the node sent it, or `tonic` made it because the connection broke.
    fn missed(&self, address: &str, safety: RetrySafety, status: &Status) -> AttemptError {
        use tonic::Code::{Cancelled, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
        let answered = status.get_details_error_info().is_some();
        match status.code() {
            Unimplemented if !answered && status.message().contains(NO_GRPC) => {
                self.channels.lock().remove(address);
                AttemptError::Unreachable(not_admin(address))
            }
            Unavailable if is_leaderless(status) => AttemptError::Leaderless(Failure::of_status(status)),
            Unavailable if answered => AttemptError::NotNow(Failure::of_status(status)),
            DeadlineExceeded => AttemptError::Final(self.timed_out(safety, status)),
            // `tonic` reports the end of the request's own timeout as a cancellation.
            Cancelled if !answered && self.is_over() => AttemptError::Final(self.timed_out(safety, status)),
            Unavailable | Unknown | Internal | Cancelled if !answered => {
                self.channels.lock().remove(address);
                AttemptError::Lost(self.lost(address, safety, status))
            }
            _ => AttemptError::Final(Failure::of_status(status)),
        }
    }

    /// True if the deadline has passed.
    pub fn is_over(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn timed_out(&self, safety: RetrySafety, status: &Status) -> Failure {
        let said = Failure::of_status(status);
        let message = match safety {
            RetrySafety::Read => "no answer in time".to_owned(),
            RetrySafety::Repeatable | RetrySafety::Once => "no answer in time: it may have happened".to_owned(),
        };
        let named = status.get_details_error_info().is_some();
        let reason = if named { said.reason } else { "TIMED_OUT".into() };
        self.may_have_happened(safety, Failure { reason, message, ..Failure::default() })
    }

    fn lost(&self, address: &str, safety: RetrySafety, status: &Status) -> Failure {
        let reason = "ANSWER_LOST";
        let message = format!("the connection to {address} broke before the answer: {}", cause(status));
        match safety {
            RetrySafety::Read => {
                let next = "the same again; if it stays so, is that a node's admin port?";
                Failure::new(Exit::NoQuorum, reason, message, next)
            }
            RetrySafety::Repeatable | RetrySafety::Once => {
                let message = format!("{message}; it may have happened");
                self.may_have_happened(safety, Failure { reason: reason.into(), message, ..Failure::default() })
            }
        }
    }

    fn may_have_happened(&self, safety: RetrySafety, failure: Failure) -> Failure {
        let next = match safety {
            RetrySafety::Read => "a longer --timeout, or reveille cluster status".to_owned(),
            RetrySafety::Repeatable => {
                format!("the same command with --request-id {}: it happens once", self.request_id)
            }
            RetrySafety::Once => "look before you repeat it: it may happen twice".to_owned(),
        };
        let request_id = (safety == RetrySafety::Repeatable).then(|| self.request_id.as_str().into());
        Failure { exit: Exit::TimedOut, next: Some(next), request_id, ..failure }
    }

    async fn connect(&self, target: &Target, endpoint: &Endpoint, tls: Option<&ClientTls>) -> Result<Channel, Failure> {
        if let Some(channel) = self.channels.lock().get(&endpoint.address) {
            return Ok(channel.clone());
        }
        let all = || target.endpoints.iter().map(|one| one.address.as_str()).collect::<Vec<_>>().join(", ");
        let unreachable = |why: String| {
            let message = format!("no node answers at {}: {why}", all());
            let next = "start a node, or name another with --endpoint HOST:PORT (or REVEILLE_URL)";
            Failure::new(Exit::NoQuorum, "UNREACHABLE", message, next).at("--endpoint")
        };
        let until = Instant::now() + CONNECT_WITHIN;
        let until = self.deadline().map_or(until, |deadline| deadline.min(until));
        let channel = match timeout_at(until, connection::connect(endpoint, tls)).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(ConnectFailure::Unreachable(why))) => return Err(unreachable(why)),
            Ok(Err(ConnectFailure::Handshake(error))) => {
                return Err(Target::refused(target.context(), endpoint, &error));
            }
            Err(_) => return Err(unreachable("no connection in time".to_owned())),
        };
        target.store_successor();
        self.channels.lock().insert(endpoint.address.clone(), channel.clone());
        Ok(channel)
    }
}

async fn unary(channel: Channel, path: &'static str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
    grpc.unary(request, PathAndQuery::from_static(path), BytesCodec).await
}

/// Failure for an address that answers in plain HTTP, as a node does at its `--http` port.
fn not_admin(address: &str) -> Failure {
    let next = format!(
        "name the admin port: {} unless --listen says otherwise, and `admin=` in the node's first log line",
        Config::ADMIN_PORT
    );
    let message =
        format!("{address} answers, but is not an admin port: it speaks plain HTTP, like a node's health page");
    Failure::new(Exit::NoQuorum, "UNREACHABLE", message, next).at("--endpoint")
}

/// True if the node reports that it has waited for a leader in vain.
fn is_leaderless(status: &Status) -> bool {
    status.get_details_error_info().is_some_and(|info| info.metadata.contains_key(LEADERLESS))
}

/// True if a broken stream may succeed when it is requested again, at this node or another.
pub fn is_passing(status: &Status) -> bool {
    use tonic::Code::{Cancelled, Internal, Unavailable, Unknown};
    let answered = status.get_details_error_info().is_some();
    match status.code() {
        Unavailable => true,
        Unknown | Internal | Cancelled => !answered,
        _ => false,
    }
}

fn cause(status: &Status) -> String {
    std::error::Error::source(status).map_or_else(|| status.message().to_owned(), innermost)
}

/// Returns the innermost error, usually that of the operating system.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
