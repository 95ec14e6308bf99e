//! Errors of snapshots: one variant for each reaction of a caller.

use std::io;

use reveille_ledger::ids::Hash;

use crate::fatal_error::FatalError;

/// Reason why a snapshot was not built, read or installed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Bytes on disk or from a peer differ from what was written. Use another snapshot, or fetch the snapshot again.
    #[error("snapshot damaged: {what}")]
    Damaged {
        /// Description of the damage.
        what: String,
    },
    /// A block is missing and must be fetched.
    #[error("snapshot block {hash} is missing")]
    Missing {
        /// The first missing block.
        hash: Hash,
    },
    /// A file operation failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The failed operation, as verb and object.
        doing: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// No snapshot is made for a peer now. Ask again.
    #[error("{0}")]
    NotNow(String),
    /// The node must stop.
    #[error(transparent)]
    Fatal(#[from] FatalError),
    /// The thread that works on snapshots panicked.
    #[error("the thread that works on snapshots panicked")]
    Panicked,
}

impl SnapshotError {
    pub(crate) fn damaged(what: impl Into<String>) -> SnapshotError {
        SnapshotError::Damaged { what: what.into() }
    }
}
