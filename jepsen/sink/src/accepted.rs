//! One accept: the data that the record keeps of one recipient of one email. `receive.rs` creates accepts,
//! `kept_accepts.rs` keeps them, and callers compare them with a ledger.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

/// One recipient of one email that was, or is about to be, answered with `250`. An email with three recipients has
/// three accepts that differ only in the recipient. The mailbox serves accepts as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// The `Message-ID` header as received, angle brackets included. `None`: the email had no such header.
    pub message_id: Option<String>,
    /// The path of RCPT without its angle brackets, exactly as received.
    pub recipient: String,
    /// The path of MAIL without its angle brackets. Empty for the null sender.
    pub sender: String,
    /// The `X-Reveille-Fence` header: `group.epoch.index.place` of the claim under which the email was sent. `None`:
    /// the email had no such header.
    pub fence: Option<String>,
    /// The other `X-Reveille-*` headers, with names in lower case: at most 32 headers, and at most 1,000 bytes of each
    /// value.
    pub headers: BTreeMap<String, String>,
    /// Names among `Message-ID`, `X-Reveille-Run` and `X-Reveille-Fence` that occurred more than once. The accept has
    /// the value of the first occurrence.
    pub repeated: Vec<String>,
    /// The beginning of the body, up to [`SinkOptions::excerpt_bytes`](crate::SinkOptions). `None`: that option is 0.
    pub excerpt: Option<String>,
    /// Time at which the DATA command was read, by the wall clock, in microseconds since 1970 UTC.
    pub data_unix_us: u64,
    /// Time at which the DATA command was read, by CLOCK_BOOTTIME, in microseconds. All processes of a machine share
    /// this clock.
    pub data_monotonic_us: u64,
    /// Time at which the whole message had been read and this accept was not kept yet, by the wall clock, in
    /// microseconds since 1970 UTC.
    pub accept_unix_us: u64,
    /// The same time by CLOCK_BOOTTIME, in microseconds.
    pub accept_monotonic_us: u64,
    /// Number of the connection, counted from 1 since the sink started.
    pub connection: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Name that the client gave in EHLO or HELO. Empty: it gave no name.
    pub ehlo: String,
    /// The blake3 hash of the bytes after the header section, in 64 hexadecimal digits. A retry differs only in its
    /// fence header, so it has the same hash.
    pub body_blake3: String,
    /// Size of the whole message in bytes: with headers, without dot-stuffing and terminator.
    pub size: u64,
}
