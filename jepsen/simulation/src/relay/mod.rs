//! The relay: an SMTP server behind an in-memory stream, by whose record of accepts a run is judged.
//!
//! It records an accept before it answers, never removes duplicates, and injects faults on request. It shares no code
//! with the product, and none with `reveille-sink`, which needs sockets and real time.

mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use parking_lot::Mutex;
use reveille_check::events::Handoff;
use reveille_cluster::smtp::{Connected, Dial};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Duration, sleep};

use crate::faults::{RelayBehavior, SenderCrash};
use crate::network::{Network, ProcessId};
use crate::random::RandomStream;
use crate::trace::Trace;

use session::RelaySession;

/// Maximum bytes under way in one direction of a connection.
const STREAM_BYTES: usize = 64 * 1024;
/// Capacity of the queue of senders to kill, which is read immediately.
const KILLS_MAX: usize = 64;

/// A request to kill a sender between its final dot and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderKill {
    /// Process of the sender.
    pub process: ProcessId,
    /// How the process ends. `None`: at random.
    pub end: Option<SenderCrash>,
}

struct RelayState {
    behavior: RelayBehavior,
    random: RandomStream,
    /// Emails that arrived, in order.
    emails: Vec<Handoff>,
    /// Addresses that are refused at RCPT with 550 5.1.1.
    unknown: BTreeSet<String>,
    /// Armed kills: number of accepted emails until the kill, and how the sender ends.
    armed: Vec<(u64, SenderCrash)>,
    /// Number of unanswered final dots by process.
    waiting: BTreeMap<ProcessId, u64>,
}

/// The relay. Clones share it.
#[derive(Clone)]
pub struct SimulatedRelay {
    state: Arc<Mutex<RelayState>>,
    kills: mpsc::Sender<SenderKill>,
    network: Network,
    trace: Trace,
}

impl SimulatedRelay {
    /// Returns a relay without faults. The receiver gets requests to kill senders.
    pub fn new(random: RandomStream, network: Network, trace: Trace) -> (SimulatedRelay, mpsc::Receiver<SenderKill>) {
        let (kills, receiver) = mpsc::channel(KILLS_MAX);
        let state = RelayState {
            behavior: RelayBehavior::default(),
            random,
            emails: Vec::new(),
            unknown: BTreeSet::new(),
            armed: Vec::new(),
            waiting: BTreeMap::new(),
        };
        (SimulatedRelay { state: Arc::new(Mutex::new(state)), kills, network, trace }, receiver)
    }

    /// Sets the behavior of the relay.
    pub fn set_behavior(&self, behavior: RelayBehavior) {
        self.state.lock().behavior = behavior;
    }

    /// Arms a kill: the sender of the n-th accepted email from now (1: the next email) is killed before its answer.
    pub fn arm(&self, emails: u64, end: SenderCrash) {
        self.state.lock().armed.push((emails, end));
    }

    /// Removes all armed kills.
    pub fn disarm(&self) {
        self.state.lock().armed.clear();
    }

    /// Refuses these addresses with 550 5.1.1.
    pub fn refuse_recipients(&self, addresses: impl IntoIterator<Item = String>) {
        self.state.lock().unknown.extend(addresses);
    }

    /// Returns all emails that arrived, in order.
    pub fn emails(&self) -> Vec<Handoff> {
        self.state.lock().emails.clone()
    }

    /// Returns the number of unanswered final dots of this process: its handoffs past the gate.
    pub fn past_gate(&self, process: ProcessId) -> u64 {
        self.state.lock().waiting.get(&process).copied().unwrap_or(0)
    }

    /// Returns the dialer of one process.
    pub fn dialer(&self, process: ProcessId) -> Arc<dyn Dial> {
        Arc::new(RelayDialer { relay: self.clone(), process })
    }

    fn draw<T>(&self, draw: impl FnOnce(RelayBehavior, &mut RandomStream) -> T) -> T {
        let mut state = self.state.lock();
        let behavior = state.behavior;
        draw(behavior, &mut state.random)
    }

    /// An email was accepted: kills its sender if a kill is armed, or if the behavior demands it.
    fn kill_sender(&self, process: ProcessId, by_behavior: bool) {
        if !self.network.is_alive(process) {
            return;
        }
        let mut state = self.state.lock();
        state.armed.iter_mut().for_each(|(emails, _)| *emails -= 1);
        let due = state.armed.extract_if(.., |(emails, _)| *emails == 0).map(|(_, end)| Some(end));
        for end in due.chain(by_behavior.then_some(None)) {
            // If the queue is full, enough kills are pending.
            let _ = self.kills.try_send(SenderKill { process, end });
        }
    }

    async fn delay(&self) {
        let micros =
            self.draw(|behavior, random| random.within(500..4_000) + random.within(0..behavior.slow_ms * 1_000 + 1));
        sleep(Duration::from_micros(micros)).await;
    }
}

struct RelayDialer {
    relay: SimulatedRelay,
    process: ProcessId,
}

#[async_trait]
impl Dial for RelayDialer {
    async fn dial(&self, _host: &str, _port: u16) -> io::Result<Connected> {
        self.relay.delay().await;
        if self.relay.state.lock().behavior.down {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (here, there) = tokio::io::duplex(STREAM_BYTES);
        tokio::spawn(RelaySession::new(self.relay.clone(), self.process, there).serve());
        Ok(Socket { stream: here, process: self.process, network: self.relay.network.clone() }.into())
    }
}

/// The sender's side of a connection. It fails when its process ends; bytes written before still arrive.
struct Socket {
    stream: DuplexStream,
    process: ProcessId,
    network: Network,
}

impl Socket {
    /// Ready if the process runs and is not frozen.
    fn poll_runs(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        match self.network.is_alive(self.process) {
            true => self.network.poll_running(self.process.node, context).map(Ok),
            false => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_runs(context))?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_runs(context))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
