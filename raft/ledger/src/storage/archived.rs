//! The bytes of the archive's blocks, between the entry that made them and the first durable snapshot with them (P24).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::BlockEntry;
use super::frozen::{FrozenBlock, pack_rows};
use crate::model::{Hash, Ledger};

impl Ledger {
    /// Encodes all rows of `part`, a ledger whose head is empty, into blocks of the archive.
    pub(crate) fn pack_part(&mut self, part: &Ledger) -> Vec<BlockEntry> {
        // The first row is the head, which is not stored.
        let packed = pack_rows(part.all_rows().skip(1));
        let kept = packed.into_iter().map(|(block, bytes)| {
            self.derived.unsaved.insert(block.hash, bytes.into());
            block
        });
        kept.collect()
    }

    /// Returns the bytes of a block of the archive that no durable snapshot has yet.
    pub fn unsaved_block(&self, hash: &Hash) -> Option<Arc<[u8]>> {
        self.derived.unsaved.get(hash).cloned()
    }

    /// Size in bytes of the blocks of the archive that no durable snapshot has yet.
    pub fn unsaved_bytes(&self) -> usize {
        self.derived.unsaved.values().map(|bytes| bytes.len()).sum()
    }

    /// Forgets the bytes of these blocks: a durable snapshot names them. Also forgets those that no part names any
    /// more.
    pub fn forget_saved(&mut self, saved: &BTreeSet<Hash>) {
        self.derived.unsaved.retain(|hash, _| !saved.contains(hash));
        if !self.derived.unsaved.is_empty() {
            let named: BTreeSet<Hash> =
                self.parts.iter().flat_map(|(_, part)| part.all_blocks()).map(|block| block.hash).collect();
            self.derived.unsaved.retain(|hash, _| named.contains(hash));
        }
    }

    /// Returns the blocks of the archive.
    pub(super) fn archive_blocks(&self) -> Vec<FrozenBlock> {
        let blocks = self.parts.iter().flat_map(|(_, part)| part.all_blocks());
        blocks.map(|block| FrozenBlock { block: *block, bytes: self.unsaved_block(&block.hash) }).collect()
    }
}
