//! A relay: an SMTP endpoint with its limits.

use serde::{Deserialize, Serialize};

use crate::model::Access;

/// An SMTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// Unique name.
    pub name: String,
    /// Pool: relays that share reputation.
    pub pool: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Its encryption and credentials.
    pub access: Access,
    /// Emails a second over the whole cluster, in thousandths; zero means no bound.
    pub rate_milli: u64,
    /// Open dialogues on one node, waiting ones included (P12).
    pub max_sessions: u32,
    /// Late emails a second over the whole cluster, in thousandths; zero means half of the rate (P16).
    pub late_rate_milli: u64,
    /// Its share of what its pool sends, beside those of the other relays with room; 1 or more.
    pub weight: u32,
}

impl Relay {
    /// Late emails a second (P16), in thousandths, at most; none where there is no bound.
    pub fn late_bound_milli(&self) -> Option<u64> {
        match (self.late_rate_milli, self.rate_milli) {
            (0, 0) => None,
            (0, rate) => Some(rate.div_ceil(2)),
            (late, 0) => Some(late),
            (late, rate) => Some(late.min(rate)),
        }
    }
}
