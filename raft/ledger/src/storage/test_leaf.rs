//! Frozen states of any rows, for tests of snapshots.

use std::sync::Arc;

use super::block::{AnyLeaf, LeafBlocks, LeafRows, Row};
use super::frozen::{FrozenArchive, FrozenBlock, FrozenLeaf, FrozenState};
use crate::model::{ArchivePart, ArchivePartKey, PartContent, RunId, Time};

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

impl FrozenLeaf {
    /// Makes a leaf of any rows.
    #[doc(hidden)]
    pub fn of_rows(rows: Vec<Row>) -> FrozenLeaf {
        let leaf = Arc::new(TestLeaf { rows, blocks: LeafBlocks::default() });
        FrozenLeaf { tag: 0, level: 0, leaf }
    }
}

impl FrozenState {
    /// Makes a state of these leaves.
    #[doc(hidden)]
    pub fn of_leaves(leaves: Vec<FrozenLeaf>) -> FrozenState {
        FrozenState { leaves, ..FrozenState::default() }
    }

    /// Adds these blocks of the archive.
    #[doc(hidden)]
    pub fn with_blocks(self, blocks: &[FrozenBlock]) -> FrozenState {
        let mut archive = FrozenArchive::default();
        for (place, FrozenBlock { block, bytes }) in (0..).zip(blocks) {
            let key = ArchivePartKey { index: 1, place };
            let run = RunId { index: key.index, place };
            let part = ArchivePart {
                details: vec![*block],
                summaries: Vec::new(),
                content: PartContent::Runs { first: run, last: run, count: 1, from: Time(0), to: Time(0) },
                tenants: Vec::new(),
                details_until: Time(0),
                summaries_until: Time(0),
                lost_at: None,
            };
            archive.parts.put(key, part);
            archive.unsaved.extend(bytes.clone().map(|bytes| (block.hash, bytes)));
        }
        self.with_archive(archive)
    }
}
