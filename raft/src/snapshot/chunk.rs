//! Chunks: some hundred rows as bytes, and the rule that ends a chunk.
//!
//! A chunk ends after a key whose hash has a certain form, not at a fixed position. So the same rows give the same
//! chunks, whatever changed elsewhere in the state. Pure: no files.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ChunkEntry, SnapshotError};
use crate::snapshot::Row;

/// Minimum size of a chunk in bytes. Exceptions are the last chunk, and a chunk before a row that does not fit into it.
const MIN_BYTES: usize = 64 << 10;
/// Average size of a chunk in bytes.
const AIM_BYTES: usize = 256 << 10;
/// Maximum size of a chunk in bytes: a row that would exceed it begins a new chunk. Only a single larger row makes a
/// larger chunk, and the ledger limits its rows to 1 MiB (P24).
pub const CHUNK_MAX_BYTES: usize = 1 << 20;

const _: () = assert!(MIN_BYTES < AIM_BYTES && AIM_BYTES < CHUNK_MAX_BYTES);

/// First bytes of each chunk file.
const MAGIC: &[u8; 4] = b"RVC1";

/// Name of a chunk: blake3 over all its bytes. Prints as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkHash(pub [u8; 32]);

impl ChunkHash {
    /// Returns the name of `bytes`.
    pub fn of(bytes: &[u8]) -> ChunkHash {
        ChunkHash(*blake3::hash(bytes).as_bytes())
    }

    /// Parses the printed form.
    pub(super) fn from_hex(text: &str) -> Option<ChunkHash> {
        blake3::Hash::from_hex(text).ok().map(|hash| ChunkHash(*hash.as_bytes()))
    }
}

impl fmt::Display for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A complete chunk.
pub(super) struct PackedChunk {
    pub(super) bytes: Vec<u8>,
    rows: u32,
}

impl PackedChunk {
    pub(super) fn entry(&self) -> ChunkEntry {
        ChunkEntry { hash: ChunkHash::of(&self.bytes), bytes: self.bytes.len() as u64, rows: self.rows }
    }
}

/// Packs ascending rows into chunks. For each row call `cut_before`, then `push`; at the end call `finish`. Each call
/// may return a complete chunk.
#[derive(Default)]
pub(super) struct ChunkPacker {
    open: Vec<u8>,
    rows: u32,
    last_key: Option<Vec<u8>>,
    seen: u64,
}

impl ChunkPacker {
    /// Ends the open chunk if this row would make it too large. Fails if the key is not above the former key.
    pub(super) fn cut_before(&mut self, key: &[u8], value: &[u8]) -> Result<Option<PackedChunk>, SnapshotError> {
        self.seen += 1;
        if self.last_key.as_deref().is_some_and(|last| last >= key) {
            return Err(SnapshotError::Unsorted { number: self.seen });
        }
        let too_large = self.rows > 0 && self.open.len() + row_bytes(key, value) > CHUNK_MAX_BYTES;
        Ok(if too_large { self.finish() } else { None })
    }

    /// Adds a row. Ends the chunk after it if the key is a boundary.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Option<PackedChunk> {
        if self.open.is_empty() {
            self.open.extend_from_slice(MAGIC);
        }
        for piece in [key, value] {
            self.open.extend_from_slice(&(piece.len() as u64).to_le_bytes());
            self.open.extend_from_slice(piece);
        }
        self.rows += 1;
        self.last_key = Some(key.to_vec());
        let ends = self.open.len() >= MIN_BYTES && is_bound(key, row_bytes(key, value));
        if ends { self.finish() } else { None }
    }

    /// Ends and returns the open chunk. `None` if it has no row.
    pub(super) fn finish(&mut self) -> Option<PackedChunk> {
        let rows = std::mem::take(&mut self.rows);
        let bytes = std::mem::take(&mut self.open);
        (rows > 0).then_some(PackedChunk { bytes, rows })
    }
}

fn row_bytes(key: &[u8], value: &[u8]) -> usize {
    16 + key.len() + value.len()
}

/// True if a chunk ends after this key, that is, if enough low bits of the key's hash are zero. The number of bits
/// depends on the size of the row, so that chunks get the average size. The row's size is rounded up to a power of two,
/// so that small growth moves no boundary.
fn is_bound(key: &[u8], row_bytes: usize) -> bool {
    let rows_aimed_at = (AIM_BYTES / row_bytes.next_power_of_two()).max(1);
    let hash = blake3::hash(key);
    let low = hash.as_bytes().first_chunk().map_or(0, |low: &[u8; 8]| u64::from_le_bytes(*low));
    low.trailing_zeros() >= rows_aimed_at.ilog2()
}

/// Returns the rows of a chunk, in order. Never panics, whatever the bytes are.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<Row>, SnapshotError> {
    let torn = || SnapshotError::damaged("a chunk is not a sequence of rows");
    let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(torn)?;
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let (key, after_key) = piece(rest).ok_or_else(torn)?;
        let (value, after_value) = piece(after_key).ok_or_else(torn)?;
        rows.push((key.to_vec(), value.to_vec()));
        rest = after_value;
    }
    Ok(rows)
}

fn piece(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}
