//! A frozen state: the rows of the ledger at one index, while `apply` goes on.
//!
//! Its leaves are shared with the ledger. Snapshots and the state hash encode a leaf once into blocks; the ledger keeps
//! their names until the leaf changes. So the cost of a snapshot or a hash depends on the changed leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::{AnyLeaf, BLOCK_BYTES_MAX, BlockEntry, hash_of_blocks, pack_rows};
use super::rows::TABLES;
use super::table::Table;
use crate::model::{ArchivePart, ArchivePartKey, Hash};

/// One leaf of a frozen state.
#[derive(Clone)]
pub struct FrozenLeaf {
    pub(super) tag: u8,
    pub(super) level: u32,
    pub(super) leaf: Arc<dyn AnyLeaf>,
}

impl FrozenLeaf {
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
        let packed = pack_rows(self.leaf.rows(self.tag, self.level), BLOCK_BYTES_MAX);
        // Two readers may compute the same blocks.
        let _ = self.leaf.blocks().set(packed.iter().map(|(block, _)| *block).collect());
        packed
    }
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
#[derive(Clone, Default)]
pub struct FrozenState {
    pub(super) leaves: Vec<FrozenLeaf>,
    pub(super) archive: FrozenArchive,
}

/// The parts of the archive, and the bytes of its blocks that no durable snapshot has yet.
#[derive(Clone, Default)]
pub(super) struct FrozenArchive {
    pub parts: Table<ArchivePartKey, ArchivePart>,
    pub unsaved: BTreeMap<Hash, Arc<[u8]>>,
}

impl FrozenState {
    pub(super) fn with_archive(self, archive: FrozenArchive) -> FrozenState {
        FrozenState { archive, ..self }
    }

    pub(crate) fn add(&mut self, tag: u8, level: u32, leaves: impl Iterator<Item = Arc<dyn AnyLeaf>>) {
        self.leaves.extend(leaves.map(|leaf| FrozenLeaf { tag, level, leaf }));
    }

    /// Returns the leaves, in the order of their rows.
    pub fn leaves(&self) -> &[FrozenLeaf] {
        &self.leaves
    }

    /// Returns the blocks of the archive, in no order; some may come twice. The hash of the state has their names by
    /// the rows of the table `parts`.
    pub fn archive(&self) -> impl Iterator<Item = FrozenBlock> {
        let blocks = self.archive.parts.iter().flat_map(|(_, part)| part.all_blocks());
        blocks.map(|block| FrozenBlock { block: *block, bytes: self.archive.unsaved.get(&block.hash).cloned() })
    }

    /// Returns the bytes of blocks of the archive that were in memory.
    pub(super) fn unsaved(&self) -> &BTreeMap<Hash, Arc<[u8]>> {
        &self.archive.unsaved
    }

    /// True if the bytes of a block of the archive were in memory.
    pub fn has_unsaved(&self) -> bool {
        !self.archive.unsaved.is_empty()
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
