//! The options of a sink. Every bound on its memory and its patience is a number in here.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::accepted::Accepted;
use crate::faults::FaultPlan;

/// How a [`Sink`](crate::Sink) listens, records, keeps, limits and misbehaves. The default is a well-behaved
/// mailbox in memory on a free loopback port.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The append-only file of accepts; without one they are kept in memory only. A file that exists is
    /// continued, and a torn last line (which was never acknowledged) is cut off first.
    pub record: Option<PathBuf>,
    /// Whether each line reaches the disk (`fdatasync`, in groups) before its `250`. Without it a line has
    /// been handed to the kernel by then: it survives the sink's death, not the machine's.
    pub sync: bool,
    /// What goes wrong on purpose, from the first connection on.
    pub faults: FaultPlan,
    /// How many accepts memory holds for `emails()`, `find()` and the page (some 400 bytes each);
    /// older ones stay in the record, and in the count.
    pub keep_records: usize,
    /// Called for each final dot once its answer is known, and for each message that a fault cut off before its
    /// dot was read: for a caller that must know those that were not accepted, too. The dialogue waits for it.
    pub dots: Option<DotWatcher>,
    /// How many of the latest emails keep their whole text for the page.
    pub keep_bodies: usize,
    /// How many bytes those texts may take together; the oldest go first.
    pub keep_body_bytes: usize,
    /// How many bytes of each body an accept keeps, for a caller that compares contents with envelopes.
    pub excerpt_bytes: usize,
    /// The lenient twin: LF alone ends a line, as some relays have it, so that smuggled emails show up.
    pub lenient_line_ends: bool,
    /// The largest message in bytes (offered as SIZE); larger ones are read to their end and refused with 552.
    pub max_message_bytes: usize,
    /// Recipients of one email; further ones are refused with 452.
    pub max_recipients: usize,
    /// Open dialogues; further ones are turned away with 421.
    pub max_connections: usize,
    /// How long a silent client is kept (RFC 5321 4.5.3.2.7 asks for five minutes), and how long a client may
    /// take to read a reply.
    pub idle: Duration,
    /// How long a client that has not said EHLO or HELO may be silent.
    pub greeted_within: Duration,
    /// The host name in the banner and in EHLO.
    pub name: String,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            record: None,
            sync: true,
            faults: FaultPlan::default(),
            keep_records: 250_000,
            dots: None,
            keep_bodies: 1_000,
            keep_body_bytes: 64 << 20,
            excerpt_bytes: 0,
            lenient_line_ends: false,
            max_message_bytes: 10 << 20,
            max_recipients: 1_000,
            max_connections: 10_000,
            idle: Duration::from_secs(300),
            greeted_within: Duration::from_secs(60),
            name: "sink.test".to_owned(),
        }
    }
}

/// How a final dot was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotAnswer {
    /// It is accepted, and the `250` was handed to the connection, or the client had left before.
    Accepted,
    /// It is accepted, and by a fault of the sink's no whole answer was given.
    AcceptedUntold,
    /// It was refused.
    Refused,
    /// Neither accepted nor answered.
    Nothing,
    /// There was none: by a fault of the sink's the dialogue ended within the message. Whether its client had written
    /// the dot by then only the client knows. The callback gets what had come of the email.
    Cut,
    /// It was refused as no message: a bare LF or CR, or a line too long. The callback gets what was read
    /// before.
    Malformed,
}

/// A callback for each final dot and for each message cut off, once for each recipient. What was not accepted looks as
/// the accept would have.
#[derive(Clone)]
pub struct DotWatcher(Arc<DotCallback>);

type DotCallback = dyn Fn(&Accepted, DotAnswer) + Send + Sync;

impl DotWatcher {
    /// Calls `told` for each.
    pub fn new(told: impl Fn(&Accepted, DotAnswer) + Send + Sync + 'static) -> DotWatcher {
        DotWatcher(Arc::new(told))
    }

    pub(crate) fn tell(&self, accept: &Accepted, answer: DotAnswer) {
        (self.0)(accept, answer);
    }
}

impl fmt::Debug for DotWatcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DotWatcher")
    }
}
