//! Errors of snapshots: one kind for each reaction of a caller.

use std::io;

use super::ChunkHash;

/// Why a snapshot was not built, read or installed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Bytes on disk or from a peer are not what was written. Use another snapshot, or fetch again.
    #[error("snapshot damaged: {what}")]
    Damaged {
        /// What is wrong with it.
        what: String,
    },
    /// A chunk is missing. Fetch it.
    #[error("snapshot chunk {hash} is missing")]
    Missing {
        /// The first missing chunk.
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
    /// The rows were not in ascending order of distinct keys: a bug of the caller.
    #[error("row {number} is not above the row before it")]
    Unsorted {
        /// Its place, from 1.
        number: u64,
    },
    /// The disk is full. The failed call removed what it wrote.
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
