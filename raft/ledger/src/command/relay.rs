//! Commands about relays, and the removal of relays and of settings.

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
    /// Etag that the relay must have, if it is to become another one. `None`: any.
    pub expected: Option<String>,
}

impl RelayPut {
    /// Hash of the arguments without request id and etag.
    pub fn body_hash(&self) -> Hash {
        fingerprint(&(&self.relay, self.replace))
    }
}

impl From<Relay> for RelayPut {
    /// Replaces any relay of that name.
    fn from(relay: Relay) -> RelayPut {
        RelayPut { relay, replace: true, request: None, expected: None }
    }
}

/// Arguments of the commands that remove a relay, or the settings of a tenant or a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// Name of the relay, the tenant or the pool.
    pub name: String,
    /// Etag that it must have. `None`: any.
    pub expected: Option<String>,
}

impl From<&str> for Removal {
    fn from(name: &str) -> Removal {
        Removal { name: name.to_owned(), expected: None }
    }
}
