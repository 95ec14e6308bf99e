//! The folder of chunks: immutable files, each named by the hash of its bytes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use reveille_ledger::ids::Hash;

use super::SnapshotError;
use super::files::{self, doing};

/// Chunk files, found by their hash.
pub(super) struct ChunkFolder {
    folder: PathBuf,
}

impl ChunkFolder {
    pub(super) fn open(folder: &Path) -> Result<ChunkFolder, SnapshotError> {
        fs::create_dir_all(folder).map_err(doing("create the chunk folder"))?;
        files::remove_leftovers(folder)?;
        Ok(ChunkFolder { folder: folder.to_path_buf() })
    }

    fn path_of(&self, hash: Hash) -> PathBuf {
        self.folder.join(hash.to_string())
    }

    /// Returns the bytes of a chunk. Fails with `Missing`, or with `Damaged` if the bytes do not match the name.
    pub(super) fn read(&self, hash: Hash) -> Result<Vec<u8>, SnapshotError> {
        let bytes = match fs::read(self.path_of(hash)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(SnapshotError::Missing { hash }),
            other => other.map_err(doing("read a snapshot chunk"))?,
        };
        if Hash::of(&bytes) != hash {
            return Err(SnapshotError::damaged(format!("chunk {hash} does not match its name")));
        }
        Ok(bytes)
    }

    /// Stores `bytes`, whose hash is `hash`. Returns false if the file existed with these bytes. The existing file is
    /// compared, so that a new snapshot uses no damaged chunk. Durable after `sync`.
    pub(super) fn put(&self, hash: Hash, bytes: &[u8]) -> Result<bool, SnapshotError> {
        let path = self.path_of(hash);
        match fs::read(&path) {
            Ok(present) if present == bytes => return Ok(false),
            Ok(_) => tracing::warn!(%hash, "a damaged snapshot chunk was rewritten"),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(doing("read a snapshot chunk")(error)),
        }
        files::write_whole(&path, bytes)?;
        Ok(true)
    }

    pub(super) fn remove(&self, hash: Hash) -> Result<(), SnapshotError> {
        files::remove(&self.path_of(hash))
    }

    /// Makes all chunks written so far durable.
    pub(super) fn sync(&self) -> Result<(), SnapshotError> {
        files::sync_folder(&self.folder)
    }

    /// Returns the hashes of all chunks in the folder.
    pub(super) fn hashes(&self) -> Result<Vec<Hash>, SnapshotError> {
        Ok(files::names(&self.folder)?.iter().filter_map(|name| parse(name)).collect())
    }
}

fn parse(name: &str) -> Option<Hash> {
    blake3::Hash::from_hex(name).ok().map(|hash| Hash(*hash.as_bytes()))
}
