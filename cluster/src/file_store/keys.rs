//! Finds repeated address keys in a very long list: no list may contain one recipient twice (P20).
//!
//! The client that makes parts of a list calls it to leave out repeated keys; the node that seals an audience refuses
//! them. Memory is bounded, whatever the length of the list. A mark is 16 bytes of a key's hash and the key's position.
//! Marks are kept in 256 buckets by the first byte, and all buckets are written to an unnamed file when there are too
//! many. Equal keys are in one bucket, and one bucket at a time is read back and sorted. Marks that repeat within
//! memory are not written, so that a million equal keys become a mark or two.
//!
//! No key itself is kept. Two keys with equal 128 bits of blake3 do not occur in practice.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// Maximum number of marks in memory: 20 MiB.
const HELD_MAX: usize = 1024 * 1024;
const BUCKETS: usize = 256;
/// Bytes of a mark in the file.
const MARK: usize = 16 + 4;

/// A key's hash, and its position in the list.
type Mark = ([u8; 16], u32);

/// The keys of a list, in order.
pub struct Keys {
    buckets: Vec<Vec<Mark>>,
    held: usize,
    held_max: usize,
    rows: u32,
    folder: PathBuf,
    spilled: Option<Spilled>,
    repeats: Repeats,
}

/// Marks that were written to a file.
struct Spilled {
    file: File,
    length: u64,
    /// For each bucket: offset and length in bytes of its pieces in the file.
    pieces: Vec<Vec<(u64, usize)>>,
}

/// Positions in a list whose key is also at an earlier position.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    positions: Vec<u64>,
    count: u32,
    first: Option<(u32, u32)>,
}

impl Keys {
    /// Returns an empty list. If it becomes very long, a file in `folder` holds 20 bytes for each key.
    pub fn new(folder: PathBuf) -> Keys {
        Keys::with_memory(folder, HELD_MAX)
    }

    fn with_memory(folder: PathBuf, held_max: usize) -> Keys {
        let (buckets, repeats) = (vec![Vec::new(); BUCKETS], Repeats::default());
        Keys { buckets, held: 0, held_max, rows: 0, folder, spilled: None, repeats }
    }

    /// Returns the bytes that `rows` keys need in the folder; zero for few keys.
    pub fn bytes(rows: u32) -> u64 {
        if (rows as usize) < HELD_MAX { 0 } else { u64::from(rows) * MARK as u64 }
    }

    /// Adds the key at the next position.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if there are more keys than a `u32` can count.
    pub fn push(&mut self, key: &str) -> io::Result<()> {
        let hash = blake3::hash(key.as_bytes());
        let Some(hash) = hash.as_bytes().first_chunk::<16>() else { return Ok(()) };
        self.buckets[usize::from(hash[0])].push((*hash, self.rows));
        self.rows = self.rows.checked_add(1).ok_or_else(|| io::Error::other("too many rows to be counted"))?;
        self.held += 1;
        if self.held >= self.held_max { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            None => {
                let file = tempfile::tempfile_in(&self.folder)?;
                self.spilled.insert(Spilled { file, length: 0, pieces: vec![Vec::new(); BUCKETS] })
            }
        };
        for (bucket, pieces) in self.buckets.iter_mut().zip(&mut spilled.pieces) {
            self.repeats.take_from(bucket);
            let mut bytes = Vec::with_capacity(bucket.len() * MARK);
            for (hash, position) in bucket.drain(..) {
                bytes.extend_from_slice(&hash);
                bytes.extend_from_slice(&position.to_le_bytes());
            }
            spilled.file.write_all(&bytes)?;
            pieces.push((spilled.length, bytes.len()));
            spilled.length += bytes.len() as u64;
        }
        self.held = 0;
        Ok(())
    }

    /// Returns which keys repeat an earlier one. Called after all keys were added.
    ///
    /// # Errors
    /// Fails if the file cannot be read back.
    pub fn repeats(mut self) -> io::Result<Repeats> {
        let mut repeats = std::mem::take(&mut self.repeats);
        for (number, mut bucket) in std::mem::take(&mut self.buckets).into_iter().enumerate() {
            if let Some(spilled) = &self.spilled {
                spilled.read(number, &mut bucket)?;
            }
            repeats.take_from(&mut bucket);
        }
        Ok(repeats)
    }
}

impl Spilled {
    fn read(&self, bucket: usize, into: &mut Vec<Mark>) -> io::Result<()> {
        for (start, length) in &self.pieces[bucket] {
            let mut bytes = vec![0; *length];
            self.file.read_exact_at(&mut bytes, *start)?;
            into.extend(bytes.chunks_exact(MARK).filter_map(|mark| {
                let (hash, position) = (mark.first_chunk::<16>()?, mark.last_chunk::<4>()?);
                Some((*hash, u32::from_le_bytes(*position)))
            }));
        }
        Ok(())
    }
}

impl Repeats {
    /// Records the marks that repeat an earlier one, and removes them from `marks`.
    fn take_from(&mut self, marks: &mut Vec<Mark>) {
        marks.sort_unstable();
        marks.dedup_by(|(hash, position), (known, first)| {
            let again = hash == known;
            if again {
                self.record(*first, *position);
            }
            again
        });
    }

    fn record(&mut self, first: u32, position: u32) {
        let word = (position / 64) as usize;
        if word >= self.positions.len() {
            self.positions.resize(word + 1, 0);
        }
        self.positions[word] |= 1 << (position % 64);
        self.count += 1;
        if self.first.is_none_or(|(_, known)| position < known) {
            self.first = Some((first, position));
        }
    }

    /// Returns true if the key at this position repeats an earlier one.
    pub fn contains(&self, position: u32) -> bool {
        self.positions.get((position / 64) as usize).is_some_and(|word| word & 1 << (position % 64) != 0)
    }

    /// Returns the number of repeated positions.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the first repeated position, after the position of the key that it repeats.
    pub fn first(&self) -> Option<(u32, u32)> {
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The result equals that of a set, whether all marks fit into memory or none do.
        #[test]
        fn repeated_addresses_match_those_of_a_set(keys in prop::collection::vec(0_u16..90, 0..400), held in 1_usize..500) {
            let mut marks = Keys::with_memory(std::env::temp_dir(), held);
            let mut seen: BTreeMap<u16, u32> = BTreeMap::new();
            let mut expected: Vec<(u32, u32)> = Vec::new();
            for (position, key) in (0..).zip(&keys) {
                marks.push(&format!("r{key}@example.com")).expect("a file");
                match seen.get(key) {
                    Some(first) => expected.push((*first, position)),
                    None => drop(seen.insert(*key, position)),
                }
            }
            let repeats = marks.repeats().expect("it reads back");
            let found: Vec<u32> = (0..keys.len() as u32 + 70).filter(|position| repeats.contains(*position)).collect();
            prop_assert_eq!(found, expected.iter().map(|(_, position)| *position).collect::<Vec<_>>());
            prop_assert_eq!(repeats.count() as usize, expected.len());
            prop_assert_eq!(repeats.first(), expected.first().copied());
        }
    }

    #[test]
    fn ten_thousand_equal_keys_are_one() {
        let mut marks = Keys::with_memory(std::env::temp_dir(), 1_000);
        (0..10_000).for_each(|_| marks.push("ann@example.com").expect("a file"));
        assert!(marks.spilled.as_ref().is_some_and(|spilled| spilled.length <= 10 * MARK as u64), "a mark each time");
        let repeats = marks.repeats().expect("it reads back");
        assert_eq!((repeats.count(), repeats.first(), repeats.contains(0)), (9_999, Some((0, 1)), false));
    }

    #[test]
    fn missing_folder_is_an_error() {
        let mut marks = Keys::with_memory(PathBuf::from("/nowhere/at/all"), 2);
        assert!(marks.push("a@b.c").is_ok() && marks.push("b@b.c").is_err());
    }
}
