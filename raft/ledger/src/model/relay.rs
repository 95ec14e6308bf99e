//! A relay: an SMTP endpoint with its limits.

use serde::{Deserialize, Serialize};

use crate::model::Access;

/// An SMTP endpoint to which nodes hand emails over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// Unique name.
    pub name: String,
    /// Name of its pool: relays that share reputation.
    pub pool: String,
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Encryption and credentials.
    pub access: Access,
    /// Rate limit of the whole cluster, in thousandths of an email a second; 0: no limit.
    pub rate_milli: u64,
    /// Dialogues that one node may have open at once, with those that wait (P12).
    pub max_sessions: u32,
    /// Rate limit for late emails of the whole cluster, in thousandths of an email a second; 0: half of the rate (P16).
    pub late_rate_milli: u64,
    /// Weight among the relays of its pool that have free sessions; 1 or more.
    pub weight: u32,
}

impl Relay {
    /// Effective rate limit for late emails (P16), in thousandths of an email a second; `None`: no limit.
    pub fn late_bound_milli(&self) -> Option<u64> {
        match (self.late_rate_milli, self.rate_milli) {
            (0, 0) => None,
            (0, rate) => Some(rate.div_ceil(2)),
            (late, 0) => Some(late),
            (late, rate) => Some(late.min(rate)),
        }
    }
}
