//! Snapshots on disk: whole states of the ledger. A node starts from one and replays the log after it.
//!
//! A snapshot is a manifest and many blocks. A block is an immutable compressed file, named by the hash of its bytes:
//! the rows of a leaf of the ledger, or of a part of its archive. Snapshots share blocks, so a new one writes only what
//! changed, and a follower fetches only what it lacks.
//!
//! `snapshots/blocks/<64 hex digits>` has rows; `snapshots/<log index, 20 digits>.manifest` has the list of blocks.
//!
//! Invariants: after [`Snapshots::build`] or [`Snapshots::install`] returns, the snapshot survives a power cut (blocks
//! are synced first, the manifest last). Damage is found before a row is used. A crash leaves the former snapshots
//! intact. Every method blocks on the disk. `manager` decides when to build, `transfer` sends to followers,
//! `fetch` replaces lost ones at a start.

mod block_folder;
mod error;
pub(crate) mod fetch;
mod files;
pub(crate) mod manager;
mod manifest;
pub(crate) mod transfer;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use reveille_ledger::ids::Hash;
use reveille_ledger::storage::{BlockEntry, FrozenBlock, FrozenState, Row, unpack_block};

use crate::crash;

pub use block_folder::content_of_block;
pub use error::SnapshotError;
pub use manager::PinnedSnapshot;
pub use manifest::Manifest;

use crate::files::read_from_disk;
use block_folder::BlockFolder;
use files::{doing, reading};

/// Result of [`Snapshots::build`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The new snapshot.
    pub manifest: Manifest,
    /// Number of blocks that this build wrote. The others existed already.
    pub new_blocks: usize,
    /// Uncompressed size of the written blocks in bytes.
    pub new_bytes: u64,
}

/// Files that [`Snapshots::collect_garbage`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Number of manifests.
    pub manifests: usize,
    /// Number of blocks. No kept snapshot used them.
    pub blocks: usize,
}

/// The snapshot folder of one node. Only one process opens it: the data folder is locked.
pub struct Snapshots {
    folder: PathBuf,
    blocks: BlockFolder,
    /// Build, install and garbage collection exclude each other. Otherwise a block could be collected after a build
    /// found it and before the manifest names it. Reading and `put_block` need no lock.
    changing: Mutex<()>,
    /// Blocks of the archive that are missing or damaged here, as far as known: files are looked for at each start and
    /// each snapshot, and their bytes are checked at each read.
    missing: Mutex<BTreeSet<Hash>>,
}

impl Snapshots {
    /// Opens the folder, creates it if needed, and removes temporary files that a crash left behind.
    pub fn open(folder: &Path) -> Result<Snapshots, SnapshotError> {
        fs::create_dir_all(folder).map_err(doing("create the snapshot folder"))?;
        files::remove_leftovers(folder)?;
        let blocks = BlockFolder::open(&folder.join("blocks"))?;
        files::sync_folder(folder)?;
        let (changing, missing) = (Mutex::new(()), Mutex::default());
        Ok(Snapshots { folder: folder.to_path_buf(), blocks, changing, missing })
    }

    /// Writes the snapshot of the state after log index `index`, and replaces a snapshot of the same index. `meta` is
    /// stored unread. Checks every byte of the state on disk, and of the blocks of the archive that it writes. Holds
    /// one leaf in memory.
    pub fn build(&self, index: u64, meta: Vec<u8>, state: &FrozenState) -> Result<Built, SnapshotError> {
        let _changing = self.changing.lock();
        let mut new = Vec::new();
        match self.write(index, meta, state, &mut new) {
            Ok(manifest) => {
                let new_bytes = new.iter().map(|entry| entry.bytes).sum();
                Ok(Built { manifest, new_blocks: new.len(), new_bytes })
            }
            Err(error) => {
                self.withdraw(&new);
                Err(error)
            }
        }
    }

    /// Removes the blocks of a failed build, since a full disk needs the space. A block that another snapshot uses
    /// stays: the build may have repaired it.
    fn withdraw(&self, new: &[BlockEntry]) {
        let Ok(manifests) = self.list() else { return };
        let named = named_by(&manifests);
        for entry in new.iter().filter(|entry| !named.contains(&entry.hash)) {
            if let Err(error) = self.blocks.remove(entry.hash) {
                tracing::warn!(hash = %entry.hash, %error, "a block of a failed snapshot stays until it is collected");
            }
        }
    }

    fn write(
        &self,
        index: u64,
        meta: Vec<u8>,
        state: &FrozenState,
        new: &mut Vec<BlockEntry>,
    ) -> Result<Manifest, SnapshotError> {
        let blocks = self.write_blocks(state, new)?;
        self.write_archive(state, new)?;
        self.check(new)?;
        // A block of the archive that was damaged here is intact again.
        self.change_missing(|missing| {
            for entry in &*new {
                missing.remove(&entry.hash);
            }
        });
        let manifest = Manifest::new(index, meta, blocks);
        self.write_manifest(&manifest)?;
        Ok(manifest)
    }

    fn write_blocks(&self, state: &FrozenState, new: &mut Vec<BlockEntry>) -> Result<Vec<BlockEntry>, SnapshotError> {
        let mut entries = Vec::new();
        for leaf in state.leaves() {
            // A leaf that has not changed is on disk, unless its file was damaged.
            if let Some(known) = leaf.known_blocks() {
                match self.check(known) {
                    Ok(()) => {
                        entries.extend_from_slice(known);
                        continue;
                    }
                    Err(SnapshotError::Missing { .. } | SnapshotError::Damaged { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            for (entry, bytes) in leaf.pack() {
                if self.blocks.put(entry.hash, &bytes)? {
                    new.push(entry);
                }
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    /// Writes the blocks of the archive that are in memory. The others are not read: the archive grows with the
    /// history, and a snapshot must not take longer with it.
    fn write_archive(&self, state: &FrozenState, new: &mut Vec<BlockEntry>) -> Result<(), SnapshotError> {
        let mut points = Some(());
        for FrozenBlock { block, bytes } in state.archive() {
            let Some(bytes) = bytes else { continue };
            if points.take().is_some() {
                crash::point("archive.before-save");
            }
            if self.blocks.put(block.hash, &bytes)? {
                new.push(block);
            }
        }
        if points.is_none() {
            crash::point("archive.after-save");
        }
        Ok(())
    }

    /// Finds the blocks of the archive that have no file here: they are missing from now on. `archive` are the blocks
    /// that the newest state names. Changes nothing if `is_newest` then finds that it was replaced.
    pub fn find_missing(
        &self,
        archive: &BTreeSet<Hash>,
        is_newest: impl FnOnce() -> bool,
    ) -> Result<(), SnapshotError> {
        let present = self.blocks.hashes()?.into_iter().collect();
        self.set_missing(archive, &present, is_newest);
        Ok(())
    }

    fn set_missing(&self, archive: &BTreeSet<Hash>, present: &BTreeSet<Hash>, is_newest: impl FnOnce() -> bool) {
        let gone: BTreeSet<Hash> = archive.difference(present).copied().collect();
        self.change_missing(|missing| {
            if !is_newest() {
                return;
            }
            if let Some(first) = gone.first() {
                let count = gone.len();
                tracing::warn!(%first, count, "blocks of the archive are not here; other nodes are asked for them");
            }
            // A damaged block has a file, and stays missing until another node has sent it.
            missing.retain(|hash| archive.contains(hash));
            missing.extend(gone);
        });
    }

    /// Checks every byte of these blocks.
    fn check(&self, blocks: &[BlockEntry]) -> Result<(), SnapshotError> {
        blocks.iter().try_for_each(|entry| self.blocks.read(entry.hash).map(drop))
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<(), SnapshotError> {
        self.blocks.sync()?;
        files::write_whole(&self.path_of(manifest.index), &manifest.to_bytes()?)?;
        files::sync_folder(&self.folder)
    }

    fn path_of(&self, index: u64) -> PathBuf {
        self.folder.join(format!("{index:020}.manifest"))
    }

    /// Returns all snapshots with a readable manifest, newest first. A damaged manifest is skipped with a log line.
    /// Blocks are not checked.
    pub fn list(&self) -> Result<Vec<Manifest>, SnapshotError> {
        let mut manifests = Vec::new();
        for index in self.indices()? {
            match self.manifest(index) {
                Ok(manifest) => manifests.push(manifest),
                Err(error @ SnapshotError::Io { .. }) => return Err(error),
                Err(error) => tracing::warn!(index, %error, "a snapshot was skipped"),
            }
        }
        Ok(manifests)
    }

    /// Returns the log indexes of all manifest files, newest first.
    fn indices(&self) -> Result<Vec<u64>, SnapshotError> {
        let names = files::names(&self.folder)?;
        let mut indices: Vec<u64> =
            names.iter().filter_map(|name| name.strip_suffix(".manifest")?.parse().ok()).collect();
        indices.sort_unstable_by(|one, other| other.cmp(one));
        Ok(indices)
    }

    fn manifest(&self, index: u64) -> Result<Manifest, SnapshotError> {
        let bytes = fs::read(self.path_of(index)).map_err(reading("read a snapshot manifest"))?;
        parse_manifest(index, &bytes)
    }

    /// Checks every byte of the state of a snapshot.
    pub fn verify(&self, manifest: &Manifest) -> Result<(), SnapshotError> {
        self.check(&manifest.blocks)
    }

    /// Returns all rows of the state. Each block is checked before its rows are used. The caller compares the hash of
    /// the state that they make.
    pub fn read(&self, manifest: &Manifest) -> Result<Vec<Row>, SnapshotError> {
        let mut rows = Vec::new();
        for entry in &manifest.blocks {
            let block = unpack_block(&self.read_block(entry.hash)?).map_err(|error| SnapshotError::damaged(error.0))?;
            if block.len() as u64 != u64::from(entry.rows) {
                return Err(SnapshotError::damaged(format!("block {} has another number of rows", entry.hash)));
            }
            rows.extend(block);
        }
        Ok(rows)
    }

    /// Returns the blocks of `manifest` that this node must fetch, each once. Damaged blocks are removed and count as
    /// missing.
    pub fn missing(&self, manifest: &Manifest) -> Result<Vec<Hash>, SnapshotError> {
        let mut missing = BTreeSet::new();
        for BlockEntry { hash, .. } in &manifest.blocks {
            match self.blocks.read(*hash) {
                Ok(_) => {}
                Err(SnapshotError::Missing { .. }) => {
                    missing.insert(*hash);
                }
                Err(error @ SnapshotError::Damaged { .. }) => {
                    tracing::warn!(%hash, %error, "a damaged snapshot block was removed; it will be fetched again");
                    self.blocks.remove(*hash)?;
                    missing.insert(*hash);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(missing.into_iter().collect())
    }

    /// Returns the checked bytes of a block, for a peer.
    pub fn read_block(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        self.blocks.read(hash)
    }

    /// Returns the file of a block, compressed, after checking its content: for a copy.
    pub fn read_block_file(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        let file = self.blocks.read_file(hash)?;
        content_of_block(hash, &file)?;
        Ok(file)
    }

    /// As [`Snapshots::read_block`], for a block that the archive names. If it is damaged, it counts as missing
    /// from then on.
    pub fn read_archived(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        let read = self.read_block(hash);
        if matches!(read, Err(SnapshotError::Missing { .. } | SnapshotError::Damaged { .. })) {
            self.mark_missing(hash);
        }
        read
    }

    /// Returns the blocks of the archive that are missing or damaged here, as far as known.
    pub fn missing_of_archive(&self) -> Vec<Hash> {
        self.missing.lock().iter().copied().collect()
    }

    /// Forgets the missing blocks that the archive names no more. `archive` are the blocks that the newest state names.
    /// Changes nothing if `is_newest` then finds that it was replaced.
    pub fn forget_unneeded_missing(&self, archive: &BTreeSet<Hash>, is_newest: impl FnOnce() -> bool) {
        self.change_missing(|missing| {
            if is_newest() {
                missing.retain(|hash| archive.contains(hash));
            }
        });
    }

    fn change_missing(&self, change: impl FnOnce(&mut BTreeSet<Hash>)) {
        let mut missing = self.missing.lock();
        change(&mut missing);
        metrics::gauge!("reveille_archive_blocks_missing").set(missing.len() as f64);
    }

    /// Checks a block as it is on the disk. Returns the size of its file in bytes.
    pub fn check_block(&self, hash: Hash) -> Result<u64, SnapshotError> {
        self.blocks.check_on_disk(hash)
    }

    /// Checks a manifest as it is on the disk. Returns the size of its file in bytes.
    pub fn check_manifest(&self, index: u64) -> Result<u64, SnapshotError> {
        let bytes = read_from_disk(&self.path_of(index)).map_err(reading("read a snapshot manifest"))?;
        parse_manifest(index, &bytes).map(|_| bytes.len() as u64)
    }

    /// Records that a block of the archive is damaged here: it counts as missing from now on.
    pub fn mark_missing(&self, hash: Hash) {
        self.change_missing(|missing| {
            missing.insert(hash);
        });
    }

    /// Stores a block that a peer sent, if its bytes match `hash`. Garbage collection may remove it before `install`,
    /// unless its snapshot is in transfer.
    pub fn put_block(&self, hash: Hash, bytes: &[u8]) -> Result<(), SnapshotError> {
        if Hash::of(bytes) != hash {
            return Err(SnapshotError::damaged(format!("the bytes sent as block {hash} are others")));
        }
        self.blocks.put(hash, bytes)?;
        self.change_missing(|missing| {
            missing.remove(&hash);
        });
        Ok(())
    }

    /// Makes a fetched snapshot this node's own after checking every block. After `Missing` or `Damaged` the caller
    /// calls `missing` again.
    pub fn install(&self, manifest: &Manifest) -> Result<(), SnapshotError> {
        let _changing = self.changing.lock();
        self.verify(manifest)?;
        self.write_manifest(manifest)
    }

    /// Removes all snapshots except `kept`, and all blocks that neither `kept`, `in_transfer` nor `archive` name. Finds
    /// the blocks of the archive that have no file: it fails no snapshot, since without snapshots the log would grow
    /// until the disk is full. `in_transfer` are the snapshots that are being sent or fetched; `archive` are the blocks
    /// of the archive that the newest state names.
    pub fn collect_garbage(
        &self,
        kept: &[Manifest],
        in_transfer: &[Manifest],
        archive: &BTreeSet<Hash>,
    ) -> Result<Collected, SnapshotError> {
        let _changing = self.changing.lock();
        let kept_indices: BTreeSet<u64> = kept.iter().map(|manifest| manifest.index).collect();
        let mut collected = Collected::default();
        for index in self.indices()?.into_iter().filter(|index| !kept_indices.contains(index)) {
            files::remove(&self.path_of(index))?;
            collected.manifests += 1;
        }
        // Manifests must be durably removed before their blocks.
        files::sync_folder(&self.folder)?;
        let named = named_by(kept.iter().chain(in_transfer));
        let present = self.blocks.hashes()?.into_iter().collect();
        self.set_missing(archive, &present, || true);
        for hash in present.into_iter().filter(|hash| !named.contains(hash) && !archive.contains(hash)) {
            self.blocks.remove(hash)?;
            collected.blocks += 1;
        }
        Ok(collected)
    }
}

/// Returns the manifest in the file of a log index.
fn parse_manifest(index: u64, bytes: &[u8]) -> Result<Manifest, SnapshotError> {
    let manifest = Manifest::from_bytes(bytes)?;
    if manifest.index != index {
        return Err(SnapshotError::damaged(format!("the manifest of {index} is that of {}", manifest.index)));
    }
    Ok(manifest)
}

/// Returns the hashes of the blocks of these snapshots.
fn named_by<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> BTreeSet<Hash> {
    manifests.into_iter().flat_map(|manifest| &manifest.blocks).map(|entry| entry.hash).collect()
}
