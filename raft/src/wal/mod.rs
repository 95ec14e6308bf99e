//! The write-ahead log of a node: votes, entries, commits, truncations and purges in one ordered stream of records.
//!
//! - *Order.* The disk always has a prefix of what was submitted: a vote never survives an earlier entry that was lost.
//! - *Durability.* A callback gets `Ok` after the `fdatasync` that covers its record. A thread syncs records in groups.
//! - *Torn or damaged.* After a power cut [`Wal::open`] truncates a half-written last batch, keeps a copy and reports
//!   it. With any other damage the log refuses to open and names the place.
//! - *A failed write or sync is final.* Every pending and later callback gets the [`WalFailure`], and nothing is
//!   retried: after a failed `fdatasync` the content of the disk is unknown.
//!
//! The log does not depend on openraft. Reading order: `record`, `frame` (a batch on disk), `scan` (torn or damaged),
//! `open`, `writer` (segments), `queue` (groups), `log` (the handle), `disk` (the interface to the disk).

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
mod verify;
mod writer;

pub use crate::execution::Execution;
pub use disk::{Disk, DiskFile, FolderDisk};
pub use error::{OpenError, WalError, WalFailure};
pub use log::{Wal, WalReader};
pub use memory_disk::MemoryDisk;
pub use open::{OpeningReport, TruncatedTail};
pub use queue::OnDurable;
pub use record::{EntryRecord, LogPoint, LogState, PayloadKind, VoteRecord};
pub use shared::{Counters, ReadPlan, WalHandle};
pub use verify::{CheckedPiece, CheckedTo};
pub(crate) use writer::segment_name;

/// Number of bytes that a disk writes completely or not at all. Batches start and end at multiples of it, so that a
/// write never changes a synced sector.
pub const SECTOR_BYTES: usize = 512;

/// Maximum payload of one entry in bytes. The ledger keeps its entries below 1 MiB; the rest is for framing.
pub const WAL_PAYLOAD_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Maximum bytes in the writer's queue, and so in one batch. At 100 MB/s a batch takes about 160 ms, less than an
/// election.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum bytes of one submission. A longer append is split, so that it needs only a part of the queue.
const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Milliseconds that a record without a waiting caller (commit, purge) may wait for a larger group.
const LAZY_MS: u64 = 100;

// A submission fits the queue, or an append could wait for ever. An entry fits a submission.
const _: () = assert!(CHUNK_BYTES_MAX + WAL_PAYLOAD_BYTES_MAX <= QUEUE_BYTES_MAX);
const _: () = assert!(WAL_PAYLOAD_BYTES_MAX <= CHUNK_BYTES_MAX);

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Id of the node. Every batch has it, and the log of another node is refused.
    pub identity: u64,
    /// Size in bytes after which a new segment begins (64 MiB). A segment may exceed it by one batch.
    pub segment_bytes: u64,
    /// Maximum bytes of recent payloads in memory (8 MiB). Older ones are read from disk: the log reaches back two
    /// snapshots, which may be weeks of quiet work.
    pub cache_bytes: usize,
    /// True if batches are synced. False only as an injected bug, which breaks the durability described above.
    pub sync_batches: bool,
    /// With threads the log writes in groups. Inline, each submission is one batch.
    pub execution: Execution,
}

impl WalOptions {
    /// Returns the settings of a real node.
    pub fn new(identity: u64) -> Self {
        let mebibyte = 1024 * 1024;
        Self {
            identity,
            segment_bytes: 64 * mebibyte,
            cache_bytes: 8 * 1024 * 1024,
            sync_batches: true,
            execution: Execution::Threads,
        }
    }
}
