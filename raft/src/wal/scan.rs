//! The opening scan of one segment: replays its batches, and distinguishes a torn write from damage.
//!
//! **The rule.** The first bad batch is torn if all of the following hold. The file ends inside it, or it has more zero
//! sectors than its header counts. It is in the last segment. No later header says that it was synced. A disk writes a
//! sector completely or not at all. So any other difference is a later change: damage, and the log refuses to open.

use super::SECTOR_BYTES;
use super::error::OpenError;
use super::frame::{self, Header, RecordSpan, VERSION};
use super::index::{Index, RecordLocation};
use super::record::{LogState, Mismatch, Record, index_of, mismatch};
use super::writer::lower;

/// Result of replaying the batches so far.
#[derive(Default)]
pub(super) struct Replay {
    pub state: LogState,
    pub index: Index,
    /// Last index whose segment file is gone. A later purge or truncation record must cover it; otherwise the log is
    /// damaged.
    pub missing_through: Option<u64>,
    /// Number of the next batch. `None` before the first one.
    pub next_batch: Option<u64>,
    pub records: u64,
}

/// One segment on disk.
pub(super) struct Segment<'a> {
    pub identity: u64,
    pub number: u64,
    pub name: &'a str,
    pub is_last: bool,
    pub content: &'a [u8],
}

/// Result of scanning a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentScan {
    /// Offset after the last whole batch: the end of the file, or the start of a torn batch.
    pub end: usize,
    /// Offset of the last whole batch.
    pub last_batch: usize,
    /// Reason why the batch at `end` is torn. `None`: no batch is torn.
    pub torn: Option<Mismatch>,
    /// Lowest index of its entries, including truncated ones. `None`: it has no entry.
    pub min_index: Option<u64>,
    /// Highest index of its entries, including truncated ones.
    pub max_index: Option<u64>,
}

/// Reason why a batch is bad.
enum BatchDefect {
    /// Possibly torn: some of its sectors never reached the disk.
    Unwritten(Mismatch),
    /// Changed after it was written, at this offset in the batch.
    Changed(usize, Mismatch),
}

impl Segment<'_> {
    /// Replays all whole batches of the segment.
    pub fn scan(&self, replay: &mut Replay) -> Result<SegmentScan, OpenError> {
        let mut scanned = SegmentScan::default();
        while scanned.end < self.content.len() {
            let start = scanned.end;
            let tail = self.content.get(start..).unwrap_or_default();
            let header = Header::decode(tail);
            if let Some(header) = &header {
                self.check(start, header, replay)?;
            }
            let (header, records) = match read_batch(header, tail) {
                Ok(batch) => batch,
                Err(bad) => {
                    scanned.torn = Some(self.classify(start, bad)?);
                    break;
                }
            };
            self.replay(start, &header, records, replay, &mut scanned)?;
            replay.next_batch = Some(header.batch + 1);
            scanned.last_batch = start;
            scanned.end = start + header.frame_bytes();
        }
        Ok(scanned)
    }

    /// Decides if a bad batch is torn (`Ok`) or damaged (`Err`).
    fn classify(&self, start: usize, bad: BatchDefect) -> Result<Mismatch, OpenError> {
        let torn = match bad {
            BatchDefect::Changed(offset, mismatch) => return Err(self.damaged(start + offset, mismatch)),
            BatchDefect::Unwritten(torn) => torn,
        };
        let proof = match self.later_sync(start) {
            _ if !self.is_last => "a later segment exists".to_owned(),
            Some((offset, batch)) => format!("batch {batch} at byte {offset} says that it was synced"),
            None => return Ok(torn),
        };
        Err(self.damaged(start, mismatch(format!("{}, as {proof}", torn.expected), torn.found)))
    }

    /// Returns offset and batch number of a later header that says that the batch at `start` was synced before it.
    fn later_sync(&self, start: usize) -> Option<(usize, u64)> {
        let sectors = self.content.chunks(SECTOR_BYTES).enumerate().skip(start / SECTOR_BYTES + 1);
        sectors.map(|(number, sector)| (number * SECTOR_BYTES, sector)).find_map(|(offset, sector)| {
            let header = Header::decode(sector)?;
            let ours = header.identity == self.identity && header.segment == self.number;
            (ours && header.synced > start as u64 && header.synced <= offset as u64).then_some((offset, header.batch))
        })
    }

    /// Checks that the header has the expected version, node, segment and batch.
    fn check(&self, start: usize, header: &Header, replay: &Replay) -> Result<(), OpenError> {
        if header.version > VERSION {
            return Err(OpenError::TooNew { file: self.name.to_owned(), found: header.version, known: VERSION });
        }
        if header.identity != self.identity {
            let (expected, found) = (self.identity, header.identity);
            return Err(OpenError::Foreign { file: self.name.to_owned(), expected, found });
        }
        let expected = replay.next_batch.unwrap_or(header.batch);
        if (header.segment, header.batch, header.version) != (self.number, expected, VERSION) {
            let expected = format!("batch {expected} of segment {}", self.number);
            let found = format!("batch {} of segment {}, version {}", header.batch, header.segment, header.version);
            return Err(self.damaged(start, mismatch(expected, found)));
        }
        Ok(())
    }

    fn replay(
        &self,
        start: usize,
        header: &Header,
        records: Vec<(Record, RecordSpan)>,
        replay: &mut Replay,
        scanned: &mut SegmentScan,
    ) -> Result<(), OpenError> {
        if (start == 0) != matches!(records.as_slice(), [(Record::Head(_), _)]) {
            let found = format!("a batch of {} records", header.records);
            return Err(self.damaged(start, mismatch("one head, and only at the start of a segment", found)));
        }
        for (record, span) in records {
            if let Record::Head(state) = &record
                && replay.next_batch.is_none()
            {
                replay.start_from(*state);
                continue;
            }
            if let Record::Entry(entry) = &record {
                scanned.min_index = lower(scanned.min_index, entry.point.index);
                scanned.max_index = scanned.max_index.max(Some(entry.point.index));
            }
            let offset = start + span.offset;
            replay.state.apply(&record).map_err(|mismatch| self.damaged(offset, mismatch))?;
            replay.keep(&record);
            let location = RecordLocation { segment: self.number, offset: offset as u64, length: span.length as u32 };
            replay.index.apply(&record, Some(location));
            replay.records += 1;
        }
        Ok(())
    }

    pub fn damaged(&self, offset: usize, mismatch: Mismatch) -> OpenError {
        let Mismatch { expected, found } = mismatch;
        OpenError::Damaged { file: self.name.to_owned(), offset: offset as u64, expected, found }
    }
}

impl Replay {
    /// Starts with the first remaining segment. Its head replaces the state of all removed segments.
    fn start_from(&mut self, head: LogState) {
        self.state = head;
        if index_of(head.last) > index_of(head.purged) {
            self.missing_through = index_of(head.last);
        }
    }

    /// Updates `missing_through` after a record.
    fn keep(&mut self, record: &Record) {
        let Some(missing) = self.missing_through else { return };
        let (last, purged) = (index_of(self.state.last), index_of(self.state.purged));
        match record {
            Record::Purge(_) if purged >= Some(missing) => self.missing_through = None,
            Record::Truncate(_) if last < Some(missing) => self.missing_through = last.filter(|_| last > purged),
            _ => {}
        }
    }
}

/// Reads the batch at the start of `tail`, which is not empty.
fn read_batch(header: Option<Header>, tail: &[u8]) -> Result<(Header, Vec<(Record, RecordSpan)>), BatchDefect> {
    let header = header.ok_or_else(|| bad_header(tail))?;
    let Some(frame) = tail.get(..header.frame_bytes()) else {
        let expected = format!("a batch of {} bytes", header.frame_bytes());
        return Err(BatchDefect::Unwritten(mismatch(expected, end_of_file(tail))));
    };
    match frame::decode(&header, frame) {
        Ok(records) => Ok((header, records)),
        Err((offset, mismatched)) => {
            let zeros = frame::zero_sectors(frame);
            if zeros > header.zero_sectors {
                let expected = format!("a batch with {} sectors of zeros", header.zero_sectors);
                Err(BatchDefect::Unwritten(mismatch(expected, format!("{zeros} of them"))))
            } else {
                Err(BatchDefect::Changed(offset, mismatched))
            }
        }
    }
}

fn end_of_file(tail: &[u8]) -> String {
    format!("the end of the file after {} bytes", tail.len())
}

fn bad_header(tail: &[u8]) -> BatchDefect {
    let expected = "the first sector of a batch";
    match tail.get(..SECTOR_BYTES) {
        None => BatchDefect::Unwritten(mismatch(expected, end_of_file(tail))),
        Some(sector) if frame::is_zero(sector) => BatchDefect::Unwritten(mismatch(expected, "zeros")),
        Some(_) => BatchDefect::Changed(0, mismatch("the header of a batch", "bytes that are none")),
    }
}
