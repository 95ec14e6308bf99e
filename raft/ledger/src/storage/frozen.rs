//! A frozen state: the rows of the ledger at one index, while `apply` goes on.
//!
//! Its leaves are shared with the ledger. Snapshots and the state hash encode a leaf once into blocks; the ledger keeps
//! their names until the leaf changes. So the cost of a snapshot or a hash depends on the changed leaves.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::form::Unreadable;
use super::rows::TABLES;
use crate::model::Hash;

/// A row: key bytes and value bytes. Keys are unique.
pub type Row = (Vec<u8>, Vec<u8>);

/// Maximum size of a block in bytes: a row that would exceed it begins a new block. Only a single larger row makes a
/// larger block, and the ledger limits its rows to 1 MiB (P24).
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

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

/// One leaf of a frozen state.
#[derive(Clone)]
pub struct FrozenLeaf {
    tag: u8,
    level: u32,
    leaf: Arc<dyn AnyLeaf>,
}

impl FrozenLeaf {
    /// Makes a leaf of any rows. For tests of snapshots.
    #[doc(hidden)]
    pub fn of_rows(rows: Vec<Row>) -> FrozenLeaf {
        let leaf = Arc::new(TestLeaf { rows, blocks: LeafBlocks::default() });
        FrozenLeaf { tag: 0, level: 0, leaf }
    }

    /// Returns the leaf's blocks, if they have been computed since its last change.
    pub fn known_blocks(&self) -> Option<&[BlockEntry]> {
        self.leaf.blocks().get().map(|blocks| &**blocks)
    }

    /// Returns the leaf's blocks, in the order of their rows.
    pub fn blocks(&self) -> &[BlockEntry] {
        if self.known_blocks().is_none() {
            self.pack();
        }
        self.known_blocks().unwrap_or_default()
    }

    /// Encodes the leaf into blocks, and remembers their names.
    pub fn pack(&self) -> Vec<(BlockEntry, Vec<u8>)> {
        let packed = pack_rows(self.leaf.rows(self.tag, self.level));
        // Two readers may compute the same blocks.
        let _ = self.leaf.blocks().set(packed.iter().map(|(block, _)| *block).collect());
        packed
    }
}

/// Encodes rows into blocks, in their order.
pub(crate) fn pack_rows(rows: impl Iterator<Item = Row>) -> Vec<(BlockEntry, Vec<u8>)> {
    let (mut packed, mut open, mut count) = (Vec::new(), Vec::new(), 0);
    let end = |open: &mut Vec<u8>, count: &mut u32, packed: &mut Vec<_>| {
        let (bytes, rows) = (std::mem::take(open), std::mem::take(count));
        packed.push((BlockEntry { hash: Hash::of(&bytes), bytes: bytes.len() as u64, rows }, bytes));
    };
    for (key, value) in rows {
        if count > 0 && open.len() + 16 + key.len() + value.len() > BLOCK_BYTES_MAX {
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

/// A block of the archive.
#[derive(Clone, Debug)]
pub struct FrozenBlock {
    /// Name and size of the block.
    pub block: BlockEntry,
    /// Its bytes; `None` if a durable snapshot has named it.
    pub bytes: Option<Arc<[u8]>>,
}

/// Number of rows of a table, and their size in bytes as snapshots store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    /// Number of rows.
    pub rows: u64,
    /// Size of all rows in bytes.
    pub bytes: u64,
}

/// The state at one index.
#[derive(Clone)]
pub struct FrozenState {
    leaves: Vec<FrozenLeaf>,
    archive: Vec<FrozenBlock>,
}

impl FrozenState {
    /// Makes a state of these leaves.
    #[doc(hidden)]
    pub fn of_leaves(leaves: Vec<FrozenLeaf>) -> FrozenState {
        FrozenState { leaves, archive: Vec::new() }
    }

    /// Adds the blocks of the archive.
    #[doc(hidden)]
    pub fn with_archive(self, archive: Vec<FrozenBlock>) -> FrozenState {
        FrozenState { archive, ..self }
    }

    pub(crate) fn add(&mut self, tag: u8, level: u32, leaves: impl Iterator<Item = Arc<dyn AnyLeaf>>) {
        self.leaves.extend(leaves.map(|leaf| FrozenLeaf { tag, level, leaf }));
    }

    /// Returns the leaves, in the order of their rows.
    pub fn leaves(&self) -> &[FrozenLeaf] {
        &self.leaves
    }

    /// Returns the blocks of the archive. The hash of the state has their names by the rows of the table `parts`.
    pub fn archive(&self) -> &[FrozenBlock] {
        &self.archive
    }

    /// Returns the size of each table, by the table's name. It reads the blocks only, so it is cheap after
    /// [`FrozenState::hash`].
    pub fn table_sizes(&self) -> BTreeMap<&'static str, TableSize> {
        let mut sizes: BTreeMap<u8, TableSize> = BTreeMap::new();
        for leaf in &self.leaves {
            let size = sizes.entry(leaf.tag).or_default();
            for block in leaf.blocks() {
                size.rows += u64::from(block.rows);
                size.bytes += block.bytes;
            }
        }
        TABLES.iter().map(|(tag, name)| (*name, sizes.remove(tag).unwrap_or_default())).collect()
    }

    /// Returns the hash of the state: equal on every replica at an equal index (I11). Encodes the leaves that have
    /// changed since they were last encoded.
    pub fn hash(&self) -> Hash {
        hash_of_blocks(self.leaves.iter().flat_map(FrozenLeaf::blocks))
    }
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

struct TestLeaf {
    rows: Vec<Row>,
    blocks: LeafBlocks,
}

impl AnyLeaf for TestLeaf {
    fn rows(&self, _tag: u8, _level: u32) -> LeafRows<'_> {
        Box::new(self.rows.iter().cloned())
    }

    fn blocks(&self) -> &LeafBlocks {
        &self.blocks
    }
}
