//! One accept: what the record keeps of one recipient of one mail. Written by `receive.rs`, stored by
//! `recorder.rs`, read back by [`RecordFile`](crate::RecordFile) and by callers that compare it with a ledger.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// One recipient of one email that was (or is about to be) answered with `250`. An email with three recipients
/// makes three of these, alike but for the recipient. As JSON it is one line of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The `Message-ID` header as it came, angle brackets included; `None` when the email had none.
    pub message_id: Option<String>,
    /// The path of RCPT, without its angle brackets, exactly as typed.
    pub recipient: String,
    /// The path of MAIL, without its angle brackets; empty for the null sender.
    pub sender: String,
    /// The `X-Reveille-Fence` header: `group.epoch.index.place` of the claim under which it was sent.
    pub fence: Option<String>,
    /// The other `X-Reveille-*` headers, names in lower case; at most 32, each value cut at 1,000 bytes.
    pub headers: BTreeMap<String, String>,
    /// Of `Message-ID`, `X-Reveille-Run` and `X-Reveille-Fence`: those that came more than once. What is kept is the
    /// first.
    pub repeated: Vec<String>,
    /// The beginning of the body, as far as [`SinkOptions::excerpt_bytes`](crate::SinkOptions) says; `None` for
    /// nothing.
    pub excerpt: Option<String>,
    /// When the DATA command was read: microseconds since 1970 UTC, by the wall clock.
    pub data_unix_us: u64,
    /// The same moment on CLOCK_BOOTTIME, in microseconds: comparable between processes of one machine.
    pub data_monotonic_us: u64,
    /// When the whole message had been read, before this line was appended: wall clock, microseconds.
    pub accept_unix_us: u64,
    /// The same moment on CLOCK_BOOTTIME, in microseconds.
    pub accept_monotonic_us: u64,
    /// The sink's number of the connection, counted from 1 in each life of the sink.
    pub connection: u64,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The name the client gave in EHLO or HELO; empty when it gave none.
    pub ehlo: String,
    /// blake3 hash of the bytes after the header section, 64 hexadecimal digits. A retry differs in its fence header
    /// only, so it has the same hash.
    pub body_blake3: String,
    /// Bytes of the whole message, headers included, dot-stuffing undone, terminator not counted.
    pub size: u64,
}
