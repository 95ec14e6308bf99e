//! Checks and repairs the files at rest of a replica: the log, the snapshots and the archive. Called by the scrub of
//! the node, which decides when and how fast.
//!
//! A check reads the disk, and not the system's memory. A damaged file is needed only at a start, or by a peer, so the
//! node goes on. New snapshots replace a damaged snapshot, and also a damaged segment of the log: what is applied is in
//! the snapshots, and the log before the oldest one is purged. A damaged block of the archive is fetched from a peer.

use std::collections::BTreeSet;

use reveille_ledger::blocks_of_parts;
use reveille_ledger::ids::Hash;

use crate::file_damage::FileDamage;
use crate::replica::Replica;
use crate::snapshot::SnapshotError;
use crate::wal::{CheckedPiece, CheckedTo, segment_name};

/// A file that is written once and read when it is needed. It is shown as its path in the data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub enum FileAtRest {
    /// A segment of the log, by its number.
    #[display("wal/{}", segment_name(*_0))]
    LogSegment(u64),
    /// The manifest of a snapshot, by its log index.
    #[display("snapshots/{_0:020}.manifest")]
    SnapshotManifest(u64),
    /// A block of a snapshot.
    #[display("snapshots/blocks/{_0}")]
    StateBlock(Hash),
    /// A block of the archive.
    #[display("snapshots/blocks/{_0}")]
    ArchiveBlock(Hash),
}

impl From<SnapshotError> for FileDamage {
    fn from(error: SnapshotError) -> FileDamage {
        match error {
            SnapshotError::Damaged { what } => FileDamage::Changed(what),
            SnapshotError::Missing { .. } => FileDamage::Missing,
            error => FileDamage::Unreadable(error.to_string()),
        }
    }
}

impl Replica {
    /// Returns the files at rest that this replica needs.
    pub fn files_at_rest(&self) -> Vec<FileAtRest> {
        let segments = self.inner.log.segments().into_iter().map(FileAtRest::LogSegment);
        let kept = self.inner.snapshots.kept();
        let manifests = kept.iter().map(|manifest| FileAtRest::SnapshotManifest(manifest.index));
        let state: BTreeSet<Hash> = kept.iter().flat_map(|kept| &kept.blocks).map(|block| block.hash).collect();
        let (parts, unsaved) = self.read(|ledger| (ledger.parts().clone(), ledger.unsaved_blocks()));
        let archive: BTreeSet<Hash> = blocks_of_parts(&parts).filter(|hash| !unsaved.contains(hash)).collect();
        let blocks = state.into_iter().map(FileAtRest::StateBlock);
        segments.chain(manifests).chain(blocks).chain(archive.into_iter().map(FileAtRest::ArchiveBlock)).collect()
    }

    /// Checks a piece of a file from `from` on. A file that is not needed any more is intact. Blocks on the disk.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn check_at_rest(&self, file: FileAtRest, from: CheckedTo) -> Result<CheckedPiece, FileDamage> {
        let folder = self.inner.snapshots.folder();
        let bytes = match file {
            FileAtRest::LogSegment(number) => return self.inner.log.check_segment(number, from),
            FileAtRest::SnapshotManifest(index) => folder.check_manifest(index),
            FileAtRest::StateBlock(hash) | FileAtRest::ArchiveBlock(hash) => folder.check_block(hash),
        };
        match bytes {
            Err(error) if self.needs(file) => Err(error.into()),
            bytes => Ok(CheckedPiece { bytes: bytes.unwrap_or(0), next: None }),
        }
    }

    /// Returns true if the file is not garbage.
    fn needs(&self, file: FileAtRest) -> bool {
        let kept = self.inner.snapshots.kept();
        match file {
            FileAtRest::LogSegment(number) => self.inner.log.segments().contains(&number),
            FileAtRest::SnapshotManifest(index) => kept.iter().any(|manifest| manifest.index == index),
            FileAtRest::StateBlock(hash) => {
                kept.iter().flat_map(|manifest| &manifest.blocks).any(|block| block.hash == hash)
            }
            FileAtRest::ArchiveBlock(hash) => {
                let parts = self.read(|ledger| ledger.parts().clone());
                blocks_of_parts(&parts).any(|named| named == hash)
            }
        }
    }

    /// Returns the file of a block of a snapshot or of the archive as it is on this disk, checked. Begins the repair of
    /// one that is missing or damaged, so a later call succeeds. Blocks on the disk.
    pub fn block_file(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        let read = self.inner.snapshots.folder().read_block_file(hash);
        if matches!(read, Err(SnapshotError::Missing { .. } | SnapshotError::Damaged { .. })) {
            let files = [FileAtRest::StateBlock(hash), FileAtRest::ArchiveBlock(hash)];
            files.into_iter().filter(|file| self.needs(*file)).for_each(|file| self.repair(file));
        }
        read
    }

    /// Begins the repair of a damaged file, which is done when the file is intact or gone.
    pub fn repair(&self, file: FileAtRest) {
        match file {
            FileAtRest::LogSegment(number) => {
                self.inner.log.end_segment(number);
                self.inner.snapshots.replace_kept();
            }
            FileAtRest::SnapshotManifest(_) | FileAtRest::StateBlock(_) => self.inner.snapshots.replace_kept(),
            FileAtRest::ArchiveBlock(hash) => self.inner.snapshots.folder().mark_missing(hash),
        }
    }
}
