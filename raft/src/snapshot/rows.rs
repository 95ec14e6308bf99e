//! Reads a snapshot back, row by row.

use std::collections::VecDeque;

use reveille_ledger::storage::{BlockEntry, Row, unpack_block};

use super::block_folder::BlockFolder;
use super::{Manifest, SnapshotError};

/// Iterator over the rows of a snapshot; see [`super::Snapshots::read`].
pub struct SnapshotRows<'a> {
    folder: &'a BlockFolder,
    blocks: VecDeque<BlockEntry>,
    open: std::vec::IntoIter<Row>,
    last_key: Option<Vec<u8>>,
}

impl SnapshotRows<'_> {
    pub(super) fn new<'a>(folder: &'a BlockFolder, manifest: &Manifest) -> SnapshotRows<'a> {
        let blocks = manifest.blocks.iter().copied().collect();
        SnapshotRows { folder, blocks, open: Vec::new().into_iter(), last_key: None }
    }

    /// Reads a block. Fails if it does not match its entry or if its keys do not continue the ascending order.
    fn enter(&mut self, entry: BlockEntry) -> Result<(), SnapshotError> {
        let rows = unpack_block(&self.folder.read(entry.hash)?).map_err(|error| SnapshotError::damaged(error.0))?;
        if rows.len() as u64 != u64::from(entry.rows) {
            return Err(SnapshotError::damaged(format!("block {} has another number of rows", entry.hash)));
        }
        let keys = rows.iter().map(|(key, _)| key);
        if !self.last_key.iter().chain(keys).is_sorted_by(|one, next| one < next) {
            return Err(SnapshotError::damaged(format!("block {} is out of order", entry.hash)));
        }
        self.last_key = rows.last().map(|(key, _)| key.clone()).or(self.last_key.take());
        self.open = rows.into_iter();
        Ok(())
    }
}

impl Iterator for SnapshotRows<'_> {
    type Item = Result<Row, SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.open.next() {
                return Some(Ok(row));
            }
            let entry = self.blocks.pop_front()?;
            if let Err(error) = self.enter(entry) {
                self.blocks.clear();
                return Some(Err(error));
            }
        }
    }
}
