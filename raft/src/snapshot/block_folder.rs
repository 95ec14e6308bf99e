//! The folder of blocks: immutable compressed files, each named by the hash of its uncompressed bytes.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use reveille_ledger::ids::Hash;
use reveille_ledger::storage::BLOCK_BYTES_MAX;

use super::SnapshotError;
use super::files::{self, doing, reading};
use crate::files::read_from_disk;

/// The fastest level of zstd that keeps its ratio: a snapshot is written while emails are sent.
const COMPRESSION_LEVEL: i32 = 1;
/// Limit of the uncompressed size. No block of the ledger reaches it; a damaged file must not allocate more.
const UNCOMPRESSED_BYTES_MAX: u64 = 4 * BLOCK_BYTES_MAX as u64;

/// Block files, found by their hash.
pub(super) struct BlockFolder {
    folder: PathBuf,
}

impl BlockFolder {
    pub(super) fn open(folder: &Path) -> Result<BlockFolder, SnapshotError> {
        fs::create_dir_all(folder).map_err(doing("create the block folder"))?;
        files::remove_leftovers(folder)?;
        Ok(BlockFolder { folder: folder.to_path_buf() })
    }

    fn path_of(&self, hash: Hash) -> PathBuf {
        self.folder.join(hash.to_string())
    }

    /// Returns the uncompressed bytes of a block. Fails with `Missing`, or with `Damaged` if they do not match the
    /// name.
    pub(super) fn read(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        content_of_block(hash, &self.read_file(hash)?)
    }

    /// Returns the file of a block as it is on disk. Its content is not checked.
    pub(super) fn read_file(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        fs::read(self.path_of(hash)).map_err(unreadable(hash))
    }

    /// Checks a block as it is on the disk. Returns the size of its file in bytes.
    pub(super) fn check_on_disk(&self, hash: Hash) -> Result<u64, SnapshotError> {
        let file = read_from_disk(&self.path_of(hash)).map_err(unreadable(hash))?;
        content_of_block(hash, &file).map(|_| file.len() as u64)
    }

    /// Stores `bytes`, whose hash is `hash`. Returns false if the file existed with these bytes. The existing file is
    /// compared, so that a new snapshot uses no damaged block. Durable after `sync`.
    pub(super) fn put(&self, hash: Hash, bytes: &[u8]) -> Result<bool, SnapshotError> {
        let path = self.path_of(hash);
        match fs::read(&path) {
            Ok(present) if uncompress(&present).is_some_and(|present| present == bytes) => return Ok(false),
            Ok(_) => tracing::warn!(%hash, "a damaged snapshot block was rewritten"),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => match unreadable(hash)(error) {
                SnapshotError::Damaged { what } => tracing::warn!(what, "a snapshot block was rewritten"),
                error => return Err(error),
            },
        }
        let compressed = zstd::bulk::compress(bytes, COMPRESSION_LEVEL).map_err(doing("compress a snapshot block"))?;
        files::write_whole(&path, &compressed)?;
        Ok(true)
    }

    pub(super) fn remove(&self, hash: Hash) -> Result<(), SnapshotError> {
        files::remove(&self.path_of(hash))
    }

    /// Makes all blocks written so far durable.
    pub(super) fn sync(&self) -> Result<(), SnapshotError> {
        files::sync_folder(&self.folder)
    }

    /// Returns the hashes of all blocks in the folder.
    pub(super) fn hashes(&self) -> Result<Vec<Hash>, SnapshotError> {
        Ok(files::names(&self.folder)?.iter().filter_map(|name| parse(name)).collect())
    }
}

/// Returns the error of a block that cannot be read.
fn unreadable(hash: Hash) -> impl FnOnce(io::Error) -> SnapshotError {
    move |error| match error.kind() {
        ErrorKind::NotFound => SnapshotError::Missing { hash },
        _ => reading("read a snapshot block")(error),
    }
}

/// Returns the bytes of a block from its file, which may be a copy elsewhere. Fails if they do not match the name.
pub fn content_of_block(hash: Hash, file: &[u8]) -> Result<Vec<u8>, SnapshotError> {
    let bytes = uncompress(file).filter(|bytes| Hash::of(bytes) == hash);
    bytes.ok_or_else(|| SnapshotError::damaged(format!("block {hash} does not match its name")))
}

/// Returns the content of a block file. `None`: it is damaged. Trusts no size in the file.
fn uncompress(file: &[u8]) -> Option<Vec<u8>> {
    let size = zstd::zstd_safe::get_frame_content_size(file).ok().flatten()?;
    let size = usize::try_from(size).ok().filter(|_| size <= UNCOMPRESSED_BYTES_MAX)?;
    zstd::bulk::decompress(file, size).ok()
}

fn parse(name: &str) -> Option<Hash> {
    blake3::Hash::from_hex(name).ok().map(|hash| Hash(*hash.as_bytes()))
}
