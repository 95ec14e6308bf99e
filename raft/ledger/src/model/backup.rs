//! What is known of the cluster's backups, so that each leader knows when the next one is due.

use serde::{Deserialize, Serialize};

use crate::model::Time;

/// The last backup that was made and read back whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastBackup {
    /// Log index of its state.
    pub index: u64,
    /// Ledger time of its state.
    pub at: Time,
    /// Size of its content in bytes, uncompressed.
    pub bytes: u64,
}

/// The backups of this cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHistory {
    /// The last one; `None` before the first.
    pub last: Option<LastBackup>,
    /// Ledger time of the last failure; `None` if a backup was made since.
    pub failed_at: Option<Time>,
}

/// How the making of a backup ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupResult {
    /// It is there, and was read back whole.
    Verified(LastBackup),
    /// There is none, or it is not whole.
    Failed,
}
