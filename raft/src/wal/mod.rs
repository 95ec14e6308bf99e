//! The write-ahead log of a node: votes, entries, commits, truncations and purges in one ordered stream of records.
//!
//! - *Order.* The disk always has a prefix of what was submitted: a vote never survives an earlier entry that was lost.
//! - *Durability.* A callback gets `Ok` after the `fdatasync` that covers its record. A thread syncs records in groups.
//! - *Torn or damaged.* After a power cut [`Wal::open`] truncates a half-written last batch, keeps a copy and reports it. Any
//!   other damage refuses to start and names the place.
//! - *A failed write or sync is final.* Every pending and later callback gets the [`WalFailure`], and nothing is retried:
//!   after a failed `fdatasync` the content of the disk is unknown.
//!
//! It knows nothing of openraft. Reading order: `record`, `frame` (a batch on disk), `scan` (torn or damaged), `open`, `writer`
//! (segments), `queue` (groups), `log` (the handle), `disk` (the seam).

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

/// The unit that a disk writes completely or not at all. Batches start and end at multiples of it, so that a write never
/// touches a synced sector.
pub const SECTOR_BYTES: usize = 512;

/// Largest payload of one entry. The ledger keeps its entries below 1 MiB; the rest is for framing.
pub const ENTRY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bound of the writer's queue, and so of one batch: at 100 MB/s a batch takes about 160 ms, less than an election.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A long append is split at this size, so that it needs only a part of the queue.
const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a record without a waiting caller (commit, purge) may wait for a larger group.
const LAZY_MS: u64 = 100;

// A chunk fits the queue, or an append could wait for ever; an entry fits a chunk.
const _: () = assert!(CHUNK_BYTES_MAX + ENTRY_BYTES_MAX <= QUEUE_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_MAX <= CHUNK_BYTES_MAX);

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Id of the node. Every batch has it, and a log of another node does not open.
    pub identity: u64,
    /// Size after which a new segment begins (64 MiB). A segment may exceed it by one batch.
    pub segment_bytes: u64,
    /// Recent payloads kept in memory (64 MiB). Older ones are read from disk.
    pub cache_bytes: usize,
    /// Whether batches are synced. False only as an injected bug: then nothing of the promises above holds.
    pub sync_batches: bool,
    /// On a thread the log writes in groups; inline, each submission is a batch.
    pub execution: Execution,
}

impl WalOptions {
    /// Settings of a real node.
    pub fn new(identity: u64) -> Self {
        let mebibyte = 1024 * 1024;
        Self {
            identity,
            segment_bytes: 64 * mebibyte,
            cache_bytes: 64 * 1024 * 1024,
            sync_batches: true,
            execution: Execution::Threads,
        }
    }
}
