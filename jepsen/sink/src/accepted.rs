//! One accept: what the record keeps of one recipient of one mail. Written by `receive.rs`, stored by
//! `recorder.rs`, read back by [`RecordFile`](crate::RecordFile) and by callers that compare it with a ledger.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Of `Message-ID`, `X-Reveille-Run` and `X-Reveille-Fence`: those that came more than once. What is kept is the
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<String>,
    /// The beginning of the body, as far as [`SinkOptions::excerpt_bytes`](crate::SinkOptions) says; `None` for
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<String>,
    /// When the DATA (or first BDAT) command was read: microseconds since 1970 UTC, by the wall clock.
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
    /// Hash of the bytes after the header section, so that a retry, which differs in its fence header only,
    /// has the same hash.
    pub body_blake3: BodyHash,
    /// Bytes of the whole message, headers included, dot-stuffing undone, terminator not counted.
    pub size: u64,
}

/// A blake3 hash; 64 hexadecimal digits as text and as JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyHash([u8; 32]);

impl BodyHash {
    /// The hash of these bytes.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        Self(*blake3::hash(body).as_bytes())
    }

    /// The 32 bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BodyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for BodyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for BodyHash {
    type Err = blake3::HexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes()))
    }
}

impl Serialize for BodyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for BodyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
