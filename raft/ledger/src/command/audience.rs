//! Commands about sealed audiences.

use serde::{Deserialize, Serialize};

use crate::model::Seal;

/// Arguments of [`Command::AudienceSeal`](super::Command::AudienceSeal). The proposer knows that the parts are on the
/// disks of a majority (P20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceSeal {
    /// Request id; `None` if the caller gave none.
    pub request: Option<String>,
    /// Tenant of the audience.
    pub tenant: String,
    /// Name, columns and parts of the audience.
    pub seal: Seal,
}

/// Arguments of [`Command::AudienceDelete`](super::Command::AudienceDelete). Existing runs keep the seal and its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudienceDelete {
    /// Request id; `None` if the caller gave none. A repeat deletes nothing that was sealed since.
    pub request: Option<String>,
    /// Tenant of the audience.
    pub tenant: String,
    /// Name of the audience.
    pub name: String,
    /// Etag that it must have: the index of the entry that sealed it. `None`: any.
    pub expected: Option<String>,
}
