//! What can go wrong with a snapshot, one kind for each thing that a caller can do about it.

use std::io;

use super::ChunkHash;

/// Why a snapshot was not built, read or installed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// What lies there, or what a peer sent, is not what was written. Take another snapshot, or fetch again.
    #[error("snapshot damaged: {what}")]
    Damaged {
        /// What is wrong with it.
        what: String,
    },
    /// The snapshot needs a chunk that is not here. Fetch it.
    #[error("snapshot chunk {hash} is not here")]
    Missing {
        /// The first one that is not here.
        hash: ChunkHash,
    },
    /// Written by another version of this program.
    #[error("snapshot of format {found}; this program reads format {ours}")]
    OtherFormat {
        /// The format found.
        found: u8,
        /// The format that this program reads and writes.
        ours: u8,
    },
    /// The rows to build from were not in ascending order of distinct keys. An error of the caller.
    #[error("row {number} is not above the row before it")]
    Unsorted {
        /// Its place, from 1.
        number: u64,
    },
    /// No room left on the disk. What the failed call wrote was removed.
    #[error("the disk of the snapshots is full (while trying to {doing})")]
    Full {
        /// Verb and object.
        doing: String,
    },
    /// The operating system refused.
    #[error("cannot {doing}")]
    Io {
        /// Verb and object.
        doing: String,
        /// Its reason.
        #[source]
        source: io::Error,
    },
}

impl SnapshotError {
    pub(crate) fn damaged(what: impl Into<String>) -> SnapshotError {
        SnapshotError::Damaged { what: what.into() }
    }
}
