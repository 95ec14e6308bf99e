//! A set of slots within one chunk (0 to 65,535), with one canonical form on disk and in the log (P2).
//!
//! In memory it is a roaring bitmap. Equal roaring sets can serialise differently, so the stored bytes have a form of
//! their own: sorted numbers, runs or words, whichever is shortest. Only the set decides the form. Reading rejects
//! every other form of the same set, so equal sets have equal bytes on every replica.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use roaring::RoaringBitmap;
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Recipients in one chunk; slot numbers are below it.
pub const CHUNK: u32 = 65_536;

/// Above this number of runs or single slots, set operations do not use run containers (see `beside`). Roaring handles
/// the pieces one by one; a hundred cost some microseconds.
const PIECES_MAX: u64 = 128;

/// A set of slot numbers below [`CHUNK`].
#[derive(Clone, Default, PartialEq)]
pub struct Bitmap(RoaringBitmap);

impl Eq for Bitmap {}

impl Bitmap {
    /// Returns the empty set.
    pub fn new() -> Bitmap {
        Bitmap::default()
    }

    /// Returns `count` slots from `first` on; slots beyond the chunk are left out.
    pub fn range(first: u32, count: u32) -> Bitmap {
        let mut set = Bitmap::new();
        set.add_range(first, count);
        set
    }

    /// Returns the set of these slots, in any order. For many slots it is faster than inserting them one by one.
    pub fn of_many(slots: impl Iterator<Item = u16>) -> Bitmap {
        let mut words = Vec::new();
        for slot in slots {
            let byte = usize::from(slot / 8);
            if words.len() <= byte {
                words.resize(byte + 1, 0_u8);
            }
            words[byte] |= 1 << (slot % 8);
        }
        Bitmap(RoaringBitmap::from_lsb0_bytes(0, &words))
    }

    /// Adds a slot. True if it was not in the set.
    pub fn insert(&mut self, slot: u16) -> bool {
        self.0.insert(u32::from(slot))
    }

    /// True if the slot is in the set.
    pub fn contains(&self, slot: u16) -> bool {
        self.0.contains(u32::from(slot))
    }

    /// Number of slots.
    pub fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(CHUNK)
    }

    /// True if the set has no slot.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of slots within `range`.
    pub fn count_in(&self, range: RangeInclusive<u32>) -> u32 {
        u32::try_from(self.0.range_cardinality(range)).unwrap_or(CHUNK)
    }

    /// Iterates over the slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().map(|slot| slot as u16)
    }

    /// The lowest slot; `None` if the set is empty.
    pub fn min(&self) -> Option<u16> {
        self.0.min().map(|slot| slot as u16)
    }

    /// The highest slot; `None` if the set is empty.
    pub fn max(&self) -> Option<u16> {
        self.0.max().map(|slot| slot as u16)
    }

    /// Returns the lowest `count` slots.
    pub fn first(&self, count: u32) -> Bitmap {
        Bitmap(self.0.iter().take(count as usize).collect())
    }

    /// Returns the slots that are in both sets.
    pub fn and(&self, other: &Bitmap) -> Bitmap {
        Bitmap(&self.0 & &other.0)
    }

    /// Returns the slots of this set that are not in `other`.
    pub fn and_not(&self, other: &Bitmap) -> Bitmap {
        let mut left = self.clone();
        left.remove(other);
        left
    }

    /// Adds `count` slots from `first` on; slots beyond the chunk are left out.
    pub fn add_range(&mut self, first: u32, count: u32) {
        self.0.insert_range(first.min(CHUNK)..first.saturating_add(count).min(CHUNK));
    }

    /// Adds all slots of `other`.
    pub fn add(&mut self, other: &Bitmap) {
        let other = self.beside(other);
        self.0 |= &*other;
    }

    /// Removes all slots of `other`.
    pub fn remove(&mut self, other: &Bitmap) {
        let other = self.beside(other);
        self.0 -= &*other;
    }

    /// Prepares both sets for a set operation and returns `other`, copied if necessary. Converts both from runs to
    /// arrays if either has many pieces: roaring inserts and removes runs one by one, and moves all later ones each
    /// time. For a set of every second slot of a chunk it would move two gigabytes.
    fn beside<'a>(&mut self, other: &'a Bitmap) -> Cow<'a, RoaringBitmap> {
        if self.pieces().max(other.pieces()) <= PIECES_MAX {
            return Cow::Borrowed(&other.0);
        }
        self.0.remove_run_compression();
        if other.0.statistics().n_run_containers == 0 {
            return Cow::Borrowed(&other.0);
        }
        let mut other = other.0.clone();
        other.remove_run_compression();
        Cow::Owned(other)
    }

    /// Number of runs or single slots in which the set is kept; 0 if it is kept as words.
    fn pieces(&self) -> u64 {
        let held = self.0.statistics();
        // A run has two numbers of two bytes each.
        held.n_bytes_run_containers / 4 + u64::from(held.n_values_array_containers)
    }

    /// Changes to the form that takes the least memory. The set stays the same.
    pub fn optimize(&mut self) {
        self.0.optimize();
    }

    /// Returns the first and last slot of each run, in order. The cost grows with the runs, not the slots: the sets of
    /// a large run are written again with every batch.
    pub fn runs(&self) -> Vec<(u16, u16)> {
        let mut slots = self.0.iter();
        let run = || slots.next_range().map(|run| (*run.start() as u16, *run.end() as u16));
        std::iter::from_fn(run).collect()
    }

    /// Returns the canonical bytes: a form octet, then big-endian numbers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = self.len() as usize;
        let runs = self.runs();
        let (numbers, run_bytes, word_bytes) = (count * 2, runs.len() * 4, CHUNK as usize / 8);
        if numbers <= run_bytes && numbers <= word_bytes {
            let slots = self.iter().flat_map(u16::to_be_bytes);
            std::iter::once(FORM_NUMBERS).chain(slots).collect()
        } else if run_bytes <= word_bytes {
            let edges = runs.iter().flat_map(|(first, last)| [first.to_be_bytes(), last.to_be_bytes()]).flatten();
            std::iter::once(FORM_RUNS).chain(edges).collect()
        } else {
            let mut bytes = vec![0; 1 + word_bytes];
            bytes[0] = FORM_WORDS;
            for (first, last) in runs {
                let (from, to) = (1 + usize::from(first / 8), 1 + usize::from(last / 8));
                let (head, tail) = (0xff << (first % 8), 0xff >> (7 - last % 8));
                if from == to {
                    bytes[from] |= head & tail;
                } else {
                    bytes[from] |= head;
                    bytes[from + 1..to].fill(0xff);
                    bytes[to] |= tail;
                }
            }
            bytes
        }
    }

    /// Reads the canonical bytes; `None` for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Bitmap> {
        let (form, body) = bytes.split_first()?;
        let pairs = || body.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let mut set = RoaringBitmap::new();
        match *form {
            FORM_NUMBERS => set.extend(pairs()),
            FORM_RUNS => {
                let edges: Vec<u32> = pairs().collect();
                for run in edges.chunks_exact(2) {
                    set.insert_range(run[0]..=run[1]);
                }
            }
            FORM_WORDS => {
                let words = body.get(..CHUNK as usize / 8).unwrap_or(body);
                set = RoaringBitmap::from_lsb0_bytes(0, words);
            }
            _ => return None,
        }
        let set = Bitmap(set);
        (set.to_bytes() == bytes).then_some(set)
    }
}

/// Removes slots from each of these sets, and the sets that are then empty.
pub(crate) fn remove_from_all<K: Ord>(sets: &mut BTreeMap<K, Bitmap>, slots: &Bitmap) {
    sets.retain(|_, set| {
        set.remove(slots);
        !set.is_empty()
    });
}

const FORM_NUMBERS: u8 = 1;
const FORM_RUNS: u8 = 2;
const FORM_WORDS: u8 = 3;

impl FromIterator<u16> for Bitmap {
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> Bitmap {
        Bitmap(slots.into_iter().map(u32::from).collect())
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{")?;
        for (number, (first, last)) in self.runs().iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        write!(f, "}}")
    }
}

impl Serialize for Bitmap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Bitmap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bitmap, D::Error> {
        deserializer.deserialize_bytes(Canonical)
    }
}

/// Reads the canonical bytes without copying them.
struct Canonical;

impl Visitor<'_> for Canonical {
    type Value = Bitmap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of slots in its canonical form")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bitmap, E> {
        Bitmap::from_bytes(bytes).ok_or_else(|| E::invalid_value(Unexpected::Bytes(bytes), &self))
    }
}

#[cfg(test)]
mod tests;
