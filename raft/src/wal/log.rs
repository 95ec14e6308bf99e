//! The handle of the log.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::disk::Disk;
use super::error::{OpenError, WalError};
use super::open::{OpeningReport, open};
use super::queue::{OnDurable, Queue, Submission};
use super::record::{EntryRecord, LogPoint, LogState, Record, VoteRecord};
use super::shared::{ReadPlan, Shared, WalHealth};
use super::writer::Writer;
use super::{CHUNK_BYTES_MAX, ENTRY_BYTES_MAX, Execution, QUEUE_BYTES_MAX, WalOptions};

/// Queue bytes of a record beside its payload.
const RECORD_CHARGE_BYTES: usize = 128;

/// An open log. Dropping it writes all submissions and ends the writer.
pub struct Wal {
    shared: Arc<Shared>,
    mode: WriteMode,
}

enum WriteMode {
    Thread { queue: Arc<Queue>, room: Arc<Semaphore>, thread: Option<JoinHandle<()>> },
    Inline(Box<Mutex<Writer>>),
}

impl Wal {
    /// Opens or creates the log. Blocks: it reads all segments.
    pub fn open(disk: Arc<dyn Disk>, options: &WalOptions) -> Result<(Wal, OpeningReport), OpenError> {
        let (writer, report) = open(disk, options)?;
        let shared = Arc::clone(&writer.shared);
        let mode = match options.execution {
            Execution::Inline => WriteMode::Inline(Box::new(Mutex::new(writer))),
            Execution::Threads => start(writer)?,
        };
        Ok((Wal { shared, mode }, report))
    }

    /// The state as submitted; the disk may be behind by the queue.
    pub fn state(&self) -> LogState {
        self.shared.memory.lock().state
    }

    /// The first entry that is not purged.
    pub fn first(&self) -> Option<LogPoint> {
        self.shared.memory.lock().index.first()
    }

    /// A reader of entries, independent of the handle.
    pub fn reader(&self) -> WalReader {
        WalReader { shared: Arc::clone(&self.shared), blocking: matches!(self.mode, WriteMode::Thread { .. }) }
    }

    /// Health of the log.
    pub fn health(&self) -> WalHealth {
        WalHealth { shared: Arc::clone(&self.shared) }
    }

    /// Submits a vote.
    pub async fn vote(&self, vote: VoteRecord, done: OnDurable) -> Result<(), WalError> {
        self.submit(vec![Record::Vote(vote)], true, Some(done)).await
    }

    /// Submits entries, which are readable when this returns; `done` is called when all are durable. Waits for space in
    /// the queue.
    pub async fn append(&self, entries: Vec<EntryRecord>, done: OnDurable) -> Result<(), WalError> {
        if let Some(large) = entries.iter().find(|entry| entry.bytes.len() > ENTRY_BYTES_MAX) {
            let (index, bytes) = (large.point.index, large.bytes.len());
            return Err(WalError::Refused(format!("entry {index} has {bytes} bytes, more than {ENTRY_BYTES_MAX}")));
        }
        let mut chunk = Vec::new();
        let mut charge = 0;
        for record in entries.into_iter().map(Record::Entry) {
            if charge + charge_of(&record) > CHUNK_BYTES_MAX {
                self.submit(std::mem::take(&mut chunk), true, None).await?;
                charge = 0;
            }
            charge += charge_of(&record);
            chunk.push(record);
        }
        self.submit(chunk, true, Some(done)).await
    }

    /// Records the commit index. Durable with the next group, or soon.
    pub async fn commit(&self, point: Option<LogPoint>) -> Result<(), WalError> {
        self.submit(vec![Record::Committed(point)], false, None).await
    }

    /// Drops the entries after a point; all for `None`. Holds when this returns, and is durable before any later
    /// submission.
    pub async fn truncate(&self, to: Option<LogPoint>) -> Result<(), WalError> {
        self.submit(vec![Record::Truncate(to)], true, None).await
    }

    /// Drops the entries up to a point, inclusive; it may be beyond the last one. A segment is removed when all its entries
    /// are purged.
    pub async fn purge(&self, upto: LogPoint) -> Result<(), WalError> {
        self.submit(vec![Record::Purge(upto)], false, None).await
    }

    /// `urgent`: a caller waits for it. `done` gets a failure too, but not a refusal.
    async fn submit(&self, records: Vec<Record>, urgent: bool, done: Option<OnDurable>) -> Result<(), WalError> {
        match &self.mode {
            WriteMode::Inline(writer) => {
                let mut writer = writer.lock();
                let submission = Submission { records, done, permit: None };
                let admitted = self.admit(submission, |submission| submission)?;
                Ok(writer.write(vec![admitted])?)
            }
            WriteMode::Thread { queue, room, .. } => {
                let charge: usize = records.iter().map(charge_of).sum();
                // CHUNK_BYTES_MAX bounds a chunk, so it always fits; the semaphore is never closed.
                let permit = Arc::clone(room).acquire_many_owned(charge as u32).await.ok();
                let submission = Submission { records, done, permit };
                self.admit(submission, |submission| queue.push(submission, urgent))
            }
        }
    }

    /// Adds a submission to memory and passes it on under one lock, so that memory and disk have the same order.
    fn admit<T>(&self, submission: Submission, hand_on: impl FnOnce(Submission) -> T) -> Result<T, WalError> {
        let mut memory = self.shared.memory.lock();
        match memory.admit(&submission.records) {
            Ok(()) => Ok(hand_on(submission)),
            Err(error) => {
                drop(memory);
                if let WalError::Failed(failure) = &error {
                    submission.answer(Err(failure.clone()));
                }
                Err(error)
            }
        }
    }
}

fn charge_of(record: &Record) -> usize {
    match record {
        Record::Entry(entry) => RECORD_CHARGE_BYTES + entry.bytes.len(),
        _ => RECORD_CHARGE_BYTES,
    }
}

fn start(writer: Writer) -> Result<WriteMode, OpenError> {
    let queue = Arc::new(Queue::default());
    let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX));
    let theirs = Arc::clone(&queue);
    let thread = std::thread::Builder::new().name("wal".to_owned()).spawn(move || writer.run(&theirs));
    let thread = thread.map_err(|error| OpenError::from_io("start the writer of", "the log", error))?;
    Ok(WriteMode::Thread { queue, room, thread: Some(thread) })
}

impl Drop for Wal {
    fn drop(&mut self) {
        if let WriteMode::Thread { queue, thread, .. } = &mut self.mode {
            queue.close();
            // A panic of the writer was already reported as a failure.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

/// Reads entries.
#[derive(Clone)]
pub struct WalReader {
    shared: Arc<Shared>,
    blocking: bool,
}

impl WalReader {
    /// The state as submitted.
    pub fn state(&self) -> LogState {
        self.shared.memory.lock().state
    }

    /// A plan to read the existing entries of a range: at most `bytes_max` of payload, but at least one entry.
    pub fn plan(&self, range: Range<u64>, bytes_max: usize) -> ReadPlan {
        self.shared.plan(range, bytes_max)
    }

    /// Whether a read from disk may use a thread (not in a simulation).
    pub fn may_block_elsewhere(&self) -> bool {
        self.blocking
    }
}
