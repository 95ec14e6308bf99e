//! The manifest: the table of contents of a snapshot. About 40 bytes for each leaf of state, so it fits one peer
//! message. The rows of the state name the blocks of the archive.

use reveille_ledger::ids::Hash;
use reveille_ledger::storage::{BlockEntry, hash_of_blocks};
use serde::{Deserialize, Serialize};

use super::SnapshotError;

/// First bytes of each manifest. The next byte is the format.
const MAGIC: &[u8; 4] = b"RVSM";
/// The format that this program reads and writes.
const FORMAT: u8 = 1;

/// A snapshot: its log index and metadata, and the blocks that hold its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Log index of the last entry in the snapshot. Snapshots of a node are ordered by it.
    pub index: u64,
    /// Metadata of the caller: log id and membership. Not read here.
    pub meta: Vec<u8>,
    /// Hash of the state, that is, of the blocks' names: equal on every node at the same index (I11).
    pub state_hash: Hash,
    /// Number of rows in `blocks`.
    pub rows: u64,
    /// The blocks of the state, in the order of their rows.
    pub blocks: Vec<BlockEntry>,
}

impl Manifest {
    pub(super) fn new(index: u64, meta: Vec<u8>, blocks: Vec<BlockEntry>) -> Manifest {
        Manifest { index, meta, state_hash: hash_of_blocks(&blocks), rows: count(&blocks), blocks }
    }

    /// Returns the uncompressed size of all blocks in bytes: a follower without any block must fetch this much.
    pub fn total_bytes(&self) -> u64 {
        self.blocks.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// Encodes the manifest for disk and wire: magic, format, body, crc32c of all bytes before it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = [MAGIC.as_slice(), &[FORMAT]].concat();
        let body = postcard::to_stdvec(self)
            .map_err(|error| SnapshotError::damaged(format!("the manifest cannot be written: {error}")))?;
        bytes.extend_from_slice(&body);
        let check = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes a manifest. Never panics, whatever the bytes are.
    pub fn from_bytes(bytes: &[u8]) -> Result<Manifest, SnapshotError> {
        let damaged = |what: &str| SnapshotError::damaged(format!("the manifest {what}"));
        let (checked, check) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged("is too short"))?;
        if crc32c::crc32c(checked) != u32::from_le_bytes(*check) {
            return Err(damaged("fails its check"));
        }
        let body = checked.strip_prefix(MAGIC).ok_or_else(|| damaged("is no manifest"))?;
        let (&found, body) = body.split_first().ok_or_else(|| damaged("is too short"))?;
        if found != FORMAT {
            return Err(damaged(&format!("has format {found}; this program reads format {FORMAT}")));
        }
        let (manifest, rest): (Manifest, _) = postcard::take_from_bytes(body).map_err(|_| damaged("cannot be read"))?;
        let is_consistent =
            manifest.rows == count(&manifest.blocks) && manifest.state_hash == hash_of_blocks(&manifest.blocks);
        if !rest.is_empty() || !is_consistent {
            return Err(damaged("contradicts itself"));
        }
        Ok(manifest)
    }
}

fn count(blocks: &[BlockEntry]) -> u64 {
    blocks.iter().fold(0, |sum, entry| sum.saturating_add(u64::from(entry.rows)))
}
