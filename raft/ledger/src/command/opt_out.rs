//! Commands about opt-outs (P15).

use serde::{Deserialize, Serialize};

/// Maximum number of address keys in an opt-out. A key has at most 320 bytes, so the entry has at most 320 KB.
pub const OPT_OUTS_MAX: usize = 1_000;

/// Arguments of [`Command::OptOut`](super::Command::OptOut).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptOut {
    /// Tenant that the recipients opt out of.
    pub tenant: String,
    /// Address keys of the recipients; at most [`OPT_OUTS_MAX`].
    pub keys: Vec<String>,
}

/// Arguments of [`Command::OptOutTakeBack`](super::Command::OptOutTakeBack).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptOutTakeBack {
    /// Tenant of the opt-out.
    pub tenant: String,
    /// Address key of the recipient.
    pub key: String,
    /// Log index of the last opt-out that the caller knows. A later opt-out is not taken back.
    pub last: u64,
    /// Why it is taken back, for users.
    pub reason: String,
}
