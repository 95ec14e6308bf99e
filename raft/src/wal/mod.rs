//! The write-ahead log of a node: votes, entries, commits, truncations and purges in **one ordered
//! stream of records**, made durable in groups by a thread of its own.
//!
//! Called by [`crate::openraft_traits::log_storage`], which gives it openraft's face; it knows nothing of openraft, and no
//! type of another crate reaches the disk.
//!
//! What it promises:
//! - *Order.* What is on disk is always a prefix of what was submitted. A vote can not survive an entry
//!   that was submitted before it.
//! - *Durability.* A callback is told `Ok` after the `fdatasync` that covers its record, never before.
//! - *Torn or damaged, never guessed.* After a power cut the log reopens to such a prefix ([`open`](Wal::open)
//!   cuts a half-written last batch, keeps a copy of it and says so). Any other damage refuses to start
//!   and names the place.
//! - *A failed write or sync is final.* The log turns to its failed state, every pending and later
//!   callback gets the [`WalFailure`], and nothing is tried again: after a failed `fdatasync` nobody knows what
//!   the disk holds.
//!
//! What it is not: no state store, no snapshot, no lock on the folder (the node holds one for all of its
//! data), and no judge of Raft's rules beyond "entries are consecutive".
//!
//! Reading order: `record` (what may be said), `frame` (how a batch lies on disk), `scan` (torn or
//! damaged), `open`, `writer` (segments), `queue` (groups), `log` (the handle), `disk` (the seam).

mod disk;
mod error;
mod frame;
mod index;
mod log;
mod memory_disk;
mod open;
mod queue;
mod record;
mod scan;
mod shared;
mod writer;

pub use crate::execution::Execution;
pub use disk::{Disk, DiskFile, FolderDisk};
pub use error::{OpenError, WalError, WalFailure};
pub use log::{Wal, WalReader};
pub use memory_disk::MemoryDisk;
pub use open::{OpeningReport, TruncatedTail};
pub use queue::OnDurable;
pub use record::{EntryRecord, LogPoint, LogState, PayloadKind, VoteRecord};
pub use shared::{Counters, ReadPlan, WalHealth};

/// The unit that a disk writes whole or not at all. Batches start and end at multiples of it, so that
/// writing one never touches a sector that an earlier sync covered.
pub const SECTOR_BYTES: usize = 512;

/// Bytes of one entry's payload that the log takes at most. The ledger keeps its entries below 1 MiB; the
/// rest is room for what the framing of a caller adds.
pub const ENTRY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes that may wait for the writer: the bound of its queue, and so of one batch. Enough for some
/// sixteen of the largest entries; at 100 MB/s it keeps one batch near 160 ms, below an election.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One submission is split at this many bytes, so that a long append needs only a part of the queue.
const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a record that nobody waits for (a commit, a purge) may lie in the queue for company.
const LAZY_MS: u64 = 100;

// A chunk always fits in the queue, or an append could wait for ever; an entry always fits in a chunk.
const _: () = assert!(CHUNK_BYTES_MAX + ENTRY_BYTES_MAX <= QUEUE_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_MAX <= CHUNK_BYTES_MAX);

/// How a log is laid out and driven.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Whose log this is: the node's id. It stands in every batch, and a log of another node does not open.
    pub identity: u64,
    /// Bytes after which a new segment begins (64 MiB). A segment may exceed it by one batch.
    pub segment_bytes: u64,
    /// Bytes of recent payloads kept in memory (64 MiB). Older ones are read back from disk.
    pub cache_bytes: usize,
    /// Who writes: a thread of its own, in groups; or the caller, at once, one batch a submission.
    pub execution: Execution,
}

impl WalOptions {
    /// The options of a real node.
    pub fn new(identity: u64) -> Self {
        let mebibyte = 1024 * 1024;
        Self { identity, segment_bytes: 64 * mebibyte, cache_bytes: 64 * 1024 * 1024, execution: Execution::Threads }
    }
}
