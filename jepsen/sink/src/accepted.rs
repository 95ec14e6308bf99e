//! One accept: the data that the record keeps of one recipient of one email. `receive.rs` creates it, `kept_accepts.rs`
//! keeps it, and callers compare it with a ledger.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

/// One recipient of one email that was, or is about to be, answered with `250`. An email with three recipients has
/// three accepts, which differ in the recipient only. The mailbox serves it as
/// JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// The `Message-ID` header as received, angle brackets included; `None` if the email had none.
    pub message_id: Option<String>,
    /// The path of RCPT without its angle brackets, exactly as received.
    pub recipient: String,
    /// The path of MAIL, without its angle brackets; empty for the null sender.
    pub sender: String,
    /// The `X-Reveille-Fence` header: `group.epoch.index.place` of the claim under which the email was sent. `None` if
    /// the email had none.
    pub fence: Option<String>,
    /// The other `X-Reveille-*` headers, names in lower case; at most 32, each value cut at 1,000 bytes.
    pub headers: BTreeMap<String, String>,
    /// Names among `Message-ID`, `X-Reveille-Run` and `X-Reveille-Fence` that occurred more than once. The accept has
    /// the value of the first one.
    pub repeated: Vec<String>,
    /// The beginning of the body, as long as [`SinkOptions::excerpt_bytes`](crate::SinkOptions) allows; `None` if that
    /// is 0.
    pub excerpt: Option<String>,
    /// Time when the DATA command was read: wall clock, microseconds since 1970 UTC.
    pub data_unix_us: u64,
    /// The same moment on CLOCK_BOOTTIME, in microseconds: comparable between processes of one machine.
    pub data_monotonic_us: u64,
    /// Time when the whole message had been read, before this accept was kept: wall clock, microseconds since 1970
    /// UTC.
    pub accept_unix_us: u64,
    /// The same moment on CLOCK_BOOTTIME, in microseconds.
    pub accept_monotonic_us: u64,
    /// Number of the connection, counted from 1 since the sink started.
    pub connection: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Name that the client gave in EHLO or HELO; empty if it gave none.
    pub ehlo: String,
    /// blake3 hash of the bytes after the header section, 64 hexadecimal digits. A retry differs in its fence header
    /// only, so it has the same hash.
    pub body_blake3: String,
    /// Bytes of the whole message, headers included, dot-stuffing undone, terminator not counted.
    pub size: u64,
}
