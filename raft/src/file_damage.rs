//! What a check of a file at rest may find. The log, the snapshots and the node use it.

use serde::{Deserialize, Serialize};

/// What is wrong with a file at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FileDamage {
    /// It is gone.
    #[error("it is missing")]
    Missing,
    /// The operating system cannot read it: its error.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It is not what was written; where, and what was found, for the log.
    #[error("{0}")]
    Changed(String),
}
