//! State that submitters, readers and the writer share: the log in memory, its counters and its failure.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::disk::{Disk, DiskFile};
use super::error::{WalError, WalFailure};
use super::index::{Index, IndexSlot, RecordLocation};
use super::record::{EntryRecord, LogPoint, LogState, Record};
use super::verify::{CheckedPiece, CheckedTo, SyncedSegment};
use crate::file_damage::FileDamage;

/// Name of a file that exists from a truncation until the node has caught up.
pub(super) const TRUNCATED_MARK: &str = "cut.not-caught-up";
/// Number of digits of the waited seconds, with which the mark begins.
const WAITED_DIGITS: usize = 6;

/// Returns the start of a mark of a node that has waited so long for a leader.
pub(super) fn wait_text(waited: Duration) -> String {
    format!("{:0WAITED_DIGITS$}", waited.as_secs().min(999_999))
}

/// Returns how long the node has waited for a leader, as the mark says. Zero without a mark, or if it cannot be read.
pub(super) fn recorded_wait(disk: &dyn Disk) -> Duration {
    let mut digits = [0; WAITED_DIGITS];
    let read = disk.open(TRUNCATED_MARK).and_then(|mark| mark.read_at(0, &mut digits));
    let seconds = read.ok().and_then(|()| std::str::from_utf8(&digits).ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// What the writer has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Number of written batches. Each is one write and one `fdatasync`.
    pub batches: u64,
    /// Number of syncs of files and of the folder, including those for new and removed segments.
    pub syncs: u64,
    /// Number of written records.
    pub records: u64,
    /// Number of written bytes, including headers and padding.
    pub bytes: u64,
    /// Lowest index of an entry in the files, also of a purged one. `None`: they have no entry.
    pub lowest_index: Option<u64>,
}

/// The log after all submissions. The submissions in the queue are not on disk yet.
pub(super) struct LogMemory {
    pub state: LogState,
    pub index: Index,
    /// Open files of the segments for reading, by segment number.
    pub files: BTreeMap<u64, Arc<dyn DiskFile>>,
    pub failure: Option<WalFailure>,
    /// Number of accepted submissions.
    pub submitted: u64,
}

impl LogMemory {
    /// Adds records to memory. Fails and adds none if one of them contradicts the log, or if the log has failed.
    pub fn add(&mut self, records: &[Record]) -> Result<(), WalError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        let mut state = self.state;
        for record in records {
            state
                .apply(record)
                .map_err(|wrong| WalError::Refused(format!("expected {}, got {}", wrong.expected, wrong.found)))?;
        }
        let known = records.iter().try_for_each(|record| self.index.agrees(record));
        known.map_err(WalError::Refused)?;
        self.state = state;
        records.iter().for_each(|record| self.index.apply(record, None));
        self.submitted += 1;
        Ok(())
    }
}

pub(super) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub memory: Mutex<LogMemory>,
    pub counters: Mutex<Counters>,
    /// Number of the active segment, and the offset up to which it is synced.
    pub active: Mutex<(u64, u64)>,
    /// True if the next write is to begin a new segment.
    pub ends_segment: AtomicBool,
    /// Start of the running disk operation. `None`: the disk is idle.
    pub busy_since: Mutex<Option<Instant>>,
    pub failure: watch::Sender<Option<WalFailure>>,
    /// Number of submissions that are durable.
    pub durable: Mutex<u64>,
    /// Notified when `durable` grows or the log fails.
    pub durable_changed: Condvar,
}

impl Shared {
    /// Runs a disk operation and sets `busy_since` meanwhile.
    pub fn on_disk<R>(&self, work: impl FnOnce() -> R) -> R {
        *self.busy_since.lock() = Some(Instant::now());
        let done = work();
        *self.busy_since.lock() = None;
        done
    }

    pub fn count_sync(&self) {
        self.counters.lock().syncs += 1;
        metrics::counter!("reveille_wal_syncs_total").increment(1);
    }

    pub fn count_batch(&self, records: u64, bytes: u64, sync: Duration) {
        let mut counters = self.counters.lock();
        counters.batches += 1;
        counters.records += records;
        counters.bytes += bytes;
        metrics::counter!("reveille_wal_batches_total").increment(1);
        metrics::counter!("reveille_wal_records_total").increment(records);
        metrics::counter!("reveille_wal_bytes_total").increment(bytes);
        metrics::histogram!("reveille_wal_sync_seconds").record(sync.as_secs_f64());
    }

    /// Marks the log as failed and returns the failure. If it had failed before, the first failure stays and is
    /// returned.
    pub fn fail(&self, failure: WalFailure) -> WalFailure {
        let first = self.memory.lock().failure.get_or_insert(failure).clone();
        self.failure.send_if_modified(|known| known.is_none() && known.replace(first.clone()).is_none());
        self.count_durable(0);
        first
    }

    /// Adds to the number of durable submissions.
    pub fn count_durable(&self, submissions: usize) {
        *self.durable.lock() += submissions as u64;
        self.durable_changed.notify_all();
    }

    /// Plans a read of a range of entries: at most `bytes_max` of payload, but at least one entry.
    pub fn plan(&self, range: Range<u64>, bytes_max: usize) -> ReadPlan {
        let memory = self.memory.lock();
        let mut bytes = 0;
        let within = memory.index.range(range).take_while(|slot| {
            let fits = bytes == 0 || bytes + slot.payload_bytes <= bytes_max;
            bytes += slot.payload_bytes.max(1);
            fits
        });
        ReadPlan { steps: within.map(|slot| ReadStep::of(slot, &memory.files)).collect() }
    }
}

/// Entries to read: those in memory, and the locations of the others. The plan stays valid after a purge.
pub struct ReadPlan {
    steps: Vec<ReadStep>,
}

enum ReadStep {
    Ready(EntryRecord),
    OnDisk(LogPoint, RecordLocation, Arc<dyn DiskFile>),
    Lost(LogPoint),
}

impl ReadStep {
    fn of(slot: &IndexSlot, files: &BTreeMap<u64, Arc<dyn DiskFile>>) -> ReadStep {
        if let Some(bytes) = &slot.bytes {
            return ReadStep::Ready(EntryRecord { point: slot.point, kind: slot.kind, bytes: bytes.clone() });
        }
        let found = slot.location.and_then(|location| Some((location, files.get(&location.segment)?)));
        match found {
            Some((location, file)) => ReadStep::OnDisk(slot.point, location, Arc::clone(file)),
            None => ReadStep::Lost(slot.point),
        }
    }

    fn read(self) -> Result<EntryRecord, WalError> {
        match self {
            ReadStep::Ready(entry) => Ok(entry),
            ReadStep::OnDisk(point, location, file) => read_back(point, location, file.as_ref()),
            ReadStep::Lost(point) => {
                Err(WalError::Unreadable(format!("entry {} has no location on disk", point.index)))
            }
        }
    }
}

fn read_back(point: LogPoint, location: RecordLocation, file: &dyn DiskFile) -> Result<EntryRecord, WalError> {
    let location_text = || format!("entry {} in segment {} at byte {}", point.index, location.segment, location.offset);
    let mut record = vec![0; location.length as usize];
    file.read_at(location.offset, &mut record)
        .map_err(|error| WalError::Unreadable(format!("{}: {error}", location_text())))?;
    match Record::decode(&record) {
        Ok((Record::Entry(entry), _)) if entry.point == point => Ok(entry),
        Ok(_) => Err(WalError::Unreadable(format!("{}: another record lies there", location_text()))),
        Err(wrong) => Err(WalError::Unreadable(format!("{}: {wrong}", location_text()))),
    }
}

impl ReadPlan {
    /// True if the read uses the disk and may block.
    pub fn touches_disk(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, ReadStep::OnDisk(..)))
    }

    /// Returns the entries, in order.
    pub fn read(self) -> Result<Vec<EntryRecord>, WalError> {
        self.steps.into_iter().map(ReadStep::read).collect()
    }
}

/// What the rest of the node does with the log that openraft owns: it asks for its state, waits until it is durable,
/// checks its segments, and keeps the mark of a truncation.
#[derive(Clone)]
pub struct WalHandle {
    pub(super) shared: Arc<Shared>,
}

impl WalHandle {
    /// Returns the failure of the log. When it is set, the node must stop.
    pub fn failure(&self) -> watch::Receiver<Option<WalFailure>> {
        self.shared.failure.subscribe()
    }

    /// Counters of the writer.
    pub fn counters(&self) -> Counters {
        *self.shared.counters.lock()
    }

    /// Returns how long the current disk operation has been running. `None`: the disk is idle.
    pub fn sync_running_for(&self) -> Option<Duration> {
        self.shared.busy_since.lock().map(|since| since.elapsed())
    }

    /// Waits until everything submitted before this call is durable. Blocks.
    ///
    /// # Errors
    /// The log has failed.
    pub fn wait_durable(&self) -> Result<(), WalFailure> {
        let submitted = self.shared.memory.lock().submitted;
        let mut durable = self.shared.durable.lock();
        while *durable < submitted {
            if let Some(failure) = self.shared.failure.borrow().clone() {
                return Err(failure);
            }
            self.shared.durable_changed.wait(&mut durable);
        }
        Ok(())
    }

    /// Returns the numbers of all segments, the oldest first.
    pub fn segments(&self) -> Vec<u64> {
        self.shared.memory.lock().files.keys().copied().collect()
    }

    /// Checks a piece of a segment: what is synced of it from `from` on. A removed segment is intact. Blocks.
    ///
    /// # Errors
    /// The segment is damaged: the text says where and how.
    pub fn check_segment(&self, number: u64, from: CheckedTo) -> Result<CheckedPiece, FileDamage> {
        let file = self.shared.memory.lock().files.get(&number).map(Arc::clone);
        let Some(file) = file else { return Ok(CheckedPiece { bytes: 0, next: None }) };
        let end = match *self.shared.active.lock() {
            (active, synced) if active == number => synced,
            _ => file.length().map_err(|error| FileDamage::Unreadable(error.to_string()))?,
        };
        let segment = SyncedSegment { file: file.as_ref(), number, end };
        let wrong = |(offset, wrong)| FileDamage::Changed(format!("at byte {offset}: {wrong}"));
        segment.check_piece(from).map_err(wrong)
    }

    /// Lets the next write begin a new segment, if this one is written now. A purge removes complete segments only.
    pub fn end_segment(&self, number: u64) {
        if self.shared.active.lock().0 == number {
            self.shared.ends_segment.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of payload in memory.
    pub fn cached_bytes(&self) -> usize {
        self.shared.memory.lock().index.cached_bytes()
    }

    /// Writes into the mark of a truncation how long the node has waited for a leader since, in whole seconds up to
    /// 999,999. A value below the former one must be `synced`: after a power cut the node may wait longer, not shorter.
    /// Without a mark it does nothing. Blocks.
    pub fn record_wait(&self, waited: Duration, synced: bool) -> io::Result<()> {
        match self.shared.disk.open(TRUNCATED_MARK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(mark) => {
                mark.write_at(0, wait_text(waited).as_bytes())?;
                if synced { mark.sync() } else { Ok(()) }
            }
        }
    }

    /// Removes the mark of a truncation, since the node has caught up. Blocks for a sync of the folder.
    pub fn remove_mark(&self) -> io::Result<()> {
        match self.shared.disk.remove(TRUNCATED_MARK) {
            // A former try may have failed to sync the folder.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.shared.disk.sync_folder(),
        }
    }
}
