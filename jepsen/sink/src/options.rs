//! The options of a sink, with every limit of its memory and its waits.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::accepted::Accepted;
use crate::faults::FaultPlan;

/// Options of a [`Sink`](crate::Sink): how it listens, records, keeps, limits and injects faults. The default is a
/// correct mailbox in memory on a free loopback port.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Address to listen on; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Append-only file of accepts; `None` keeps them in memory only. An existing file is continued, after an
    /// incomplete last line (whose email was never acknowledged) is cut off.
    pub record: Option<PathBuf>,
    /// True to sync each line to the disk (`fdatasync`, in groups) before its `250`. Otherwise the line has been passed
    /// to the kernel by then: it survives the end of the sink, but not of the machine.
    pub sync: bool,
    /// Faults to inject from the first connection on.
    pub faults: FaultPlan,
    /// Number of accepts in memory for `emails()`, `find()` and the page, some 400 bytes each. Older ones stay in the
    /// record and in the count.
    pub keep_records: usize,
    /// Called for each final dot once its answer is known, and for each message that a fault cut off before its dot was
    /// read. It also reports emails that were not accepted. The dialogue waits for the call.
    pub dots: Option<DotWatcher>,
    /// Number of the latest emails whose whole text is kept for the page.
    pub keep_bodies: usize,
    /// Number of bytes of each body that an accept keeps, for a caller that compares contents with envelopes.
    pub excerpt_bytes: usize,
    /// The largest message in bytes (offered as SIZE); larger ones are read to their end and refused with 552.
    pub max_message_bytes: usize,
    /// Maximum recipients of one email; further ones are refused with 452.
    pub max_recipients: usize,
    /// Maximum open dialogues; further ones are refused with 421.
    pub max_connections: usize,
    /// Time after which a silent client is disconnected (RFC 5321 4.5.3.2.7 asks for five minutes), and within which a
    /// client must read a reply.
    pub idle: Duration,
    /// Time after which a client is disconnected that has sent neither EHLO nor HELO and is silent.
    pub greeted_within: Duration,
    /// Host name in the banner and in the answer to EHLO.
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
            excerpt_bytes: 0,
            max_message_bytes: 10 << 20,
            max_recipients: 1_000,
            max_connections: 10_000,
            idle: Duration::from_secs(300),
            greeted_within: Duration::from_secs(60),
            name: "sink.test".to_owned(),
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
    /// There was no dot: an injected fault ended the dialogue within the message. Only the client knows whether it had
    /// written the dot by then. The callback gets the part of the email that was received.
    Cut,
    /// The message was refused because of a lone LF or CR, or a line too long. The callback gets the part before it.
    Malformed,
}

/// A callback for each final dot and for each message cut off, once for each recipient. An email that was not accepted
/// is passed in the form that its accept would have had.
#[derive(Clone)]
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

impl fmt::Debug for DotWatcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DotWatcher")
    }
}
