//! The bytes of the archive's chunks, between the entry that made them and the first durable snapshot with them (P24).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ChunkEntry;
use super::frozen::{FrozenPart, pack_rows};
use crate::model::{Hash, Ledger};

impl Ledger {
    /// Encodes all rows of `part`, a ledger without a head, into chunks of the archive.
    pub(crate) fn pack_part(&mut self, part: &Ledger) -> Vec<ChunkEntry> {
        // The first row is the head.
        let packed = pack_rows(part.all_rows().skip(1));
        let kept = packed.into_iter().map(|(chunk, bytes)| {
            self.derived.unsaved.insert(chunk.hash, bytes.into());
            chunk
        });
        kept.collect()
    }

    /// Returns the bytes of a chunk of the archive that no durable snapshot has yet.
    pub fn unsaved_chunk(&self, hash: &Hash) -> Option<Arc<[u8]>> {
        self.derived.unsaved.get(hash).cloned()
    }

    /// Size in bytes of the chunks of the archive that no durable snapshot has yet.
    pub fn unsaved_bytes(&self) -> usize {
        self.derived.unsaved.values().map(|bytes| bytes.len()).sum()
    }

    /// Forgets the bytes of these chunks: a durable snapshot names them. Also forgets those that no part names any more.
    pub fn forget_saved(&mut self, saved: &BTreeSet<Hash>) {
        self.derived.unsaved.retain(|hash, _| !saved.contains(hash));
        if !self.derived.unsaved.is_empty() {
            let named: BTreeSet<Hash> =
                self.parts.iter().flat_map(|(_, part)| part.all_chunks()).map(|chunk| chunk.hash).collect();
            self.derived.unsaved.retain(|hash, _| named.contains(hash));
        }
    }

    /// Returns the chunks of the archive.
    pub(super) fn frozen_parts(&self) -> Vec<FrozenPart> {
        let chunks = self.parts.iter().flat_map(|(_, part)| part.all_chunks());
        chunks.map(|chunk| FrozenPart { chunk: *chunk, bytes: self.unsaved_chunk(&chunk.hash) }).collect()
    }
}
