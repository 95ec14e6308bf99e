//! Reads the archive: opens a part as a small ledger that has only the rows of the part.
//!
//! Until a durable snapshot has a block of a part, the ledger has its bytes; then the block folder of the snapshots has
//! them. Called for requests of operators only: nothing that sends an email waits for the archive.

use std::collections::BTreeSet;
use std::sync::Arc;

use reveille_ledger::ids::{Hash, RunId, Time};
use reveille_ledger::storage::{FrozenBlock, hash_of_blocks, unpack_block};
use reveille_ledger::{ArchivePartKey, Ledger, blocks_of_parts};
use tokio::sync::Mutex;

use crate::snapshot::SnapshotError;
use crate::snapshot::manager::SnapshotManager;
use crate::state_machine::applied_state::AppliedState;

/// Limit of the opened parts that are kept, as the size of their blocks.
const CACHE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Least size that a part counts with: an opened part with few rows needs memory too.
const OPENED_BYTES_MIN: u64 = 256 * 1024;

/// Reason why a part of the archive was not read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A block of the part is missing or damaged on this node. Fetch [`missing`](crate::Replica::missing_blocks) blocks
    /// from another node.
    #[error("part {part} of the archive is not readable on this node: {what}")]
    Damaged {
        /// The part.
        part: ArchivePartKey,
        /// The block, and what is wrong with it.
        what: String,
    },
    /// An operator accepted that the blocks of the part are lost.
    #[error("part {part} of the archive is lost with the disks of all nodes, accepted at {at}")]
    Lost {
        /// The part.
        part: ArchivePartKey,
        /// When it was accepted.
        at: Time,
    },
    /// The disk of this node failed to read. Try again, here or on another node.
    #[error("cannot read part {part} of the archive")]
    Disk {
        /// The part.
        part: ArchivePartKey,
        /// The failed operation.
        #[source]
        source: SnapshotError,
    },
    /// The thread that reads the archive panicked: this node stops.
    #[error("the thread that reads the archive panicked")]
    Panicked,
}

impl ArchiveError {
    fn of(part: ArchivePartKey, error: SnapshotError) -> ArchiveError {
        match error {
            source @ SnapshotError::Io { .. } => ArchiveError::Disk { part, source },
            SnapshotError::Panicked => ArchiveError::Panicked,
            damaged => ArchiveError::Damaged { part, what: damaged.to_string() },
        }
    }
}

/// Opens parts of the archive of this node, and keeps those that were opened last.
pub(crate) struct ArchiveReader {
    applied_state: Arc<AppliedState>,
    snapshots: Arc<SnapshotManager>,
    /// Locked while a part is opened: reading the history must not take the memory and the processors from sending.
    cache: Mutex<Cache>,
}

impl ArchiveReader {
    pub fn new(applied_state: Arc<AppliedState>, snapshots: Arc<SnapshotManager>) -> ArchiveReader {
        ArchiveReader { applied_state, snapshots, cache: Mutex::default() }
    }

    /// Returns the part that has a run or its summary, if the run may be one of this tenant. `None`: no part has it.
    ///
    /// # Errors
    /// [`ArchiveError::Lost`] if no other part has it, and none that is unreadable now may have it.
    pub async fn archived(
        &self,
        run: RunId,
        tenant: Option<&str>,
    ) -> Result<Option<(ArchivePartKey, Arc<Ledger>)>, ArchiveError> {
        // The runs of a part have finished together, and have not opened together. So ranges overlap.
        let parts = self.applied_state.read(|ledger| ledger.parts().clone());
        let has_range = |(first, last)| first <= run && run <= last;
        let may_have = parts
            .iter()
            .rev()
            .filter(|(_, part)| part.runs().is_some_and(has_range))
            .filter(|(_, part)| tenant.is_none_or(|tenant| part.may_have(tenant)))
            .map(|(key, _)| *key);
        let mut failed: Option<ArchiveError> = None;
        for key in may_have {
            match self.open(key).await {
                Ok(Some(part)) if part.run(run).is_some() || part.summaries().contains(&run) => {
                    return Ok(Some((key, part)));
                }
                Ok(_) => {}
                // Another part may have the run.
                Err(ArchiveError::Lost { .. }) if failed.is_some() => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Opens a part. `None`: its retention has ended.
    pub async fn open(&self, key: ArchivePartKey) -> Result<Option<Arc<Ledger>>, ArchiveError> {
        let mut failed: Option<(Hash, ArchiveError)> = None;
        loop {
            let found = self.applied_state.read(|ledger| {
                let lost_at = ledger.parts().get(&key)?.whole_loss();
                Some((blocks_of(ledger, key)?, lost_at))
            });
            let Some((blocks, lost_at)) = found else { return Ok(None) };
            if let Some(at) = lost_at {
                return Err(ArchiveError::Lost { part: key, at });
            }
            let name = name_of(&blocks);
            if let Some((_, error)) = failed.filter(|(former, _)| *former == name) {
                return Err(error);
            }
            match self.open_blocks(name, blocks).await {
                Ok(part) => return Ok(Some(part)),
                // Meanwhile the retention of the details may have ended, and their blocks were removed. Look again.
                Err(error) => failed = Some((name, ArchiveError::of(key, error))),
            }
        }
    }

    /// Returns a block for a peer. `None`: it is not readable here either. Blocks on the disk.
    pub fn block(&self, hash: Hash) -> Option<Vec<u8>> {
        let unsaved = self.applied_state.read(|ledger| ledger.unsaved_block(&hash));
        unsaved.map(|bytes| bytes.to_vec()).or_else(|| self.snapshots.folder().read_block(hash).ok())
    }

    /// Returns which of these blocks this node cannot read, and of at most `others` more that it lacks. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// The disk failed to read: a block may be intact.
    pub fn unreadable(&self, asked: BTreeSet<Hash>, others: usize) -> Result<BTreeSet<Hash>, SnapshotError> {
        let (parts, applied, unsaved) =
            self.applied_state.read(|ledger| (ledger.parts().clone(), ledger.head().applied, ledger.unsaved_blocks()));
        let archive = blocks_of_parts(&parts).filter(|hash| !unsaved.contains(hash)).collect();
        self.snapshots.find_missing(&archive, applied)?;
        let mut unreadable = BTreeSet::new();
        let missing = self.snapshots.folder().missing_of_archive().into_iter().take(others);
        let examined: BTreeSet<Hash> = asked.into_iter().chain(missing).collect();
        for hash in examined.difference(&unsaved).copied() {
            match self.snapshots.folder().read_archived(hash) {
                Ok(_) => {}
                Err(SnapshotError::Missing { .. } | SnapshotError::Damaged { .. }) => drop(unreadable.insert(hash)),
                Err(error) => return Err(error),
            }
        }
        Ok(unreadable)
    }

    /// Forgets missing blocks that the state names no more. Returns those that are left.
    pub fn drop_unneeded_missing_blocks(&self) -> Vec<Hash> {
        if self.snapshots.folder().missing_of_archive().is_empty() {
            return Vec::new();
        }
        let (parts, applied) = self.applied_state.read(|ledger| (ledger.parts().clone(), ledger.head().applied));
        self.snapshots.forget_unneeded_missing(&blocks_of_parts(&parts).collect(), applied);
        self.snapshots.folder().missing_of_archive()
    }

    async fn open_blocks(&self, name: Hash, blocks: Vec<FrozenBlock>) -> Result<Arc<Ledger>, SnapshotError> {
        let mut cache = self.cache.lock().await;
        if let Some(ledger) = cache.get(name) {
            return Ok(ledger);
        }
        let bytes = blocks.iter().fold(0, |sum: u64, frozen| sum.saturating_add(frozen.block.bytes));
        let ledger = Arc::new(self.snapshots.blocking(move |snapshots| read(snapshots, &blocks)).await?);
        cache.put(OpenedPart { name, ledger: Arc::clone(&ledger), bytes: bytes.max(OPENED_BYTES_MIN) });
        Ok(ledger)
    }
}

/// Returns the blocks of a part, with their bytes unless a snapshot has them.
fn blocks_of(ledger: &Ledger, key: ArchivePartKey) -> Option<Vec<FrozenBlock>> {
    let blocks = ledger.parts().get(&key)?.blocks().iter();
    Some(blocks.map(|block| FrozenBlock { block: *block, bytes: ledger.unsaved_block(&block.hash) }).collect())
}

/// Names the content of a part. The part with its details and the part without them have different names.
fn name_of(blocks: &[FrozenBlock]) -> Hash {
    hash_of_blocks(blocks.iter().map(|frozen| &frozen.block))
}

fn read(snapshots: &SnapshotManager, blocks: &[FrozenBlock]) -> Result<Ledger, SnapshotError> {
    // All blocks are read before the first error is returned, so that every missing one is known.
    let bytes_of = |frozen: &FrozenBlock| match &frozen.bytes {
        Some(bytes) => Ok(Arc::clone(bytes)),
        None => snapshots.folder().read_archived(frozen.block.hash).map(Arc::from),
    };
    let read: Vec<Result<Arc<[u8]>, SnapshotError>> = blocks.iter().map(bytes_of).collect();
    let mut rows = Vec::new();
    for (FrozenBlock { block, .. }, bytes) in blocks.iter().zip(read) {
        let unpacked = unpack_block(&bytes?);
        rows.extend(unpacked.map_err(|error| SnapshotError::damaged(format!("block {}: {error}", block.hash)))?);
    }
    Ledger::from_rows(rows).map_err(|error| SnapshotError::damaged(error.to_string()))
}

/// An opened part.
struct OpenedPart {
    name: Hash,
    ledger: Arc<Ledger>,
    /// Size that the part counts with.
    bytes: u64,
}

/// The parts that were opened last, the most recently used one at the end. At most some hundred.
#[derive(Default)]
struct Cache {
    parts: Vec<OpenedPart>,
}

impl Cache {
    fn get(&mut self, name: Hash) -> Option<Arc<Ledger>> {
        let position = self.parts.iter().position(|part| part.name == name)?;
        let part = self.parts.remove(position);
        let ledger = Arc::clone(&part.ledger);
        self.parts.push(part);
        Some(ledger)
    }

    fn put(&mut self, part: OpenedPart) {
        self.parts.push(part);
        let mut bytes = 0_u64;
        let newest = self.parts.iter().rev().take_while(|part| {
            bytes = bytes.saturating_add(part.bytes);
            bytes <= CACHE_BYTES_MAX
        });
        let excess = self.parts.len() - newest.count();
        self.parts.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::OptedOut;
    use reveille_ledger::form::RowForm;
    use reveille_ledger::ids::Time;
    use reveille_ledger::storage::FrozenLeaf;

    use super::*;
    use crate::execution::Execution;
    use crate::fatal_error::FatalErrorCell;
    use crate::snapshot::Snapshots;
    use crate::state_machine::position::AppliedPosition;

    /// Tag of the table of opt-outs. Rows of any table do for these tests; those of opt-outs are the simplest.
    const OPTED_OUT: u8 = 11;

    const KEY: ArchivePartKey = ArchivePartKey { index: 7, place: 0 };

    fn reader() -> (tempfile::TempDir, ArchiveReader) {
        let folder = tempfile::tempdir().unwrap();
        let state = AppliedState::new(Ledger::new(), AppliedPosition::default(), FatalErrorCell::new());
        let state = Arc::new(state);
        let snapshots = Snapshots::open(folder.path()).unwrap();
        let snapshots = SnapshotManager::new(snapshots, None, Arc::clone(&state), Execution::Inline);
        (folder, ArchiveReader::new(state, Arc::new(snapshots)))
    }

    fn key(name: &str) -> (String, String) {
        ("default".to_owned(), name.to_owned())
    }

    /// Returns a block in memory with one row.
    fn in_memory(name: &str) -> FrozenBlock {
        let row = OptedOut { index: 1, at: Time(0), last: 1 };
        let row =
            (postcard::to_extend(&key(name), vec![OPTED_OUT]).unwrap(), row.to_row(reveille_ledger::GENESIS_LEVEL));
        let (block, bytes) = FrozenLeaf::of_rows(vec![row]).pack().remove(0);
        FrozenBlock { block, bytes: Some(bytes.into()) }
    }

    /// Saves a block, as a snapshot does.
    fn on_disk(reader: &ArchiveReader, name: &str) -> FrozenBlock {
        let FrozenBlock { block, bytes } = in_memory(name);
        reader.snapshots.put_block(block.hash, &bytes.unwrap()).unwrap();
        FrozenBlock { block, bytes: None }
    }

    async fn open(reader: &ArchiveReader, blocks: Vec<FrozenBlock>) -> Result<Arc<Ledger>, ArchiveError> {
        reader.open_blocks(name_of(&blocks), blocks).await.map_err(|error| ArchiveError::of(KEY, error))
    }

    fn has(ledger: &Ledger, name: &str) -> bool {
        ledger.opted_out().contains(&key(name))
    }

    #[tokio::test]
    async fn part_in_memory_and_on_disk_is_read() {
        let (_folder, reader) = reader();
        let blocks = vec![in_memory("new"), on_disk(&reader, "saved")];
        let part = open(&reader, blocks).await.unwrap();
        assert!(has(&part, "new") && has(&part, "saved") && !has(&part, "other"));
    }

    #[tokio::test]
    async fn damaged_or_missing_block_is_named() {
        let (folder, reader) = reader();
        let block = on_disk(&reader, "saved").block;
        let path = folder.path().join("blocks").join(block.hash.to_string());
        let lost = || open(&reader, vec![FrozenBlock { block, bytes: None }]);
        for harm in [b"damaged".as_slice(), b""] {
            std::fs::write(&path, harm).unwrap();
            let error = lost().await.unwrap_err();
            assert!(matches!(error, ArchiveError::Damaged { part: KEY, .. }), "{error:?}");
            assert!(error.to_string().contains(&block.hash.to_string()), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(reader.snapshots.folder().missing_of_archive(), [block.hash]);
        let error = lost().await.unwrap_err();
        assert!(matches!(&error, ArchiveError::Damaged { what, .. } if what.contains("missing")), "{error}");
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(lost().await, Err(ArchiveError::Disk { .. })));
        std::fs::remove_dir(&path).unwrap();

        let bytes = in_memory("saved").bytes.unwrap();
        assert!(reader.snapshots.put_block(block.hash, b"others").is_err(), "a peer sent other bytes");
        reader.snapshots.put_block(block.hash, &bytes).unwrap();
        assert_eq!(reader.snapshots.folder().missing_of_archive(), []);
        assert_eq!(reader.block(block.hash), Some(bytes.to_vec()));
        assert!(has(&lost().await.unwrap(), "saved"), "a failure is not kept");
    }

    #[tokio::test]
    async fn every_lacking_block_of_part_is_known_after_one_read() {
        let (_folder, reader) = reader();
        let lost = |name| FrozenBlock { bytes: None, ..in_memory(name) };
        let blocks = vec![lost("one"), on_disk(&reader, "saved"), lost("other")];
        let mut expected = [blocks[0].block.hash, blocks[2].block.hash];
        expected.sort();
        open(&reader, blocks).await.unwrap_err();
        assert_eq!(reader.snapshots.folder().missing_of_archive(), expected);
    }

    #[tokio::test]
    async fn opened_part_is_kept_with_saved_block_too() {
        let (_folder, reader) = reader();
        let first = open(&reader, vec![in_memory("one")]).await.unwrap();
        let saved = FrozenBlock { bytes: None, ..in_memory("one") };
        assert!(Arc::ptr_eq(&open(&reader, vec![saved]).await.unwrap(), &first), "no file is read");
    }

    #[tokio::test]
    async fn unknown_part_is_none() {
        let (_folder, reader) = reader();
        assert!(reader.open(KEY).await.unwrap().is_none());
        assert!(reader.archived(RunId { index: 7, place: 0 }, None).await.unwrap().is_none());
    }

    #[test]
    fn cache_drops_least_recently_used_part() {
        let mut cache = Cache::default();
        let name = |number: u8| Hash::of(&[number]);
        let put = |cache: &mut Cache, number, bytes| {
            cache.put(OpenedPart { name: name(number), ledger: Arc::new(Ledger::new()), bytes });
        };
        (0..4).for_each(|number| put(&mut cache, number, CACHE_BYTES_MAX / 4));
        assert!(cache.get(name(0)).is_some());
        put(&mut cache, 4, CACHE_BYTES_MAX / 4);
        assert_eq!([0, 1, 2, 3, 4].map(|number| cache.get(name(number)).is_some()), [true, false, true, true, true]);
        put(&mut cache, 5, CACHE_BYTES_MAX);
        assert_eq!(cache.parts.len(), 1);
        put(&mut cache, 6, CACHE_BYTES_MAX + 1);
        assert!(cache.parts.is_empty(), "a part above the limit is not kept");
    }
}
