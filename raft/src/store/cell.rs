//! A row in the tree: one or more cells of at most 4 KiB, each with its own check; and the meta cell, which has the caller's
//! blob and a check over all cells.
//!
//! Cells bound the size of a leaf: sled keeps up to 16 values in a leaf, rewrites the leaf as one message, and moves a message
//! above 128 KiB to a synced file of its own.
//!
//! The hash of a cell detects a changed bit. Count and sum of all hashes detect a missing cell and an old version of a cell.
//! Pure encoding: no tree, no files.

use serde::{Deserialize, Serialize};

use super::{Row, StoreError};

/// Payload bytes in a cell, at most.
pub(super) const CELL_BYTES: usize = 4096;

/// Key of the meta cell. All other keys start with [`ROW`], so it is the first of the tree.
pub(super) const META_KEY: &[u8] = &[0];
const ROW: u8 = 1;
const HASH_BYTES: usize = 8;
const COUNT_BYTES: usize = 4;

/// Check of one cell: the first eight bytes of blake3 over key and payload. It guards against accidents, not against
/// forgery.
pub(super) type CellHash = u64;

/// Count and sum (modulo 2^64) of the hashes of all cells but the meta cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CellTotals {
    cells: u64,
    sum: u64,
}

impl CellTotals {
    pub(super) fn add(&mut self, hash: CellHash) {
        self.cells = self.cells.wrapping_add(1);
        self.sum = self.sum.wrapping_add(hash);
    }

    pub(super) fn subtract(&mut self, hash: CellHash) {
        self.cells = self.cells.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(hash);
    }
}

/// The meta cell.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MetaCell {
    /// A write in several batches began and did not end: the rows are a mix.
    Unfinished,
    /// The rows are whole.
    Whole {
        /// Over all other cells.
        totals: CellTotals,
        /// The caller's.
        blob: Vec<u8>,
    },
}

impl MetaCell {
    pub(super) fn to_value(&self) -> Result<Vec<u8>, StoreError> {
        let payload = postcard::to_stdvec(self)
            .map_err(|error| StoreError::damaged(format!("the meta row cannot be written: {error}")))?;
        Ok(seal(META_KEY, &payload).1)
    }

    pub(super) fn from_value(value: &[u8]) -> Result<MetaCell, StoreError> {
        let (_, payload) = unseal(META_KEY, value)?;
        postcard::from_bytes(payload).map_err(|_| StoreError::damaged("the meta row cannot be read"))
    }
}

/// Key of part number `part` of the row `key`. Rows sort by length first; parts of a row are neighbours.
pub(super) fn cell_key(key: &[u8], part: u32) -> Vec<u8> {
    let mut cell_key = Vec::with_capacity(1 + 4 + key.len() + 4);
    cell_key.push(ROW);
    cell_key.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes());
    cell_key.extend_from_slice(key);
    cell_key.extend_from_slice(&part.to_be_bytes());
    cell_key
}

fn split_cell_key(cell_key: &[u8]) -> Option<(&[u8], u32)> {
    let (kind, rest) = cell_key.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (key, part) = rest.split_last_chunk::<4>()?;
    let whole = *kind == ROW && usize::try_from(u32::from_be_bytes(*length)) == Ok(key.len());
    whole.then_some((key, u32::from_be_bytes(*part)))
}

/// A cell, ready for the tree.
pub(super) struct Cell {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) hash: CellHash,
}

/// The cells of a row. The first one starts with their number; an empty value has one cell.
pub(super) fn cells<'a>(key: &'a [u8], value: &'a [u8]) -> impl Iterator<Item = Cell> + 'a {
    let count = u32::try_from(value.len().div_ceil(CELL_BYTES).max(1)).unwrap_or(u32::MAX);
    (0..count).map(move |part| {
        let from = part as usize * CELL_BYTES;
        let piece = value.get(from..value.len().min(from + CELL_BYTES)).unwrap_or_default();
        let mut payload = Vec::with_capacity(COUNT_BYTES + piece.len());
        if part == 0 {
            payload.extend_from_slice(&count.to_le_bytes());
        }
        payload.extend_from_slice(piece);
        let key = cell_key(key, part);
        let (hash, value) = seal(&key, &payload);
        Cell { key, value, hash }
    })
}

fn hash_of(cell_key: &[u8], payload: &[u8]) -> CellHash {
    // A cell key says its own length, so key and payload cannot be confused.
    let mut hasher = blake3::Hasher::new();
    hasher.update(cell_key).update(payload);
    hasher.finalize().as_bytes().first_chunk().map_or(0, |first: &[u8; HASH_BYTES]| u64::from_le_bytes(*first))
}

fn seal(cell_key: &[u8], payload: &[u8]) -> (CellHash, Vec<u8>) {
    let hash = hash_of(cell_key, payload);
    let mut value = Vec::with_capacity(HASH_BYTES + payload.len());
    value.extend_from_slice(&hash.to_le_bytes());
    value.extend_from_slice(payload);
    (hash, value)
}

fn unseal<'a>(cell_key: &[u8], value: &'a [u8]) -> Result<(CellHash, &'a [u8]), StoreError> {
    let (hash, payload) =
        value.split_first_chunk::<HASH_BYTES>().ok_or_else(|| StoreError::damaged("a row is too short"))?;
    let hash = u64::from_le_bytes(*hash);
    if hash != hash_of(cell_key, payload) {
        return Err(StoreError::damaged("a row fails its check"));
    }
    Ok((hash, payload))
}

/// Hash of a cell that is there, and, when it is the first of its row, the number of cells of that row.
pub(super) fn inspect(cell_key: &[u8], value: &[u8]) -> Result<(CellHash, u32), StoreError> {
    let (hash, payload) = unseal(cell_key, value)?;
    let count = payload.first_chunk::<COUNT_BYTES>().map_or(0, |count| u32::from_le_bytes(*count));
    Ok((hash, count))
}

/// Puts the rows together again from their cells, which come in the order of the tree, and checks everything.
#[derive(Default)]
pub(super) struct RowAssembly {
    rows: Vec<Row>,
    totals: CellTotals,
    /// Parts of the last row: those that came, and those that must come.
    came: u32,
    expected: u32,
}

impl RowAssembly {
    pub(super) fn push(&mut self, cell_key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let (key, part) = split_cell_key(cell_key).ok_or_else(|| StoreError::damaged("a row has an unreadable key"))?;
        let (hash, payload) = unseal(cell_key, value)?;
        self.totals.add(hash);
        if part == 0 {
            self.finish_row()?;
            let (count, piece) =
                payload.split_first_chunk::<COUNT_BYTES>().ok_or_else(|| StoreError::damaged("a row has no length"))?;
            (self.came, self.expected) = (1, u32::from_le_bytes(*count));
            self.rows.push((key.to_vec(), piece.to_vec()));
            return Ok(());
        }
        match self.rows.last_mut() {
            Some((last, value)) if last == key && part == self.came => value.extend_from_slice(payload),
            _ => return Err(StoreError::damaged("a part of a row is missing")),
        }
        self.came += 1;
        Ok(())
    }

    fn finish_row(&self) -> Result<(), StoreError> {
        if self.came != self.expected {
            return Err(StoreError::damaged("the last part of a row is missing"));
        }
        Ok(())
    }

    /// All rows ascending by key, if they are exactly those that `totals` were counted over.
    pub(super) fn finish(self, totals: CellTotals) -> Result<Vec<Row>, StoreError> {
        self.finish_row()?;
        if self.totals != totals {
            return Err(StoreError::damaged(format!(
                "{} row parts are there where {} were written, or some are out of date",
                self.totals.cells, totals.cells
            )));
        }
        let mut rows = self.rows;
        rows.sort_unstable();
        Ok(rows)
    }
}
