//! Asks the cluster: tries the addresses in turn, and knows what a lost answer means.
//!
//! Any node takes any request, so an address is as good as another. A node that says UNAVAILABLE with a
//! reason has done nothing, and the next one is asked; that goes on for [`PATIENCE`], because a fail-over
//! takes about a second, unless a node says that it heard no leader for longer than that. An answer that is lost on its way is another matter: the request may have been
//! done. Whether it is asked again stands in its [`Nature`].

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tonic_types::StatusExt;

use super::failure::{Exit, Failure};
use crate::server::admin::LEADERLESS;
use crate::server::config::Config;

/// How long a command waits for some node to take its request, while nodes answer that none can.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first pause between two rounds over all addresses; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// A node on a reachable network takes a connection within this.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// A silent peer is asked for a sign of life this often, and given up after [`ALIVE_WITHIN`].
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// What `tonic` says of an answer that is plain HTTP.
const NO_GRPC: &str = "grpc-status header missing";

/// What a lost answer means for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It changes nothing.
    Read,
    /// Asked twice, it does the same as once.
    Repeatable,
    /// Asked twice, it may do more than once: never repeated here.
    Once,
}

/// The way to the cluster, for one command.
#[derive(Debug)]
pub struct Client {
    addresses: Vec<String>,
    deadline: Mutex<Option<Instant>>,
    patience: Duration,
    request_id: String,
    channels: Mutex<BTreeMap<String, Channel>>,
    /// What was asked last and may not be answered yet.
    asking: Mutex<Option<Nature>>,
    /// The place of the address that answered last: it is asked first.
    answered: Mutex<Option<usize>>,
}

/// How one attempt at one address ended, other than well.
enum Missed {
    /// No connection: nothing was asked.
    Unreachable(Failure),
    /// The node said that it cannot, and did nothing.
    NotNow(Failure),
    /// It said so because there is no leader, and an election would long be over.
    Leaderless(Failure),
    /// The connection broke before the answer.
    Lost(Failure),
    /// An answer that another node would give too, or the end of the time.
    Final(Failure),
}

impl Client {
    /// `within` bounds the whole command; none means that it goes on until it is interrupted.
    pub fn new(addresses: Vec<String>, within: Option<Duration>, request_id: String) -> Client {
        Client {
            addresses,
            deadline: Mutex::new(within.map(|within| Instant::now() + within)),
            patience: PATIENCE,
            request_id,
            channels: Mutex::default(),
            asking: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    /// Tries each address once and returns what came of it: the caller repeats the call.
    pub fn of_one_round(self) -> Client {
        Client { patience: Duration::ZERO, ..self }
    }

    /// The id under which this command may be asked again.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Bounds what follows anew: a command that goes on gives each of its looks a time of its own.
    pub fn give(&self, within: Duration) {
        *self.deadline.lock() = Some(Instant::now() + within);
    }

    /// The address that answered last.
    pub fn answered_by(&self) -> Option<String> {
        self.addresses.get((*self.answered.lock())?).cloned()
    }

    fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock()
    }

    /// All addresses with their places, the one that answered last in front.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &String)> {
        let first = self.answered.lock().unwrap_or_default();
        let all = self.addresses.iter().enumerate();
        all.clone().skip(first).chain(all.take(first))
    }

    /// Asks a question of one answer.
    pub async fn ask<Q, A, F, Fut>(&self, nature: Nature, question: Q, call: F) -> Result<A, Failure>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        *self.asking.lock() = Some(nature);
        let answer = self.ask_until(nature, question, call).await;
        *self.asking.lock() = None;
        answer
    }

    async fn ask_until<Q, A, F, Fut>(&self, nature: Nature, question: Q, call: F) -> Result<A, Failure>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let patience = Instant::now() + self.patience;
        let mut pause = FIRST_PAUSE;
        // What may have happened stays so, whatever other nodes say later.
        let mut lost = None;
        loop {
            let mut refused = None;
            let mut worth_waiting = false;
            for (place, address) in self.in_turn() {
                match self.ask_at(address, nature, question.clone(), &call).await {
                    Ok(answer) => {
                        *self.answered.lock() = Some(place);
                        return Ok(answer);
                    }
                    Err(Missed::Final(failure)) => return Err(failure),
                    Err(Missed::Lost(failure)) if nature == Nature::Once => return Err(failure),
                    Err(Missed::Lost(failure)) => (worth_waiting, lost) = (true, Some(failure)),
                    Err(Missed::NotNow(failure)) => (worth_waiting, refused) = (true, Some(failure)),
                    Err(Missed::Leaderless(failure)) => refused = Some(failure),
                    Err(Missed::Unreachable(failure)) => refused = refused.or(Some(failure)),
                }
            }
            if !worth_waiting || Instant::now() + pause > patience.min(self.deadline().unwrap_or(patience)) {
                let no_address =
                    || Failure::general("no address to ask at".to_owned(), "name a node: --endpoint HOST:PORT");
                return Err(lost.or(refused).unwrap_or_else(no_address));
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Ctrl-C came: what is known of the question that was under way.
    pub fn interrupted(&self) -> Failure {
        let failure =
            |message: &str| Failure { reason: "INTERRUPTED".into(), message: message.to_owned(), ..Failure::default() };
        let failure = match *self.asking.lock() {
            None | Some(Nature::Read) => failure("interrupted"),
            Some(nature) => self.may_have_happened(nature, failure("interrupted: it may have happened")),
        };
        Failure { exit: Exit::Interrupted, ..failure }
    }

    async fn ask_at<Q, A, F, Fut>(&self, address: &str, nature: Nature, question: Q, call: &F) -> Result<A, Missed>
    where
        F: Fn(Channel, Request<Q>) -> Fut,
        Fut: Future<Output = Result<Response<A>, Status>>,
    {
        let channel = self.connect(address).await.map_err(Missed::Unreachable)?;
        let mut request = Request::new(question);
        let answer = match self.deadline() {
            None => call(channel, request).await,
            Some(deadline) => {
                // The deadline travels with the request, so that the node stops work whose answer comes too late.
                request.set_timeout(deadline.saturating_duration_since(Instant::now()));
                let late = Status::deadline_exceeded("");
                timeout_at(deadline, call(channel, request)).await.unwrap_or(Err(late))
            }
        };
        answer.map(Response::into_inner).map_err(|status| self.missed(address, nature, &status))
    }

    /// What a status means: said by a node, or made up here because the connection broke.
    fn missed(&self, address: &str, nature: Nature, status: &Status) -> Missed {
        use tonic::Code::{Cancelled, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
        let answered = status.get_details_error_info().is_some();
        match status.code() {
            Unimplemented if !answered && status.message().contains(NO_GRPC) => {
                self.channels.lock().remove(address);
                Missed::Unreachable(not_admin(address))
            }
            Unavailable if is_leaderless(status) => Missed::Leaderless(Failure::of_status(status)),
            Unavailable if answered => Missed::NotNow(Failure::of_status(status)),
            DeadlineExceeded => Missed::Final(self.timed_out(nature, status)),
            // `tonic` times its own request and calls that a cancellation.
            Cancelled if !answered && self.is_over() => Missed::Final(self.timed_out(nature, status)),
            Unavailable | Unknown | Internal | Cancelled if !answered => {
                self.channels.lock().remove(address);
                Missed::Lost(self.lost(address, nature, status))
            }
            _ => Missed::Final(Failure::of_status(status)),
        }
    }

    fn is_over(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn timed_out(&self, nature: Nature, status: &Status) -> Failure {
        let said = Failure::of_status(status);
        let message = match nature {
            Nature::Read => "no answer in time".to_owned(),
            Nature::Repeatable | Nature::Once => "no answer in time: it may have happened".to_owned(),
        };
        let named = status.get_details_error_info().is_some();
        let reason = if named { said.reason } else { "TIMED_OUT".into() };
        self.may_have_happened(nature, Failure { reason, message, ..Failure::default() })
    }

    fn lost(&self, address: &str, nature: Nature, status: &Status) -> Failure {
        let reason = "ANSWER_LOST".into();
        let message = format!("the connection to {address} broke before the answer: {}", cause(status));
        match nature {
            Nature::Read => {
                let next = Some("the same again; if it stays so, is that a node's admin port?".to_owned());
                Failure { exit: Exit::NoQuorum, reason, message, next, ..Failure::default() }
            }
            Nature::Repeatable | Nature::Once => {
                let message = format!("{message}; it may have happened");
                self.may_have_happened(nature, Failure { reason, message, ..Failure::default() })
            }
        }
    }

    fn may_have_happened(&self, nature: Nature, failure: Failure) -> Failure {
        let next = match nature {
            Nature::Read => "a longer --timeout, or reveille cluster status".to_owned(),
            Nature::Repeatable => format!("the same command with --request-id {}: it happens once", self.request_id),
            Nature::Once => "look before you repeat it: it may happen twice".to_owned(),
        };
        let request_id = (nature == Nature::Repeatable).then(|| self.request_id.as_str().into());
        Failure { exit: Exit::TimedOut, next: Some(next), request_id, ..failure }
    }

    async fn connect(&self, address: &str) -> Result<Channel, Failure> {
        if let Some(channel) = self.channels.lock().get(address) {
            return Ok(channel.clone());
        }
        let unreachable = |why: String| Failure {
            exit: Exit::NoQuorum,
            reason: "UNREACHABLE".into(),
            message: format!("no node answers at {}: {why}", self.addresses.join(", ")),
            field: Some("--endpoint".to_owned()),
            next: Some("start a node, or name another with --endpoint HOST:PORT (or REVEILLE_ENDPOINT)".to_owned()),
            ..Failure::default()
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| unreachable(error.to_string()))?
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(ALIVE_EVERY)
            .keep_alive_timeout(ALIVE_WITHIN)
            .keep_alive_while_idle(true);
        let until = Instant::now() + CONNECT_WITHIN;
        let until = self.deadline().map_or(until, |deadline| deadline.min(until));
        let connected = timeout_at(until, endpoint.connect()).await;
        let channel = match connected {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(unreachable(innermost(&error))),
            Err(_) => return Err(unreachable("no connection in time".to_owned())),
        };
        self.channels.lock().insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// The address answers in HTTP, as a node does at its `--http`.
fn not_admin(address: &str) -> Failure {
    let next = format!(
        "name the admin port: {} unless --listen says otherwise, and `admin=` in the node's first log line",
        Config::ADMIN_PORT
    );
    Failure {
        exit: Exit::NoQuorum,
        reason: "UNREACHABLE".into(),
        message: format!("{address} answers, but is no admin port: it speaks plain HTTP, like a node's health page"),
        field: Some("--endpoint".to_owned()),
        next: Some(next),
        ..Failure::default()
    }
}

/// Does the node say that it has waited for a leader in vain?
fn is_leaderless(status: &Status) -> bool {
    status.get_details_error_info().is_some_and(|info| info.metadata.contains_key(LEADERLESS))
}

/// Does a broken stream deserve another try, perhaps at another node?
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

/// What the operating system said, under the layers of libraries.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
