//! Commands about relays.

use serde::{Deserialize, Serialize};

use crate::model::Relay;

/// See [`Command::RelayPut`](super::Command::RelayPut).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayPut {
    /// The relay.
    pub relay: Relay,
    /// Takes the place of a relay of that name with another body.
    pub replace: bool,
    /// Request id, where the caller gave one.
    pub request: Option<String>,
}

impl From<Relay> for RelayPut {
    /// Whatever was there before.
    fn from(relay: Relay) -> RelayPut {
        RelayPut { relay, replace: true, request: None }
    }
}
