//! Blocks: rows as bytes, named by the hash of these bytes. Snapshots and the archive consist of them.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::form::Unreadable;
use crate::model::Hash;

/// A row: key bytes and value bytes. Keys are unique.
pub type Row = (Vec<u8>, Vec<u8>);

/// Maximum size of a block in bytes: a row that would exceed it begins a new block. Only a single larger row makes a
/// larger block, and the ledger limits its rows to 1 MiB (P24).
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Maximum size of a block with contents and lists of the archive: such a block fits into a log entry, so that a person
/// can be erased from it.
pub const LISTS_BYTES_MAX: usize = 1 << 19;

/// First bytes of each block.
const MAGIC: &[u8; 4] = b"RVC1";

/// Name and size of a block: rows of one leaf as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEntry {
    /// Name of the block: blake3 over all its bytes.
    pub hash: Hash,
    /// Size of the block in bytes.
    pub bytes: u64,
    /// Number of rows in the block.
    pub rows: u32,
}

/// The blocks of a leaf; empty until they are computed.
pub(crate) type LeafBlocks = OnceLock<Box<[BlockEntry]>>;
pub(crate) type LeafRows<'a> = Box<dyn Iterator<Item = Row> + 'a>;

/// A leaf of any table.
pub(crate) trait AnyLeaf: Send + Sync {
    /// Encodes the rows with the tag of their table, in the forms of this level.
    fn rows(&self, tag: u8, level: u32) -> LeafRows<'_>;
    fn blocks(&self) -> &LeafBlocks;
}

/// Encodes rows into blocks of at most `bytes_max`, in their order. A larger row is a block of its own.
pub(crate) fn pack_rows(rows: impl Iterator<Item = Row>, bytes_max: usize) -> Vec<(BlockEntry, Vec<u8>)> {
    let (mut packed, mut open, mut count) = (Vec::new(), Vec::new(), 0);
    let end = |open: &mut Vec<u8>, count: &mut u32, packed: &mut Vec<_>| {
        let (bytes, rows) = (std::mem::take(open), std::mem::take(count));
        packed.push((BlockEntry { hash: Hash::of(&bytes), bytes: bytes.len() as u64, rows }, bytes));
    };
    for (key, value) in rows {
        if count > 0 && open.len() + 16 + key.len() + value.len() > bytes_max {
            end(&mut open, &mut count, &mut packed);
        }
        if count == 0 {
            open.extend_from_slice(MAGIC);
        }
        for piece in [key, value] {
            open.extend_from_slice(&(piece.len() as u64).to_le_bytes());
            open.extend_from_slice(&piece);
        }
        count += 1;
    }
    if count > 0 {
        end(&mut open, &mut count, &mut packed);
    }
    packed
}

/// Returns the hash of a state with these blocks.
pub fn hash_of_blocks<'a>(blocks: impl IntoIterator<Item = &'a BlockEntry>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for block in blocks {
        hasher.update(&block.hash.0);
    }
    Hash(*hasher.finalize().as_bytes())
}

/// Returns the rows of a block, in order. Never panics, whatever the bytes are.
///
/// # Errors
/// The bytes are not a sequence of rows.
pub fn unpack_block(bytes: &[u8]) -> Result<Vec<Row>, Unreadable> {
    let torn = || Unreadable("a block is not a sequence of rows".to_owned());
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
