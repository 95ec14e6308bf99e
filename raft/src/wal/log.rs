//! The handle of the write-ahead log: takes submissions and makes readers.

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
use super::shared::{ReadPlan, Shared, WalHandle};
use super::writer::Writer;
use super::{CHUNK_BYTES_MAX, Execution, QUEUE_BYTES_MAX, WAL_PAYLOAD_BYTES_MAX, WalOptions};

/// Bytes that each record takes of the queue's limit, in addition to its payload.
const RECORD_CHARGE_BYTES: usize = 128;

/// An open log. Dropping it writes all submissions and ends the writer thread.
pub struct Wal {
    shared: Arc<Shared>,
    mode: WriteMode,
}

enum WriteMode {
    Thread { queue: Arc<Queue>, capacity: Arc<Semaphore>, thread: Option<JoinHandle<()>> },
    Inline(Box<Mutex<Writer>>),
}

impl Wal {
    /// Opens or creates the log. Blocks while it reads all segments.
    pub fn open(disk: Arc<dyn Disk>, options: &WalOptions) -> Result<(Wal, OpeningReport), OpenError> {
        let (writer, report) = open(disk, options)?;
        let shared = Arc::clone(&writer.shared);
        let mode = match options.execution {
            Execution::Inline => WriteMode::Inline(Box::new(Mutex::new(writer))),
            Execution::Threads => start(writer)?,
        };
        Ok((Wal { shared, mode }, report))
    }

    /// Returns the state after all submissions. The last submissions may not be on disk yet.
    pub fn state(&self) -> LogState {
        self.shared.memory.lock().state
    }

    /// Returns the first entry that is not purged.
    pub fn first(&self) -> Option<LogPoint> {
        self.shared.memory.lock().index.first()
    }

    /// Returns the entry at an index. `None`: the log has none there.
    pub fn at(&self, index: u64) -> Option<LogPoint> {
        self.shared.memory.lock().index.range(index..index.saturating_add(1)).next().map(|slot| slot.point)
    }

    /// Returns a reader of entries, which may outlive the handle.
    pub fn reader(&self) -> WalReader {
        WalReader { shared: Arc::clone(&self.shared), blocking: matches!(self.mode, WriteMode::Thread { .. }) }
    }

    /// Returns the health of the log.
    pub fn health(&self) -> WalHandle {
        WalHandle { shared: Arc::clone(&self.shared) }
    }

    /// Submits a vote. `done` is called when it is durable.
    pub async fn vote(&self, vote: VoteRecord, done: OnDurable) -> Result<(), WalError> {
        self.submit(vec![Record::Vote(vote)], true, Some(done)).await
    }

    /// Submits entries. They are readable when this returns; `done` is called when all are durable. Waits for space in
    /// the queue.
    pub async fn append(&self, entries: Vec<EntryRecord>, done: OnDurable) -> Result<(), WalError> {
        if let Some(large) = entries.iter().find(|entry| entry.bytes.len() > WAL_PAYLOAD_BYTES_MAX) {
            let (index, bytes) = (large.point.index, large.bytes.len());
            return Err(WalError::Refused(format!(
                "entry {index} has {bytes} bytes, more than {WAL_PAYLOAD_BYTES_MAX}"
            )));
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

    /// Submits the commit index. Durable with the next batch or shortly after.
    pub async fn commit(&self, point: Option<LogPoint>) -> Result<(), WalError> {
        self.submit(vec![Record::Committed(point)], false, None).await
    }

    /// Drops all entries after `to`; `None` drops all. Takes effect before this returns, and is durable before any
    /// later submission.
    pub async fn truncate(&self, to: Option<LogPoint>) -> Result<(), WalError> {
        self.submit(vec![Record::Truncate(to)], true, None).await
    }

    /// Drops all entries up to `upto`, inclusive; `upto` may be beyond the last entry. A segment is removed when all
    /// its entries are purged.
    pub async fn purge(&self, upto: LogPoint) -> Result<(), WalError> {
        self.submit(vec![Record::Purge(upto)], false, None).await
    }

    /// Drops all entries, and begins the log after `point`: in one batch, so that no crash leaves a log without the
    /// entries and without the point. As durable as [`Wal::truncate`].
    pub async fn begin_after(&self, point: LogPoint) -> Result<(), WalError> {
        self.submit(vec![Record::Truncate(None), Record::Purge(point)], true, None).await
    }

    /// `urgent` is true if a caller waits for durability. `done` is called with a failure of the log, but not for a
    /// refusal.
    async fn submit(&self, records: Vec<Record>, urgent: bool, done: Option<OnDurable>) -> Result<(), WalError> {
        match &self.mode {
            WriteMode::Inline(writer) => {
                let mut writer = writer.lock();
                let submission = Submission { records, done, permit: None };
                let accepted = self.enqueue(submission, |submission| submission)?;
                Ok(writer.write(vec![accepted])?)
            }
            WriteMode::Thread { queue, capacity, .. } => {
                let charge: usize = records.iter().map(charge_of).sum();
                // A chunk is at most CHUNK_BYTES_MAX, so it always fits. The semaphore is never closed.
                let permit = Arc::clone(capacity).acquire_many_owned(charge as u32).await.ok();
                let submission = Submission { records, done, permit };
                self.enqueue(submission, |submission| queue.push(submission, urgent))
            }
        }
    }

    /// Adds a submission to memory and passes it on, both under one lock. So memory and disk have the same order.
    fn enqueue<T>(&self, submission: Submission, hand_on: impl FnOnce(Submission) -> T) -> Result<T, WalError> {
        let mut memory = self.shared.memory.lock();
        match memory.add(&submission.records) {
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
    let capacity = Arc::new(Semaphore::new(QUEUE_BYTES_MAX));
    let theirs = Arc::clone(&queue);
    let thread = std::thread::Builder::new().name("wal".to_owned()).spawn(move || writer.run(&theirs));
    let thread = thread.map_err(|error| OpenError::from_io("start the writer of", "the log", error))?;
    Ok(WriteMode::Thread { queue, capacity, thread: Some(thread) })
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

/// Reader of entries.
#[derive(Clone)]
pub struct WalReader {
    shared: Arc<Shared>,
    blocking: bool,
}

impl WalReader {
    /// Returns the state after all submissions.
    pub fn state(&self) -> LogState {
        self.shared.memory.lock().state
    }

    /// Plans a read of the existing entries of a range: at most `bytes_max` of payload, but at least one entry.
    pub fn plan(&self, range: Range<u64>, bytes_max: usize) -> ReadPlan {
        self.shared.plan(range, bytes_max)
    }

    /// True if a read from disk may use another thread. False in a simulation.
    pub fn may_block_elsewhere(&self) -> bool {
        self.blocking
    }
}
