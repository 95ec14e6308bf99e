//! Commands about relays.

use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;
use crate::model::{Hash, Relay};

/// Arguments of [`Command::RelayPut`](super::Command::RelayPut).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayPut {
    /// The relay.
    pub relay: Relay,
    /// True to replace a relay of that name with other properties.
    pub replace: bool,
    /// Request id; `None` if the caller gave none.
    pub request: Option<String>,
}

impl RelayPut {
    /// Hash of the arguments without the request id.
    pub fn body(&self) -> Hash {
        fingerprint(&(&self.relay, self.replace))
    }
}

impl From<Relay> for RelayPut {
    /// Replaces any relay of that name.
    fn from(relay: Relay) -> RelayPut {
        RelayPut { relay, replace: true, request: None }
    }
}
