//! Shared by the tests: a log in memory that its caller writes, and its whole content as one value.

use std::sync::Arc;
use std::sync::mpsc;

use futures::FutureExt;
use prost::bytes::Bytes;
use reveille_raft::wal::{
    EntryRecord, Execution, LogPoint, LogState, MemoryDisk, OpenError, OpeningReport, PayloadKind, VoteRecord, Wal,
    WalError, WalFailure, WalOptions,
};

pub const NODE: u64 = 7;

/// Options of a log that its caller writes: one submission is one batch.
pub fn inline() -> WalOptions {
    WalOptions { execution: Execution::Inline, ..WalOptions::new(NODE) }
}

pub fn try_open(disk: &MemoryDisk, options: &WalOptions) -> Result<(Wal, OpeningReport), OpenError> {
    Wal::open(Arc::new(disk.clone()), options)
}

pub fn open(disk: &MemoryDisk, options: &WalOptions) -> (Wal, OpeningReport) {
    try_open(disk, options).unwrap_or_else(|error| panic!("does not open: {error}"))
}

/// Returns the error of a log that must not open.
pub fn refused(disk: &MemoryDisk) -> OpenError {
    match try_open(disk, &inline()) {
        Ok((_, report)) => panic!("opened: {report:?}"),
        Err(error) => error,
    }
}

pub fn point(term: u64, index: u64) -> LogPoint {
    LogPoint { term, leader: NODE, index }
}

pub fn vote(term: u64) -> VoteRecord {
    VoteRecord { term, leader: NODE, committed: term.is_multiple_of(2) }
}

/// Returns an entry whose payload depends on its position. Every third payload is all zeros, which is allowed.
pub fn entry(term: u64, index: u64, length: usize) -> EntryRecord {
    let seed = term.wrapping_mul(31).wrapping_add(index);
    let byte = |at: usize| (seed.wrapping_add(at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    let payload: Vec<u8> = if index.is_multiple_of(3) { vec![0; length] } else { (0..length).map(byte).collect() };
    EntryRecord { point: point(term, index), kind: PayloadKind::Normal, bytes: Bytes::from(payload) }
}

/// The whole content of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub state: LogState,
    pub entries: Vec<EntryRecord>,
}

pub fn content(wal: &Wal) -> Content {
    let entries = wal.reader().plan(0..u64::MAX, usize::MAX).read().expect("reads");
    Content { state: wal.state(), entries }
}

/// Result of a submission to an inline log: the answer, and the argument of the callback.
pub type Outcome = (Result<(), WalError>, Option<Result<(), WalFailure>>);

pub fn append(wal: &Wal, entries: Vec<EntryRecord>) -> Outcome {
    let (told, heard) = mpsc::channel();
    let done = Box::new(move |outcome| drop(told.send(outcome)));
    (at_once(wal.append(entries, done)), heard.try_recv().ok())
}

pub fn save_vote(wal: &Wal, vote: VoteRecord) -> Outcome {
    let (told, heard) = mpsc::channel();
    let done = Box::new(move |outcome| drop(told.send(outcome)));
    (at_once(wal.vote(vote, done)), heard.try_recv().ok())
}

/// Returns the result of a future that never waits, as those of an inline log.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("an inline log answers at once")
}

pub const WRITTEN: Outcome = (Ok(()), Some(Ok(())));

/// Returns the name and the bytes of a disk's newest segment.
pub fn newest(disk: &MemoryDisk) -> (String, Vec<u8>) {
    let mut segments = disk.files().into_iter().filter(|(name, _)| name.ends_with(".wal"));
    segments.next_back().expect("a segment")
}

/// Returns the same disk with other bytes in one file.
pub fn with_file(disk: &MemoryDisk, name: &str, bytes: Vec<u8>) -> MemoryDisk {
    let mut files = disk.files();
    files.insert(name.to_owned(), bytes);
    MemoryDisk::with(files)
}

/// Returns the same disk without one file.
pub fn without_file(disk: &MemoryDisk, name: &str) -> MemoryDisk {
    let mut files = disk.files();
    assert!(files.remove(name).is_some(), "{name} is not there");
    MemoryDisk::with(files)
}
