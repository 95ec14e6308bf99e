//! Index of the entries that are not purged: location of each on disk, and the payloads of recent entries.
//!
//! - Slots are consecutive: slot `i` is the entry `first + i`.
//! - An entry that is not on disk keeps its payload in memory. Of the entries on disk, the oldest payloads are evicted
//!   first.

use std::collections::VecDeque;
use std::ops::Range;

use super::record::{EntryRecord, LogPoint, PayloadKind, Record};
use prost::bytes::Bytes;

/// Location of a record on disk: segment, and offset and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLocation {
    pub segment: u64,
    pub offset: u64,
    pub length: u32,
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub(super) struct IndexSlot {
    pub point: LogPoint,
    pub kind: PayloadKind,
    pub payload_bytes: usize,
    pub location: Option<RecordLocation>,
    pub bytes: Option<Bytes>,
}

/// All entries that are not purged.
#[derive(Debug, Default)]
pub(super) struct Index {
    first: u64,
    slots: VecDeque<IndexSlot>,
    /// Slots before this position have no payload in memory.
    cached_from: usize,
    cached_bytes: usize,
    cache_bytes_max: usize,
}

impl Index {
    pub fn new(cache_bytes_max: usize) -> Self {
        Self { cache_bytes_max, ..Self::default() }
    }

    /// Applies a record. `location` is its place on disk. `None`: it is not on disk yet.
    pub fn apply(&mut self, record: &Record, location: Option<RecordLocation>) {
        match record {
            Record::Entry(entry) => self.push(entry, location),
            Record::Truncate(to) => self.truncate(to.map_or(0, |to| to.index.saturating_add(1))),
            Record::Purge(upto) => self.purge(upto.index),
            Record::Head(_) | Record::Vote(_) | Record::Committed(_) => {}
        }
    }

    fn push(&mut self, entry: &EntryRecord, location: Option<RecordLocation>) {
        if self.slots.is_empty() {
            self.first = entry.point.index;
        }
        self.cached_bytes += entry.bytes.len();
        self.slots.push_back(IndexSlot {
            point: entry.point,
            kind: entry.kind,
            payload_bytes: entry.bytes.len(),
            location,
            bytes: Some(entry.bytes.clone()),
        });
        self.evict();
    }

    /// Drops the entries from index `from` on.
    fn truncate(&mut self, from: u64) {
        let keep = from.saturating_sub(self.first);
        while self.slots.len() as u64 > keep {
            if let Some(slot) = self.slots.pop_back() {
                self.cached_bytes -= slot.bytes.map_or(0, |bytes| bytes.len());
            }
        }
        self.cached_from = self.cached_from.min(self.slots.len());
    }

    fn purge(&mut self, upto: u64) {
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.point.index <= upto) {
            self.cached_bytes -= slot.bytes.map_or(0, |bytes| bytes.len());
            self.cached_from = self.cached_from.saturating_sub(1);
            self.first = slot.point.index.saturating_add(1);
        }
    }

    /// Records the location of a written entry, unless it was truncated or replaced meanwhile.
    pub fn written(&mut self, point: LogPoint, location: RecordLocation) {
        if let Some(position) = self.position(point.index)
            && let Some(slot) = self.slots.get_mut(position)
            && slot.point == point
        {
            slot.location = Some(location);
        }
    }

    /// Evicts the oldest payloads that are on disk, until the cache is within its limit.
    pub fn evict(&mut self) {
        while self.cached_bytes > self.cache_bytes_max {
            let Some(slot) = self.slots.get_mut(self.cached_from).filter(|slot| slot.location.is_some()) else {
                return;
            };
            self.cached_bytes -= slot.bytes.take().map_or(0, |bytes| bytes.len());
            self.cached_from += 1;
        }
    }

    fn position(&self, index: u64) -> Option<usize> {
        index.checked_sub(self.first).and_then(|position| usize::try_from(position).ok())
    }

    /// Fails if a truncation names a last kept entry that the index has differently: the caller has another history.
    pub fn agrees(&self, record: &Record) -> Result<(), String> {
        let Record::Truncate(Some(to)) = record else { return Ok(()) };
        match self.position(to.index).and_then(|position| self.slots.get(position)) {
            Some(slot) if slot.point != *to => Err(format!("truncation to {to:?}, but {:?} lies there", slot.point)),
            _ => Ok(()),
        }
    }

    /// Returns the existing slots in a range of log indexes.
    pub fn range(&self, range: Range<u64>) -> impl Iterator<Item = &IndexSlot> {
        let length = self.slots.len();
        let clamp = |index: u64| usize::try_from(index.saturating_sub(self.first)).map_or(length, |at| at.min(length));
        let (from, to) = (clamp(range.start), clamp(range.end));
        self.slots.range(from..to.max(from))
    }

    pub fn first(&self) -> Option<LogPoint> {
        self.slots.front().map(|slot| slot.point)
    }

    pub fn cached_bytes(&self) -> usize {
        self.cached_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64) -> Record {
        let point = LogPoint { term: 1, leader: 1, index };
        Record::Entry(EntryRecord { point, kind: PayloadKind::Normal, bytes: Bytes::from(vec![1; 100]) })
    }

    const PLACE: RecordLocation = RecordLocation { segment: 1, offset: 0, length: 9 };

    fn cached(index: &Index) -> Vec<u64> {
        index.range(0..u64::MAX).filter(|slot| slot.bytes.is_some()).map(|slot| slot.point.index).collect()
    }

    #[test]
    fn oldest_payloads_above_the_bound_are_evicted() {
        let mut index = Index::new(300);
        (5..15).for_each(|at| index.apply(&entry(at), Some(PLACE)));
        assert_eq!(cached(&index), [12, 13, 14]);
        assert_eq!(index.cached_bytes(), 300);
        index.apply(&Record::Truncate(Some(LogPoint { term: 1, leader: 1, index: 12 })), None);
        assert_eq!(cached(&index), [12]);
        index.apply(&Record::Purge(LogPoint { term: 1, leader: 1, index: 11 }), None);
        assert_eq!((index.cached_bytes(), index.first().map(|point| point.index)), (100, Some(12)));
    }

    #[test]
    fn entry_that_is_not_on_disk_keeps_its_payload() {
        let mut index = Index::new(0);
        (1..=3).for_each(|at| index.apply(&entry(at), None));
        assert_eq!(cached(&index), [1, 2, 3]);
        index.written(LogPoint { term: 1, leader: 1, index: 1 }, PLACE);
        index.evict();
        assert_eq!(cached(&index), [2, 3]);
    }
}
