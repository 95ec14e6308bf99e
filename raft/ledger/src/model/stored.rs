//! Small rows: stored answers, blobs, sealed audiences and opt-outs.

use serde::{Deserialize, Serialize};

use crate::model::{CommandOutcome, Hash, Time};

/// A stored answer to a request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// Hash of the body that was asked.
    pub body: Hash,
    /// Log index of the entry that answered.
    pub index: u64,
    /// What it answered.
    pub outcome: CommandOutcome,
    /// When.
    pub at: Time,
}

/// A blob and how many schedules and runs hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlob {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Schedules and runs that name it.
    pub references: u64,
}

/// A large audience: its seal is kept by hash (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedAudience {
    /// Hash of its seal.
    pub seal: Hash,
    /// Its recipients.
    pub rows: u32,
    /// Log index of the entry that sealed it.
    pub index: u64,
    /// When.
    pub at: Time,
}

/// An opt-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptedOut {
    /// Log index.
    pub index: u64,
    /// Ledger time.
    pub at: Time,
    /// Log index of the last entry that said so again.
    pub last: u64,
}

/// How an opt-out was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// Log index.
    pub index: u64,
    /// Ledger time.
    pub at: Time,
    /// Why.
    pub reason: String,
}
