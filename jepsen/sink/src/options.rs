//! The options of a sink.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::accepted::Accepted;
use crate::faults::FaultPlan;

/// Options of a [`Sink`](crate::Sink): its address, record, limits and faults. The default is a correct mailbox in
/// memory on a free loopback port.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Address to listen on. With port 0 the system chooses a port.
    pub listen: SocketAddr,
    /// Faults to inject from the first connection on.
    pub faults: FaultPlan,
    /// Maximum number of accepts in memory, for `emails()`, `find()` and the page. Each takes some 400 bytes. Older
    /// accepts stay in the count.
    pub keep_records: usize,
    /// Called for each final dot when its answer is known, and for each message that a fault cut off before its dot was
    /// read. Emails that were not accepted are reported too. The dialogue waits for the call.
    pub dots: Option<DotWatcher>,
    /// Number of the latest emails whose whole text is kept for the page.
    pub keep_bodies: usize,
    /// Number of bytes of each body that an accept keeps, for a caller that compares contents with envelopes.
    pub excerpt_bytes: usize,
    /// Maximum number of open dialogues. Further connections are refused with 421.
    pub max_connections: usize,
    /// Delay of each write of replies, as by the round trip to a remote relay.
    pub round_trip: Duration,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            faults: FaultPlan::default(),
            keep_records: 250_000,
            dots: None,
            keep_bodies: 1_000,
            excerpt_bytes: 0,
            max_connections: 10_000,
            round_trip: Duration::ZERO,
        }
    }
}

/// Answer to a final dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotAnswer {
    /// The email is accepted. The `250` was passed to the connection, or the client had left before.
    Accepted,
    /// The email is accepted, but an injected fault prevented a complete answer.
    AcceptedUnanswered,
    /// The email was refused.
    Refused,
    /// The email was neither accepted nor answered.
    Nothing,
    /// There was no dot: an injected fault ended the dialogue within the message. Only the client knows if it had
    /// written the dot by then. The callback gets the received part of the email.
    Cut,
    /// The message was refused because of a lone LF or CR, a line that is too long, or its size. The callback gets the part
    /// before that.
    Malformed,
}

/// A callback for each final dot and for each message that was cut off. It is called once for each recipient. An email
/// that was not accepted is passed in the form that its accept would have had.
#[derive(Clone, derive_more::Debug)]
#[debug("DotWatcher")]
pub struct DotWatcher(Arc<DotCallback>);

type DotCallback = dyn Fn(&Accepted, DotAnswer) + Send + Sync;

impl DotWatcher {
    /// Creates a watcher that calls `callback`.
    pub fn new(callback: impl Fn(&Accepted, DotAnswer) + Send + Sync + 'static) -> DotWatcher {
        DotWatcher(Arc::new(callback))
    }

    pub(crate) fn notify(&self, accept: &Accepted, answer: DotAnswer) {
        (self.0)(accept, answer);
    }
}
