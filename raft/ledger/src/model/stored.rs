//! Rows of one struct each: stored answers, blobs, sealed audiences and opt-outs.

use serde::{Deserialize, Serialize};

use crate::model::{CommandOutcome, Hash, Time};

/// Stored answer to a request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// Hash of the request's body.
    pub body_hash: Hash,
    /// Log index of the entry that made the change.
    pub index: u64,
    /// The answer.
    pub outcome: CommandOutcome,
    /// Ledger time of that entry.
    pub at: Time,
}

/// An encoded content or audience, with its reference count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlob {
    /// The encoded value.
    pub bytes: Box<[u8]>,
    /// Number of rows that refer to it. 0: only archived runs do.
    pub references: u64,
    /// Archived runs refer to it until then.
    pub kept_until: Time,
}

impl StoredBlob {
    /// True if nothing refers to it at `now`.
    pub(crate) fn is_unused(&self, now: Time) -> bool {
        self.references == 0 && self.kept_until <= now
    }
}

/// A sealed audience. Its seal is stored by hash (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedAudience {
    /// Hash of the seal.
    pub seal: Hash,
    /// Number of its recipients.
    pub rows: u32,
    /// Log index of the entry that sealed it.
    pub index: u64,
    /// Ledger time of that entry.
    pub at: Time,
}

/// An opt-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptedOut {
    /// Log index of the entry that recorded it first.
    pub index: u64,
    /// Ledger time of that entry.
    pub at: Time,
    /// Log index of the last entry that repeated it.
    pub last: u64,
}

/// The end of an opt-out that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// Log index of the entry.
    pub index: u64,
    /// Ledger time of the entry.
    pub at: Time,
    /// Reason, as the operator gave it.
    pub reason: String,
}
