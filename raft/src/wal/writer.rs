//! The writer: turns submissions into batches and batches into segments, and removes purged segments.
//!
//! - Each batch is synced before the next one is written.
//! - A segment begins with a batch that has only the state of the log. It is created after everything before it was
//!   synced.
//! - The oldest segments are removed first, with one sync of the folder for each, so that a crash leaves no gap.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::disk::DiskFile;
use super::error::WalFailure;
use super::frame::{self, BatchPosition, RecordSpan};
use super::index::RecordLocation;
use super::queue::{Queue, Submission};
use super::record::{LogState, Record, index_of};
use super::shared::Shared;
use crate::crash;

/// Returns the file name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}.wal")
}

/// Returns the number of a segment. `None` if the name is not that of a segment.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".wal")?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

/// A complete segment, which is not written any more.
pub(super) struct SealedSegment {
    pub number: u64,
    /// Lowest index of its entries. `None`: it has no entry.
    pub min_index: Option<u64>,
    /// Highest index of its entries. `None`: it has no entry.
    pub max_index: Option<u64>,
}

/// The segment that is being written.
pub(super) struct ActiveSegment {
    pub number: u64,
    pub file: Arc<dyn DiskFile>,
    /// Offset of the next batch. Everything before it is synced.
    pub offset: u64,
    pub min_index: Option<u64>,
    pub max_index: Option<u64>,
}

pub(super) struct Writer {
    pub shared: Arc<Shared>,
    pub identity: u64,
    pub segment_bytes: u64,
    pub sync_batches: bool,
    pub sealed: VecDeque<SealedSegment>,
    pub active: ActiveSegment,
    pub next_batch: u64,
    /// State of the log on disk. The state in memory is ahead by the submissions in the queue.
    pub state: LogState,
    pub frame: Vec<u8>,
}

impl Writer {
    /// Writes groups until the queue is closed or the log fails.
    pub fn run(mut self, queue: &Queue) {
        let mut guard = FailureGuard { shared: Arc::clone(&self.shared), queue, closed: false };
        while let Some(group) = queue.take() {
            if self.write(group).is_err() {
                return;
            }
        }
        guard.closed = true;
    }

    /// Writes one group as one batch, then calls its callbacks.
    pub fn write(&mut self, mut group: Vec<Submission>) -> Result<(), WalFailure> {
        let records: Vec<Record> =
            group.iter_mut().flat_map(|submission| std::mem::take(&mut submission.records)).collect();
        crash_before(&records);
        let outcome = self.write_batch(&records).map_err(|failure| self.shared.fail(failure));
        crash_after(&records);
        let submissions = group.len();
        if outcome.is_ok() {
            self.shared.count_durable(submissions);
        }
        answer(group, &outcome);
        outcome?;
        if records.iter().any(|record| matches!(record, Record::Purge(_))) {
            crash::point("wal.purge");
            self.end_segment_with_purged().map_err(|failure| self.shared.fail(failure))?;
            self.remove_purged().map_err(|failure| self.shared.fail(failure))?;
        }
        self.publish_lowest();
        Ok(())
    }

    fn write_batch(&mut self, records: &[Record]) -> Result<(), WalFailure> {
        if self.active.offset >= self.segment_bytes || self.shared.ends_segment.swap(false, Ordering::Relaxed) {
            self.begin_segment()?;
        }
        let start = self.active.offset;
        let spans = self.put(records)?;
        for record in records {
            // Memory accepted the record under the same rule, so it cannot contradict the state here.
            let _ = self.state.apply(record);
            if let Record::Entry(entry) = record {
                self.active.min_index = lower(self.active.min_index, entry.point.index);
                self.active.max_index = self.active.max_index.max(Some(entry.point.index));
            }
        }
        self.publish(start, records, &spans);
        Ok(())
    }

    /// Appends records to the active segment with one write and one sync.
    fn put(&mut self, records: &[Record]) -> Result<Vec<RecordSpan>, WalFailure> {
        let ActiveSegment { number, file, offset, .. } = &mut self.active;
        let position =
            BatchPosition { identity: self.identity, segment: *number, batch: self.next_batch, synced: *offset };
        let spans = frame::encode(position, records, &mut self.frame);
        let name = segment_name(*number);
        if let Err(error) = self.shared.on_disk(|| file.write_at(*offset, &self.frame)) {
            // Best effort: no promise depends on this batch, and the next opening would truncate it too.
            let _ = file.cut(*offset);
            return Err(WalFailure::from_io("write", &name, &error));
        }
        if holds_entries(records) {
            crash::point("wal.after-append-before-fsync");
        }
        if holds_vote(records) {
            crash::point("wal.vote-before-fsync");
        }
        let started = Instant::now();
        let sync = || if self.sync_batches { file.sync() } else { Ok(()) };
        self.shared.on_disk(sync).map_err(|error| WalFailure::from_io("sync", &name, &error))?;
        self.shared.count_sync();
        self.shared.count_batch(records.len() as u64, self.frame.len() as u64, started.elapsed());
        *offset += self.frame.len() as u64;
        *self.shared.active.lock() = (*number, *offset);
        self.next_batch += 1;
        Ok(spans)
    }

    /// Records the locations of the entries, so that their payloads can be evicted.
    fn publish(&self, start: u64, records: &[Record], spans: &[RecordSpan]) {
        let mut memory = self.shared.memory.lock();
        for (record, span) in records.iter().zip(spans) {
            if let Record::Entry(entry) = record {
                let offset = start + span.offset as u64;
                let location = RecordLocation { segment: self.active.number, offset, length: span.length as u32 };
                memory.index.written(entry.point, location);
            }
        }
        memory.index.evict();
    }

    /// Seals the active segment and creates the next one.
    fn begin_segment(&mut self) -> Result<(), WalFailure> {
        let number = self.active.number + 1;
        let file = create_segment(&self.shared, number)?;
        let active = ActiveSegment { number, file: Arc::clone(&file), offset: 0, min_index: None, max_index: None };
        let ActiveSegment { number: sealed, min_index, max_index, .. } = std::mem::replace(&mut self.active, active);
        self.sealed.push_back(SealedSegment { number: sealed, min_index, max_index });
        self.put_head()?;
        self.shared.memory.lock().files.insert(number, file);
        Ok(())
    }

    /// Writes the log's state at the start of an empty segment, and makes the file's name durable.
    pub fn put_head(&mut self) -> Result<(), WalFailure> {
        self.put(&[Record::Head(self.state)])?;
        sync_folder(&self.shared)
    }

    /// Seals the active segment if it has purged entries: they then leave the disk with a later purge, however little
    /// is written. An erased address must not stay in a segment that never fills.
    fn end_segment_with_purged(&mut self) -> Result<(), WalFailure> {
        let purged = index_of(self.state.purged);
        if self.active.min_index.is_some_and(|lowest| Some(lowest) <= purged) { self.begin_segment() } else { Ok(()) }
    }

    /// Tells readers of the counters the lowest index of an entry in the files.
    pub fn publish_lowest(&self) {
        let sealed = self.sealed.iter().filter_map(|segment| segment.min_index);
        self.shared.counters.lock().lowest_index = sealed.chain(self.active.min_index).min();
    }

    /// Removes segments whose entries are all purged, the oldest first, with the copies of their torn ends.
    pub fn remove_purged(&mut self) -> Result<(), WalFailure> {
        let purged = index_of(self.state.purged);
        while let Some(segment) = self.sealed.pop_front_if(|segment| segment.max_index <= purged) {
            let name = segment_name(segment.number);
            self.shared.memory.lock().files.remove(&segment.number);
            let removed =
                |name: &str| self.shared.disk.remove(name).map_err(|error| WalFailure::from_io("remove", name, &error));
            let known = self.shared.disk.list().map_err(|error| WalFailure::from_io("list", "the log", &error))?;
            let torn = format!("{name}.torn-");
            known.iter().filter(|other| other.starts_with(&torn)).try_for_each(|copy| removed(copy))?;
            removed(&name)?;
            sync_folder(&self.shared)?;
            tracing::debug!(segment = %name, "removed a segment whose entries are purged");
        }
        Ok(())
    }
}

/// Returns the lower one of a lowest index, if there is one, and another index.
pub(super) fn lower(lowest: Option<u64>, index: u64) -> Option<u64> {
    Some(lowest.map_or(index, |lowest| lowest.min(index)))
}

pub(super) fn create_segment(shared: &Shared, number: u64) -> Result<Arc<dyn DiskFile>, WalFailure> {
    let name = segment_name(number);
    shared.disk.create(&name).map_err(|error| WalFailure::from_io("create", &name, &error))
}

pub(super) fn sync_folder(shared: &Shared) -> Result<(), WalFailure> {
    let synced = shared.on_disk(|| shared.disk.sync_folder());
    synced.map_err(|error| WalFailure::from_io("sync", "the folder of the log", &error))?;
    shared.count_sync();
    Ok(())
}

fn holds_entries(records: &[Record]) -> bool {
    records.iter().any(|record| matches!(record, Record::Entry(_)))
}

fn holds_vote(records: &[Record]) -> bool {
    records.iter().any(|record| matches!(record, Record::Vote(_)))
}

fn crash_before(records: &[Record]) {
    if holds_entries(records) {
        crash::point("wal.before-append");
    }
    if records.iter().any(|record| matches!(record, Record::Truncate(_))) {
        crash::point("wal.truncate");
    }
}

fn crash_after(records: &[Record]) {
    if holds_entries(records) {
        crash::point("wal.after-fsync-before-callback");
    }
    if holds_vote(records) {
        crash::point("wal.vote-after-fsync");
    }
}

fn answer(group: Vec<Submission>, outcome: &Result<(), WalFailure>) {
    group.into_iter().for_each(|submission| submission.answer(outcome.clone()));
}

/// Calls all waiting callbacks with a failure when the writer ends by a failure or a panic.
struct FailureGuard<'q> {
    shared: Arc<Shared>,
    queue: &'q Queue,
    closed: bool,
}

impl Drop for FailureGuard<'_> {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        let failure = self.shared.fail(WalFailure::writer_gone());
        answer(self.queue.drain(), &Err(failure));
    }
}
