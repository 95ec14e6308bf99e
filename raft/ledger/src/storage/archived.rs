//! The bytes of the archive's blocks, between the entry that made them and the first durable snapshot with them (P24).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::block::{BlockEntry, pack_rows};
use super::frozen::FrozenArchive;
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

    /// Forgets the bytes of these blocks: a durable snapshot names them.
    pub fn forget_saved(&mut self, saved: &BTreeSet<Hash>) {
        self.derived.unsaved.retain(|hash, _| !saved.contains(hash));
    }

    /// Forgets the bytes of blocks that were removed from their part. No other part has them: a run is in one part.
    pub(crate) fn forget_removed(&mut self, removed: Vec<BlockEntry>) {
        for block in removed {
            self.derived.unsaved.remove(&block.hash);
        }
    }

    /// Returns the archive as it is now. It shares the rows of its parts with the ledger.
    pub(super) fn frozen_archive(&self) -> FrozenArchive {
        FrozenArchive { parts: self.parts.clone(), unsaved: self.derived.unsaved.clone() }
    }
}
