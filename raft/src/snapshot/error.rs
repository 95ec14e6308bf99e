//! Errors of snapshots: one variant for each reaction of a caller.

use std::io;

use reveille_ledger::ids::Hash;

/// Reason why a snapshot was not built, read or installed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Bytes on disk or from a peer differ from what was written. Use another snapshot, or fetch this one again.
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
    /// Another version of this program wrote the snapshot.
    #[error("snapshot of format {found}; this program reads format {ours}")]
    OtherFormat {
        /// Format of the snapshot.
        found: u8,
        /// The format that this program reads and writes.
        ours: u8,
    },
    /// The disk is full. The failed call removed what it wrote.
    #[error("the disk of the snapshots is full (while trying to {doing})")]
    Full {
        /// The failed operation, as verb and object.
        doing: String,
    },
    /// A file operation failed for another reason.
    #[error("cannot {doing}")]
    Io {
        /// The failed operation, as verb and object.
        doing: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl SnapshotError {
    pub(crate) fn damaged(what: impl Into<String>) -> SnapshotError {
        SnapshotError::Damaged { what: what.into() }
    }
}
