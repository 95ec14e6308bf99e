//! A frozen state: the rows of the ledger at one index, while `apply` goes on.
//!
//! Its pages are shared with the ledger. Snapshots and the state hash encode a page once into chunks; the ledger keeps
//! their names until the page changes. So the cost of a snapshot or a hash depends on the changed pages.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::form::Unreadable;
use super::rows::TABLES;
use crate::model::Hash;

/// A row: key bytes and value bytes. Keys are unique and are ordered as bytes.
pub type Row = (Vec<u8>, Vec<u8>);

/// Maximum size of a chunk in bytes: a row that would exceed it begins a new chunk. Only a single larger row makes a
/// larger chunk, and the ledger limits its rows to 1 MiB (P24).
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// First bytes of each chunk.
const MAGIC: &[u8; 4] = b"RVC1";

/// Name and size of a chunk: rows of one page as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkEntry {
    /// Name of the chunk: blake3 over all its bytes.
    pub hash: Hash,
    /// Size of the chunk in bytes.
    pub bytes: u64,
    /// Number of rows in the chunk.
    pub rows: u32,
}

/// The chunks of a page; empty until they are computed.
pub(crate) type PageChunks = OnceLock<Box<[ChunkEntry]>>;
pub(crate) type PageRows<'a> = Box<dyn Iterator<Item = Row> + 'a>;

/// A page of any table.
pub(crate) trait AnyPage: Send + Sync {
    /// Encodes the rows with the tag of their table, in the forms of this level.
    fn rows(&self, tag: u8, level: u32) -> PageRows<'_>;
    fn chunks(&self) -> &PageChunks;
}

/// One page of a frozen state.
#[derive(Clone)]
pub struct FrozenPage {
    tag: u8,
    level: u32,
    page: Arc<dyn AnyPage>,
}

impl FrozenPage {
    /// Makes a page of any ascending rows. For tests of snapshots.
    #[doc(hidden)]
    pub fn of_rows(rows: Vec<Row>) -> FrozenPage {
        let page = Arc::new(TestPage { rows, chunks: PageChunks::default() });
        FrozenPage { tag: 0, level: 0, page }
    }

    /// Returns the page's chunks, if they have been computed since its last change.
    pub fn known_chunks(&self) -> Option<&[ChunkEntry]> {
        self.page.chunks().get().map(|chunks| &**chunks)
    }

    /// Returns the page's chunks, in the order of their rows.
    pub fn chunks(&self) -> &[ChunkEntry] {
        if self.known_chunks().is_none() {
            self.pack();
        }
        self.known_chunks().unwrap_or_default()
    }

    /// Encodes the page into chunks, and remembers their names.
    pub fn pack(&self) -> Vec<(ChunkEntry, Vec<u8>)> {
        let packed = pack_rows(self.page.rows(self.tag, self.level));
        // Two readers may compute the same chunks.
        let _ = self.page.chunks().set(packed.iter().map(|(chunk, _)| *chunk).collect());
        packed
    }
}

/// Encodes rows into chunks, in their order.
pub(crate) fn pack_rows(rows: impl Iterator<Item = Row>) -> Vec<(ChunkEntry, Vec<u8>)> {
    let (mut packed, mut open, mut count) = (Vec::new(), Vec::new(), 0);
    let end = |open: &mut Vec<u8>, count: &mut u32, packed: &mut Vec<_>| {
        let (bytes, rows) = (std::mem::take(open), std::mem::take(count));
        packed.push((ChunkEntry { hash: Hash::of(&bytes), bytes: bytes.len() as u64, rows }, bytes));
    };
    for (key, value) in rows {
        if count > 0 && open.len() + 16 + key.len() + value.len() > CHUNK_BYTES_MAX {
            end(&mut open, &mut count, &mut packed);
        }
        if count == 0 {
            open.extend_from_slice(MAGIC);
        }
        for piece in [key, value] {
            open.extend_from_slice(&(piece.len() as u64).to_le_bytes());
            open.extend_from_slice(&piece);
        }
        count += 1;
    }
    if count > 0 {
        end(&mut open, &mut count, &mut packed);
    }
    packed
}

/// A chunk of the archive.
#[derive(Clone, Debug)]
pub struct FrozenPart {
    /// Name and size of the chunk.
    pub chunk: ChunkEntry,
    /// Its bytes; `None` if a durable snapshot has named it.
    pub bytes: Option<Arc<[u8]>>,
}

/// Number of rows of a table, and their size in bytes as snapshots store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    /// Number of rows.
    pub rows: u64,
    /// Size of all rows in bytes.
    pub bytes: u64,
}

/// The state at one index.
#[derive(Clone)]
pub struct FrozenState {
    pages: Vec<FrozenPage>,
    parts: Vec<FrozenPart>,
}

impl FrozenState {
    /// Makes a state of these pages, whose rows ascend.
    #[doc(hidden)]
    pub fn of_pages(pages: Vec<FrozenPage>) -> FrozenState {
        FrozenState { pages, parts: Vec::new() }
    }

    /// Adds the chunks of the archive.
    #[doc(hidden)]
    pub fn with_parts(self, parts: Vec<FrozenPart>) -> FrozenState {
        FrozenState { parts, ..self }
    }

    pub(crate) fn add(&mut self, tag: u8, level: u32, pages: impl Iterator<Item = Arc<dyn AnyPage>>) {
        self.pages.extend(pages.map(|page| FrozenPage { tag, level, page }));
    }

    /// Returns the pages, in the order of their rows.
    pub fn pages(&self) -> &[FrozenPage] {
        &self.pages
    }

    /// Returns the chunks of the archive. The hash of the state has their names by the rows of the table `parts`.
    pub fn parts(&self) -> &[FrozenPart] {
        &self.parts
    }

    /// Returns the size of each table, by the table's name. It reads the chunks only, so it is cheap after
    /// [`FrozenState::hash`].
    pub fn table_sizes(&self) -> BTreeMap<&'static str, TableSize> {
        let mut sizes: BTreeMap<u8, TableSize> = BTreeMap::new();
        for page in &self.pages {
            let size = sizes.entry(page.tag).or_default();
            for chunk in page.chunks() {
                size.rows += u64::from(chunk.rows);
                size.bytes += chunk.bytes;
            }
        }
        TABLES.iter().map(|(tag, name)| (*name, sizes.remove(tag).unwrap_or_default())).collect()
    }

    /// Returns the hash of the state: equal on every replica at an equal index (I11). Encodes the pages that have
    /// changed since they were last encoded.
    pub fn hash(&self) -> Hash {
        hash_of_chunks(self.pages.iter().flat_map(FrozenPage::chunks))
    }
}

/// Returns the hash of a state with these chunks.
pub fn hash_of_chunks<'a>(chunks: impl IntoIterator<Item = &'a ChunkEntry>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for chunk in chunks {
        hasher.update(&chunk.hash.0);
    }
    Hash(*hasher.finalize().as_bytes())
}

/// Returns the rows of a chunk, in order. Never panics, whatever the bytes are.
///
/// # Errors
/// The bytes are not a sequence of rows.
pub fn unpack_chunk(bytes: &[u8]) -> Result<Vec<Row>, Unreadable> {
    let torn = || Unreadable("a chunk is not a sequence of rows".to_owned());
    let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(torn)?;
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let (key, after_key) = piece(rest).ok_or_else(torn)?;
        let (value, after_value) = piece(after_key).ok_or_else(torn)?;
        rows.push((key.to_vec(), value.to_vec()));
        rest = after_value;
    }
    Ok(rows)
}

fn piece(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

struct TestPage {
    rows: Vec<Row>,
    chunks: PageChunks,
}

impl AnyPage for TestPage {
    fn rows(&self, _tag: u8, _level: u32) -> PageRows<'_> {
        Box::new(self.rows.iter().cloned())
    }

    fn chunks(&self) -> &PageChunks {
        &self.chunks
    }
}
