//! An administrator of the cluster, over its admin API. Every node can answer every request, so the administrator skips
//! a node that does not answer.
//!
//! [`AdminClient::read`] repeats a request until it is answered; this is safe for reads and for writes with a request
//! id. [`AdminClient::change`] does so for a limited time and reports one of three results: done, refused or unknown. A
//! refusal after an unanswered try counts as unknown, because the first try may have been executed. A try without a
//! connection was not sent, and does not count.
//! [`AdminClient::change_by`] asks one node once. It is for changes without a request id, where a second try would be a
//! second change.

mod doubts;
mod json;
mod objects;
mod runs;
mod setup;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::Result;
use reveille_raft::peer::was_never_sent;
use tonic::{Code, Response, Status};

use self::json::JsonConnection;
use crate::access::{AdminChannel, ClientAccess};
pub use doubts::{DecisionAnswer, RecipientOfRun};
pub use json::HttpChange;

/// Timeout for the answer of one node.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// Maximum time for which `change` and `read` ask one node after the other.
const CHANGE_WITHIN: Duration = Duration::from_secs(16);
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Pause after no node has answered.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Maximum number of entries in a page.
pub const PAGE_SIZE: i32 = 1_000;

/// A method of the admin API: a function of the channel to a node, and of the request.
type Rpc<Q, A> = fn(AdminChannel, Q) -> Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

/// Makes an [`Rpc`] from a client's method.
macro_rules! rpc {
    ($client:ident, $method:ident) => {{
        let call: crate::admin::Rpc<_, _> =
            |channel, request| Box::pin(async move { $client::new(channel).$method(request).await });
        call
    }};
}
pub(crate) use rpc;

/// An administrator with connections of its own to every node.
#[derive(Clone)]
pub struct AdminClient {
    /// Path of the product's binary, for actions that only its command line offers.
    binary: PathBuf,
    access: ClientAccess,
    endpoints: Vec<String>,
    channels: Vec<AdminChannel>,
    json: JsonConnection,
    tenant: String,
}

/// The result of a call that changes something.
#[derive(Clone, Debug, PartialEq)]
pub enum CallResult<T = ()> {
    /// The change was done, with this answer.
    Done(T),
    /// The change was refused for this reason, and changed nothing.
    Refused(String),
    /// The change may have been done.
    Unknown,
}

impl<T> CallResult<T> {
    /// Returns the same result with another answer.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> CallResult<U> {
        match self {
            CallResult::Done(answer) => CallResult::Done(with(answer)),
            CallResult::Refused(reason) => CallResult::Refused(reason),
            CallResult::Unknown => CallResult::Unknown,
        }
    }

    /// Returns true if the change was done.
    pub fn is_done(&self) -> bool {
        matches!(self, CallResult::Done(_))
    }
}

/// A call without the expected answer.
struct Unanswered {
    /// The last status of a node, if any answered.
    last: Option<Status>,
    /// True if a try before the last one was sent, so that it may have been executed.
    may_be_done: bool,
    /// True if the status is the cluster's answer, so that a repeated request is useless.
    is_final: bool,
}

impl AdminClient {
    /// Creates an administrator that connects at its first call.
    pub fn new(binary: PathBuf, endpoints: Vec<String>, access: ClientAccess) -> Result<AdminClient> {
        let channels = endpoints.iter().map(|address| access.channel(address, ANSWER_WITHIN)).collect::<Result<_>>()?;
        Ok(AdminClient { binary, access, endpoints, channels, json: JsonConnection::default(), tenant: String::new() })
    }

    /// Returns the admin addresses of the nodes.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Returns another administrator that asks the node of this number (modulo the number of nodes) first.
    pub fn another(&self, number: usize) -> Result<AdminClient> {
        let mut endpoints = self.endpoints.clone();
        endpoints.rotate_left(number % self.endpoints.len().max(1));
        let another = AdminClient::new(self.binary.clone(), endpoints, self.access.clone())?;
        Ok(another.of_tenant(&self.tenant))
    }

    /// Returns the same administrator for this tenant.
    pub fn of_tenant(&self, tenant: &str) -> AdminClient {
        AdminClient { tenant: tenant.to_owned(), ..self.clone() }
    }

    fn tenant(&self) -> String {
        self.tenant.clone()
    }

    /// Asks one node after the other until one answers.
    async fn read<Q: Clone, A>(&self, what: &str, call: Rpc<Q, A>, request: Q) -> Result<A> {
        self.ask_all(READ_WITHIN, call, request).await.map_err(|unanswered| match unanswered.last {
            Some(status) => refused(what, &status),
            None => anyhow::anyhow!("{what}: no node answered within {} s", READ_WITHIN.as_secs()),
        })
    }

    /// Returns all items of a list, which it reads page by page. `request` makes the request for a page token. `items`
    /// takes the items and the next token from an answer.
    async fn list<Q: Clone, A, Item>(
        &self,
        what: &str,
        call: Rpc<Q, A>,
        request: impl Fn(String) -> Q,
        items: impl Fn(A) -> (Vec<Item>, String),
    ) -> Result<Vec<Item>> {
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let (page, next) = items(self.read(what, call, request(token)).await?);
            all.extend(page);
            if next.is_empty() {
                return Ok(all);
            }
            token = next;
        }
    }

    /// Asks for a change, by one node after the other.
    async fn change<Q: Clone, A>(&self, call: Rpc<Q, A>, request: Q) -> CallResult<A> {
        match self.ask_all(CHANGE_WITHIN, call, request).await {
            Ok(answer) => CallResult::Done(answer),
            Err(Unanswered { last: Some(status), may_be_done: false, is_final: true }) => result_of(Err(status)),
            Err(_) => CallResult::Unknown,
        }
    }

    /// Asks one node for a change, once. A broken connection may have delivered the request.
    async fn change_by<Q, A>(&self, node: usize, call: Rpc<Q, A>, request: Q) -> CallResult<A> {
        self.ask_one(node, ANSWER_WITHIN, call, request).await.map_or(CallResult::Unknown, result_of)
    }

    /// Asks the node of this number (modulo the number of nodes) once. `None`: it did not answer.
    async fn ask_one<Q, A>(
        &self,
        node: usize,
        within: Duration,
        call: Rpc<Q, A>,
        request: Q,
    ) -> Option<Result<A, Status>> {
        let answer = tokio::time::timeout(within, call(self.channel(node)?, request)).await.ok()?;
        Some(answer.map(Response::into_inner))
    }

    async fn ask_all<Q: Clone, A>(&self, within: Duration, call: Rpc<Q, A>, request: Q) -> Result<A, Unanswered> {
        let until = Instant::now() + within;
        let (mut last, mut may_be_done) = (None, false);
        loop {
            for node in 0..self.channels.len() {
                match self.ask_one(node, ANSWER_WITHIN, call, request.clone()).await {
                    Some(Ok(answer)) => return Ok(answer),
                    Some(Err(status)) if is_transient(status.code()) => {
                        may_be_done |= !was_never_sent(&status);
                        last = Some(status);
                    }
                    Some(Err(status)) => return Err(Unanswered { last: Some(status), may_be_done, is_final: true }),
                    None => may_be_done = true,
                }
            }
            if Instant::now() > until {
                return Err(Unanswered { last, may_be_done, is_final: false });
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// Returns the connection to the node of this number (modulo the number of nodes). `None`: there are no nodes.
    fn channel(&self, node: usize) -> Option<AdminChannel> {
        self.channels.get(node % self.channels.len().max(1)).cloned()
    }
}

/// Converts an answer to a result. An internal error is `Unknown`, because the node may have executed the change before
/// it failed.
fn result_of<Answer>(answer: Result<Answer, Status>) -> CallResult<Answer> {
    match answer {
        Ok(answer) => CallResult::Done(answer),
        Err(status) if is_transient(status.code()) || status.code() == Code::Internal => CallResult::Unknown,
        Err(status) => CallResult::Refused(format!("{:?}: {}", status.code(), status.message())),
    }
}

/// Returns true if a repeated request may succeed: there was no leader, no connection, or not enough time.
fn is_transient(code: Code) -> bool {
    use Code::{Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable, Unknown};
    matches!(code, Unavailable | DeadlineExceeded | Cancelled | Unknown | ResourceExhausted)
}

fn refused(what: &str, status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{what}: {:?}: {}", status.code(), status.message())
}

/// Converts milliseconds since 1970 to the API's timestamp.
pub fn timestamp(unix_ms: i64) -> prost_types::Timestamp {
    let nanos = (unix_ms.rem_euclid(1_000) * 1_000_000) as i32;
    prost_types::Timestamp { seconds: unix_ms.div_euclid(1_000), nanos }
}

#[cfg(test)]
mod tests {
    use reveille_proto::admin::v1::DeleteScheduleRequest;
    use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;

    use super::*;

    /// Returns the address of a node that is lost for good.
    async fn lost_node() -> String {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        port.local_addr().unwrap().to_string()
    }

    /// Returns the address of a node that takes each request and breaks the connection.
    async fn silent_node() -> String {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = port.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = port.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
            }
        });
        address
    }

    fn administrator(endpoints: [String; 2]) -> AdminClient {
        AdminClient::new(PathBuf::new(), endpoints.into(), ClientAccess::default()).unwrap()
    }

    #[tokio::test]
    async fn refusal_after_a_try_without_connection_is_a_refusal() {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let refusing = incoming.local_addr().unwrap().to_string();
        // It knows no method, and says so.
        tokio::spawn(Server::builder().add_routes(tonic::service::Routes::default()).serve_with_incoming(incoming));
        let delete = || (rpc!(ScheduleServiceClient, delete_schedule), DeleteScheduleRequest::default());

        let (call, request) = delete();
        let answer = administrator([lost_node().await, refusing.clone()]).change(call, request).await;
        assert!(matches!(answer, CallResult::Refused(_)), "{answer:?}");
        let (call, request) = delete();
        let answer = administrator([silent_node().await, refusing]).change(call, request).await;
        assert_eq!(answer.map(drop), CallResult::Unknown, "the first node may have executed it");
    }

    #[tokio::test]
    async fn refusal_in_json_after_a_try_without_connection_is_a_refusal() {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refusing = port.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = port.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n").await;
            }
        });

        let of_lost = administrator([lost_node().await, refusing.clone()]);
        let change = HttpChange::post("/v1/messages", Some("key"), "{}");
        let answer = of_lost.change_json(&change).await;
        assert!(matches!(answer, CallResult::Refused(_)), "{answer:?}");
        let of_silent = administrator([silent_node().await, refusing]);
        let answer = of_silent.change_json(&change).await;
        assert_eq!(answer, CallResult::Unknown, "the first node may have executed it");
    }
}
