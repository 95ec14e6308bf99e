//! The network between nodes: messages take time, links can be cut in one or both directions, and ended processes send
//! and receive nothing.
//!
//! It keeps the contract of [`Transport`]: a request is delivered at most once, requests may overtake each other, and a
//! request that was certainly not delivered is `Unreachable`. A message on a cut link waits, as in TCP. It is
//! lost when its caller gives up, or when the connection is closed because its pings are not answered.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;
use reveille_raft::peer::{Destination, Handler, PeerError, Request, Response, Transport};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::random::RandomStream;
use crate::trace::Trace;
use crate::vote_promises::{RequestKind, VotePromises};

/// Microseconds of one way of a message on a quiet link.
const QUIET_MICROS: std::ops::Range<u64> = 200..2_000;
/// Time without traffic after which a connection is closed and its messages are lost. The pings of the product's own
/// connections do the same (`PING_EVERY` and `PING_LIMIT` of `raft/src/peer/grpc.rs`).
const GIVEN_UP_AFTER: Duration = Duration::from_millis(2_500);

/// One process of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId {
    /// Name of the node.
    pub node: NodeId,
    /// Number of the process, counted from 1.
    pub number: u64,
}

struct NetworkState {
    random: RandomStream,
    /// Running processes.
    alive: BTreeSet<ProcessId>,
    handlers: BTreeMap<NodeId, (ProcessId, Arc<dyn Handler>)>,
    /// Links (from, to) that deliver nothing.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Frozen nodes, with the tasks that wait for them.
    frozen: BTreeMap<NodeId, Vec<Waker>>,
    /// Percentage of messages that are lost.
    lossy: u64,
    /// Maximum additional delay of a message, in milliseconds.
    slow_ms: u64,
    vote_promises: VotePromises,
}

/// The network. Clones share it.
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<NetworkState>>,
    changed: Arc<Notify>,
    trace: Trace,
}

impl Network {
    /// Returns a network without nodes and faults. Followers must not vote for another node for `promise_lasts` after a
    /// heartbeat.
    pub fn new(random: RandomStream, trace: Trace, promise_lasts: Duration) -> Network {
        let state = NetworkState {
            random,
            alive: BTreeSet::new(),
            handlers: BTreeMap::new(),
            cut: BTreeSet::new(),
            frozen: BTreeMap::new(),
            lossy: 0,
            slow_ms: 0,
            vote_promises: VotePromises::new(promise_lasts),
        };
        Network { state: Arc::new(Mutex::new(state)), changed: Arc::new(Notify::new()), trace }
    }

    /// Returns the address of a node.
    pub fn address_of(node: NodeId) -> String {
        format!("node-{}", node.0)
    }

    /// Adds a process and returns its transport.
    pub fn process_started(&self, process: ProcessId) -> Arc<ProcessTransport> {
        self.state.lock().alive.insert(process);
        Arc::new(ProcessTransport { network: self.clone(), process })
    }

    /// Removes a process: none of its messages is delivered from now on.
    pub fn process_ended(&self, process: ProcessId) {
        let mut state = self.state.lock();
        state.alive.remove(&process);
        if state.handlers.get(&process.node).is_some_and(|(owner, _)| *owner == process) {
            state.handlers.remove(&process.node);
        }
        drop(state);
        self.thaw(process.node);
    }

    /// Freezes the process of a node, as SIGSTOP does: until [`Network::thaw`] no messages to or from it are delivered,
    /// to peers or to the relay.
    pub fn freeze(&self, node: NodeId) {
        self.state.lock().frozen.entry(node).or_default();
    }

    /// Lets the process of a node continue, and delivers waiting messages.
    pub fn thaw(&self, node: NodeId) {
        let waiting = self.state.lock().frozen.remove(&node);
        waiting.into_iter().flatten().for_each(Waker::wake);
        self.changed.notify_waiters();
    }

    /// Is ready if the node is not frozen.
    pub fn poll_running(&self, node: NodeId, context: &Context<'_>) -> Poll<()> {
        match self.state.lock().frozen.get_mut(&node) {
            Some(waiting) => {
                waiting.push(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    /// Returns true if this process still runs.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.state.lock().alive.contains(&process)
    }

    /// Cuts the link: messages from `from` to `to` are no longer delivered.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.state.lock().cut.insert((from, to));
    }

    /// Makes the network lose the percentage `lossy` of messages, and delay each message by up to `slow_ms`.
    pub fn disturb(&self, lossy: u64, slow_ms: u64) {
        let mut state = self.state.lock();
        (state.lossy, state.slow_ms) = (lossy, slow_ms);
    }

    /// Records a violation that another module observed.
    #[cfg(feature = "injected-bugs")]
    pub fn record_violation(&self, what: String) {
        self.state.lock().vote_promises.record(what);
    }

    /// Returns the vote promises that were broken since the last call.
    pub fn broken_promises(&self) -> Vec<String> {
        self.state.lock().vote_promises.broken()
    }

    /// Repairs all links.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        (state.lossy, state.slow_ms) = (0, 0);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Delivers one message after its delay, or reports why it did not arrive.
    async fn deliver(&self, from: ProcessId, to: NodeId) -> DeliveryResult {
        let (lost, takes) = {
            let mut state = self.state.lock();
            let (lossy, slow_ms) = (state.lossy, state.slow_ms);
            let lost = lossy > 0 && state.random.percent(lossy);
            let micros = state.random.within(QUIET_MICROS) + state.random.within(0..slow_ms * 1_000 + 1);
            (lost, Duration::from_micros(micros))
        };
        sleep(takes).await;
        if lost {
            sleep(GIVEN_UP_AFTER).await;
            return DeliveryResult::Lost;
        }
        let given_up = Instant::now() + GIVEN_UP_AFTER;
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.lock();
                if !state.alive.contains(&from) {
                    return DeliveryResult::SenderEnded;
                }
                let is_held = state.frozen.contains_key(&from.node) || state.frozen.contains_key(&to);
                if !is_held && !state.cut.contains(&(from.node, to)) {
                    return DeliveryResult::Arrived;
                }
            }
            if timeout_at(given_up, changed).await.is_err() {
                return DeliveryResult::Lost;
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum DeliveryResult {
    Arrived,
    SenderEnded,
    /// The connection was closed. It is unknown if the message arrived.
    Lost,
}

/// The transport of one process.
pub struct ProcessTransport {
    network: Network,
    process: ProcessId,
}

impl ProcessTransport {
    async fn ask(&self, to: &Destination, request: Request) -> Result<Response, PeerError> {
        let gone = || PeerError::Unreachable(format!("{to} does not run"));
        let (network, name) = (&self.network, request.name().to_owned());
        match network.deliver(self.process, node_at(to)).await {
            DeliveryResult::Arrived => {}
            DeliveryResult::SenderEnded => return Err(gone()),
            DeliveryResult::Lost => return Err(PeerError::Lost(format!("the connection to {to} was given up"))),
        }
        let known =
            network.state.lock().handlers.get(&node_at(to)).map(|(process, handler)| (*process, Arc::clone(handler)));
        let (there, handler) = known.ok_or_else(gone)?;
        network.trace.record(b'm', &[self.process.node.0, there.node.0, u64::from(crc32c::crc32c(name.as_bytes()))]);
        // The receiver handles a delivered request even if the caller no longer waits.
        let promises = RequestKind::of(&request);
        let answer = tokio::spawn(async move { handler.handle(request).await });
        let answer = answer.await.map_err(|_| PeerError::Lost(format!("{to} broke down")))?;
        if let (Some(asked), Ok(response)) = (promises, &answer) {
            network.state.lock().vote_promises.answered(there.node, asked, response);
        }
        if network.deliver(there, self.process.node).await != DeliveryResult::Arrived {
            return Err(PeerError::Lost(format!("{to} is gone, or the connection to it")));
        }
        network.trace.record(b'a', &[there.node.0, self.process.node.0, u64::from(answer.is_ok())]);
        Ok(answer?)
    }
}

/// Returns the node at an address. A request to join has no node id, so the number comes from the address (`node-3`).
fn node_at(to: &Destination) -> NodeId {
    to.address.strip_prefix("node-").and_then(|number| number.parse().ok()).map_or(to.node, NodeId)
}

#[async_trait]
impl Transport for ProcessTransport {
    async fn serve(&self, handler: Arc<dyn Handler>, _stop: CancellationToken) -> io::Result<()> {
        let mut state = self.network.state.lock();
        if state.alive.contains(&self.process) {
            state.handlers.insert(self.process.node, (self.process, handler));
        }
        Ok(())
    }

    async fn call(&self, to: &Destination, request: Request, limit: Duration) -> Result<Response, PeerError> {
        let asked = timeout(limit, self.ask(to, request)).await;
        asked.unwrap_or_else(|_| Err(PeerError::Lost(format!("{to} does not answer"))))
    }
}
