//! Opens the log: reads all segments, truncates a torn tail, and returns a writer.
//!
//! Data of a former process may be in the page cache only: its last sync may have failed, and a later sync would not
//! write pages that the kernel has marked as clean. Therefore the last whole batch is written again and synced.
//!
//! A truncation leaves the file [`TRUNCATED_MARK`] until the node has caught up. Without it a second crash would let
//! the node vote again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::WalOptions;
use super::disk::{Disk, DiskFile};
use super::error::OpenError;
use super::index::Index;
use super::record::{Mismatch, index_of, mismatch};
use super::scan::{Replay, Segment, SegmentScan};
use super::shared::{LogMemory, Shared, TRUNCATED_MARK, recorded_wait, wait_text};
use super::writer::{ActiveSegment, SealedSegment, Writer, create_segment, segment_name, segment_number};

/// Result of opening a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningReport {
    /// True if a torn tail was truncated, now or earlier, and the node has not caught up since. Until it has, the node
    /// neither votes nor campaigns, unless no leader appears within a minute. Then it calls
    /// [`super::WalHandle::remove_mark`].
    pub tail_truncated: bool,
    /// Time for which processes of the node have waited for a leader since the tail was truncated.
    pub waited: Duration,
    /// The tail that this opening truncated, if any.
    pub truncated_now: Option<TruncatedTail>,
    /// Number of segments, including the active one.
    pub segments: usize,
    /// Number of replayed records.
    pub records: u64,
}

/// A torn tail that was truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedTail {
    /// File name of the segment.
    pub file: String,
    /// Offset of the torn batch in bytes.
    pub offset: u64,
    /// Number of removed bytes.
    pub bytes: u64,
    /// Name of the file with a copy of the removed bytes.
    pub copy: String,
    /// Reason why the batch counts as torn.
    pub reason: String,
}

pub(super) fn open(disk: Arc<dyn Disk>, options: &WalOptions) -> Result<(Writer, OpeningReport), OpenError> {
    let names = disk.list().map_err(|error| OpenError::from_io("list", "the folder of the log", error))?;
    let mut opening = Opening {
        disk: disk.as_ref(),
        identity: options.identity,
        replay: Replay { index: Index::new(options.cache_bytes), ..Replay::default() },
        files: BTreeMap::new(),
        segments: VecDeque::new(),
        cut: None,
    };
    opening.read(numbers(&names)?)?;
    let report = OpeningReport {
        waited: recorded_wait(disk.as_ref()),
        tail_truncated: opening.cut.is_some() || names.iter().any(|name| name == TRUNCATED_MARK),
        truncated_now: opening.cut.clone(),
        segments: opening.segments.len().max(1),
        records: opening.replay.records,
    };
    let writer = opening.into_writer(Arc::clone(&disk), options)?;
    Ok((writer, report))
}

/// Returns the numbers of the segments in ascending order. Fails if one is missing in between.
fn numbers(names: &[String]) -> Result<Vec<u64>, OpenError> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    for (before, after) in numbers.iter().zip(numbers.iter().skip(1)) {
        if before + 1 != *after {
            let found = format!("none, though {} is there", segment_name(*after));
            return Err(damaged(&segment_name(before + 1), mismatch("a segment", found)));
        }
    }
    Ok(numbers)
}

fn damaged(file: &str, wrong: Mismatch) -> OpenError {
    OpenError::Damaged { file: file.to_owned(), offset: 0, expected: wrong.expected, found: wrong.found }
}

struct Opening<'d> {
    disk: &'d dyn Disk,
    identity: u64,
    replay: Replay,
    files: BTreeMap<u64, Arc<dyn DiskFile>>,
    segments: VecDeque<(SealedSegment, SegmentScan)>,
    cut: Option<TruncatedTail>,
}

impl Opening<'_> {
    fn read(&mut self, numbers: Vec<u64>) -> Result<(), OpenError> {
        let last = numbers.last().copied();
        for number in &numbers {
            self.read_segment(*number, Some(*number) == last)?;
        }
        if let (Some(missing), Some(first)) = (self.replay.missing_through, numbers.first()) {
            let expected =
                format!("entries from index {} on", index_of(self.replay.state.purged).map_or(0, |at| at + 1));
            let found = format!("the log begins behind index {missing}; older segments are gone");
            return Err(damaged(&segment_name(*first), mismatch(expected, found)));
        }
        Ok(())
    }

    fn read_segment(&mut self, number: u64, is_last: bool) -> Result<(), OpenError> {
        let name = segment_name(number);
        let file = self.disk.open(&name).map_err(|error| OpenError::from_io("open", &name, error))?;
        let content = read_all(file.as_ref()).map_err(|error| OpenError::from_io("read", &name, error))?;
        let segment = Segment { identity: self.identity, number, name: &name, is_last, content: &content };
        let scanned = segment.scan(&mut self.replay)?;
        if scanned.end == 0 && (!is_last || (self.segments.is_empty() && number > 1)) {
            // The head of a segment is synced before any other batch depends on it.
            return Err(segment.damaged(0, mismatch("the head of a segment", format!("{} bytes", content.len()))));
        }
        if let Some(torn) = &scanned.torn {
            self.cut = Some(self.truncate_tail(&segment, file.as_ref(), scanned.end, torn)?);
        }
        if is_last {
            let kept = content.get(scanned.last_batch..scanned.end).unwrap_or_default();
            let confirmed = file.write_at(scanned.last_batch as u64, kept).and_then(|()| file.sync());
            confirmed.map_err(|error| OpenError::from_io("sync", &name, error))?;
        }
        self.files.insert(number, file);
        let (min_index, max_index) = (scanned.min_index, scanned.max_index);
        self.segments.push_back((SealedSegment { number, min_index, max_index }, scanned));
        Ok(())
    }

    /// Keeps a copy of the torn tail, marks the folder, then truncates. Each step is durable before the next one. So
    /// after a crash in between, the next opening truncates the tail again.
    fn truncate_tail(
        &self,
        segment: &Segment<'_>,
        file: &dyn DiskFile,
        end: usize,
        torn: &Mismatch,
    ) -> Result<TruncatedTail, OpenError> {
        let tail = segment.content.get(end..).unwrap_or_default();
        let reason = torn.to_string();
        let copy = self.keep(&format!("{}.torn-{end}", segment.name), tail)?;
        // Also over a mark that is there: what is cut now may hold a newer vote or entry, so the wait begins anew.
        let waited = wait_text(Duration::ZERO);
        let mark = format!("{waited} s without a leader since {} was cut at byte {end}: {reason}\n", segment.name);
        self.write(TRUNCATED_MARK, mark.as_bytes())?;
        self.disk.sync_folder().map_err(|error| OpenError::from_io("sync", "the folder of the log", error))?;
        let cut = file.cut(end as u64).and_then(|()| file.sync());
        cut.map_err(|error| OpenError::from_io("cut", segment.name, error))?;
        tracing::warn!(
            file = segment.name,
            offset = end,
            bytes = tail.len(),
            copy,
            reason,
            "cut a batch that was half written when the node went down"
        );
        Ok(TruncatedTail { file: segment.name.to_owned(), offset: end as u64, bytes: tail.len() as u64, copy, reason })
    }

    /// Writes the bytes to a new file with the first free name, and returns the name.
    fn keep(&self, stem: &str, bytes: &[u8]) -> Result<String, OpenError> {
        let mut name = stem.to_owned();
        let mut number = 1_u32;
        while self.exists(&name)? {
            number += 1;
            name = format!("{stem}.{number}");
        }
        self.write(&name, bytes)?;
        Ok(name)
    }

    fn exists(&self, name: &str) -> Result<bool, OpenError> {
        let names = self.disk.list().map_err(|error| OpenError::from_io("list", "the folder of the log", error))?;
        Ok(names.iter().any(|known| known == name))
    }

    /// Writes and syncs a whole file. A new name is durable after a sync of the folder.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), OpenError> {
        let file = if self.exists(name)? { self.disk.open(name) } else { self.disk.create(name) };
        let file = file.map_err(|error| OpenError::from_io("create", name, error))?;
        let written = file.cut(0).and_then(|()| file.write_at(0, bytes)).and_then(|()| file.sync());
        written.map_err(|error| OpenError::from_io("write", name, error))
    }

    fn into_writer(mut self, disk: Arc<dyn Disk>, options: &WalOptions) -> Result<Writer, OpenError> {
        let memory = LogMemory {
            state: self.replay.state,
            index: self.replay.index,
            files: self.files,
            failure: None,
            submitted: 0,
        };
        let failure = watch::Sender::new(None);
        let shared = Arc::new(Shared {
            disk,
            memory: Mutex::new(memory),
            counters: Mutex::default(),
            active: Mutex::default(),
            ends_segment: AtomicBool::new(false),
            busy_since: Mutex::new(None),
            failure,
            durable: Mutex::new(0),
            durable_changed: Condvar::new(),
        });
        let (segment, offset) = match self.segments.pop_back() {
            Some((segment, scanned)) => (segment, scanned.end as u64),
            None => (SealedSegment { number: 1, min_index: None, max_index: None }, 0),
        };
        let SealedSegment { number, min_index, max_index } = segment;
        let known = shared.memory.lock().files.get(&number).map(Arc::clone);
        let file = match known {
            Some(file) => file,
            None => create_segment(&shared, number)?,
        };
        shared.memory.lock().files.insert(number, Arc::clone(&file));
        *shared.active.lock() = (number, offset);
        let mut writer = Writer {
            shared,
            identity: options.identity,
            segment_bytes: options.segment_bytes,
            sync_batches: options.sync_batches,
            sealed: self.segments.into_iter().map(|(sealed, _)| sealed).collect(),
            active: ActiveSegment { number, file, offset, min_index, max_index },
            next_batch: self.replay.next_batch.unwrap_or(1),
            state: self.replay.state,
            frame: Vec::new(),
        };
        if writer.active.offset == 0 {
            writer.put_head()?;
        } else {
            super::writer::sync_folder(&writer.shared)?;
        }
        // Needed after a crash between a purge and the removal of its segments.
        writer.remove_purged()?;
        writer.publish_lowest();
        Ok(writer)
    }
}

fn read_all(file: &dyn DiskFile) -> std::io::Result<Vec<u8>> {
    // A length that does not fit in memory fails in the allocation.
    let mut content = vec![0; usize::try_from(file.length()?).unwrap_or(usize::MAX)];
    file.read_at(0, &mut content)?;
    Ok(content)
}
