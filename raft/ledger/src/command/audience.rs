//! Commands about sealed audiences and opt-outs.

use serde::{Deserialize, Serialize};

use crate::model::Seal;

/// See [`Command::AudienceSeal`](super::Command::AudienceSeal). The proposer knows that its parts are on the disks of a majority (P20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceSeal {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Tenant.
    pub tenant: String,
    /// Its name and its parts.
    pub seal: Seal,
}

/// See [`Command::AudienceDelete`](super::Command::AudienceDelete). Runs that are there keep the seal, and with it the parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceDelete {
    /// Tenant.
    pub tenant: String,
    /// Name.
    pub name: String,
}

/// Address keys of one opt-out. A key has at most 320 bytes, so the entry has at most 320 KB.
pub const OPT_OUTS_MAX: usize = 1_000;

/// See [`Command::OptOut`](super::Command::OptOut).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptOut {
    /// Tenant.
    pub tenant: String,
    /// The recipients' address keys; at most [`OPT_OUTS_MAX`].
    pub keys: Vec<String>,
}

/// See [`Command::OptOutTakeBack`](super::Command::OptOutTakeBack).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptOutTakeBack {
    /// Tenant.
    pub tenant: String,
    /// The recipient's address key.
    pub key: String,
    /// The last opt-out that the caller knows; a later one stays.
    pub last: u64,
    /// What it rests on, for people.
    pub reason: String,
}
