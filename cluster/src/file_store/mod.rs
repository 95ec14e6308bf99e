//! The recipients of sealed audiences (parts), and attachments, in immutable files on each node (P20).
//!
//! The ledger names a file by its hash and never contains its bytes. The workers read a part once for each claim.
//! The admin service takes uploaded parts and reads addresses. [`spread()`] makes members copy parts from each other,
//! and the [`fetcher`] fetches missing parts.
//! - **A read returns what was sealed**: a part's name is the hash of its head, the head has the hash of each block,
//!   and each read verifies its blocks. A difference is an error, never another recipient.
//! - **A file with its full name is complete**: written under another name, synced, renamed, its folder synced.
//! - **Bounded memory**: a read needs memory for one block of 256 recipients, or for one attachment.
//!
//! It does not use the ledger or a clock, and it blocks its thread. Reading order: `part`, `attachment`, `keys`,
//! `check`, `spread`, `fetcher`, `lost`.

mod attachment;
mod check;
pub mod fetcher;
mod free_space;
mod generated;
mod keys;
mod lost;
mod part;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::{Recipient, Seal};
use reveille_ledger::ids::Hash;
use reveille_raft::files::{create_private_folder, read_from_disk, remove_if_exists};
use tokio::sync::Semaphore;

use crate::monitoring::disk_reserve::Shortage;
use crate::process::cache::Cache;
use crate::process::limits::NAMED_MAX;

pub use attachment::encode_attachment;
pub use check::AudienceFault;
pub use fetcher::fetch;
pub use generated::GeneratedAudience;
pub use keys::{Keys, Repeats};
use lost::Lost;
use part::Head;
pub(crate) use part::verify;
pub use part::{BLOCK, encode, name};
use spread::Confirmed;
pub use spread::{SpreadError, spread, spread_attachments};

/// Maximum bytes of heads that are kept: about a hundred of the largest.
const HEAD_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of parts that this node fetches at a time, for all callers: each is in memory until it is complete.
const FETCHES_MAX: usize = 4;
/// Attachments of which a node remembers that a majority has them.
const CONFIRMED_MAX: usize = 10_000;
/// A request renews the modification time of a part only if it is older than this.
const YOUNG_FOR: Duration = Duration::from_secs(3_600);
/// Bytes of a usual part. With less space this node reports that it takes no parts.
const USUAL_PART_BYTES: u64 = 3 * 1024 * 1024;
/// Extension of a file that is not complete yet.
const UNFINISHED: &str = "unfinished";

/// Where a recipient of a sealed audience is: its part, and its position in it.
pub type PartPosition = (Hash, u16);

/// Reason why a file cannot be read on this node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileStoreError {
    /// The file does not exist.
    #[error("file {0:?} is not on this node")]
    Missing(Hash),
    /// The content of the file does not match its name.
    #[error("file {part:?} is damaged on this node: {what}")]
    Damaged {
        /// Hash of the part.
        part: Hash,
        /// Description of the damage.
        what: String,
    },
    /// The disk failed.
    #[error("file {part:?} cannot be read on this node: {error}")]
    Unreadable {
        /// Hash of the part.
        part: Hash,
        /// Error text of the system.
        error: String,
    },
}

/// The audience parts and attachments on one node.
pub struct FileStore {
    folder: PathBuf,
    heads: Cache<Hash, Head>,
    missing: Mutex<BTreeSet<Hash>>,
    /// Locked after `missing`.
    lost: Mutex<Lost>,
    /// Attachments that a majority had a short time ago.
    confirmed: Cache<Hash, Confirmed>,
    /// Locked while a part is written or removed, and while a caller gets the answer that a part is here.
    changing: Mutex<()>,
    /// Slots for parts that this node fetches.
    pub(crate) fetches: Semaphore,
}

impl FileStore {
    /// Opens the folder, creates it if needed, and removes incomplete files.
    ///
    /// # Errors
    /// Fails if the folder cannot be created or read.
    pub fn open(folder: PathBuf) -> io::Result<FileStore> {
        create_private_folder(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                fs::remove_file(path)?;
            }
        }
        // Makes all renames durable: a process that renamed a file may have been killed before it synced the folder.
        File::open(&folder)?.sync_all()?;
        Ok(FileStore {
            folder,
            heads: Cache::new(HEAD_BYTES_MAX),
            missing: Mutex::default(),
            lost: Mutex::default(),
            confirmed: Cache::new(CONFIRMED_MAX),
            changing: Mutex::default(),
            fetches: Semaphore::new(FETCHES_MAX),
        })
    }

    /// Returns the recipients at these positions of a part, in order. `positions` must be in order.
    ///
    /// # Errors
    /// Fails if the part is not here, or if a block that it reads is not what was sealed.
    pub fn read(&self, part: Hash, positions: &[u16]) -> Result<Vec<(u16, Recipient)>, FileStoreError> {
        let read = self.read_positions(part, positions);
        if let Err(fault) = &read {
            tracing::warn!(%fault, "an audience part cannot be read");
            self.heads.remove(part);
            self.mark_missing(part);
        }
        read
    }

    fn read_positions(&self, part: Hash, positions: &[u16]) -> Result<Vec<(u16, Recipient)>, FileStoreError> {
        let file = self.open_part(part)?;
        let head = self.head(part, &file)?;
        let mut found = Vec::with_capacity(positions.len());
        for of_block in positions.chunk_by(|one, other| one / BLOCK == other / BLOCK) {
            let Some(number) = of_block.first().map(|position| position / BLOCK) else { continue };
            let damaged = |what: String| FileStoreError::Damaged { part, what };
            let (offset, length) = head.extent(number).ok_or_else(|| damaged(format!("it has no block {number}")))?;
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset).map_err(|error| cut_or_unreadable(part, &error))?;
            let recipients = head.block(number, &bytes).map_err(damaged)?;
            for position in of_block {
                let recipient = recipients.get(usize::from(position % BLOCK));
                let recipient = recipient.ok_or_else(|| damaged(format!("no recipient is at position {position}")))?;
                found.push((*position, recipient.clone()));
            }
        }
        Ok(found)
    }

    /// Returns the positions in a part of the recipients with these address keys. Reads the whole part.
    ///
    /// # Errors
    /// The same errors as [`FileStore::read`].
    pub fn find(&self, part: Hash, keys: &BTreeSet<String>) -> Result<Vec<(u16, String)>, FileStoreError> {
        let mut found = Vec::new();
        let mut position = 0_u32;
        self.each(part, |recipient| {
            if let Ok(position) = u16::try_from(position)
                && keys.contains(&recipient.key)
            {
                found.push((position, recipient.key));
            }
            position += 1;
        })?;
        Ok(found)
    }

    /// Returns number and row of the first recipient with one of these address keys. Reads the parts of the seal that
    /// are not lost.
    ///
    /// # Errors
    /// The same errors as [`FileStore::read`].
    pub fn find_row(
        &self,
        seal: &Seal,
        keys: &BTreeSet<String>,
        lost: &BTreeSet<Hash>,
    ) -> Result<Option<(u32, Recipient)>, FileStoreError> {
        let parts = (0..).step_by(CHUNK as usize).zip(&seal.parts);
        for (first, part) in parts.filter(|(_, part)| !lost.contains(part)) {
            if let Some((position, _)) = self.find(*part, keys)?.into_iter().next() {
                let row = self.read(*part, &[position])?.into_iter().next();
                return Ok(row.map(|(position, recipient)| (first + u32::from(position), recipient)));
            }
        }
        Ok(None)
    }

    /// Stores a copy of a part without the person at this position: the row stays, empty. Returns the hash of the copy.
    ///
    /// # Errors
    /// If the part cannot be read, or the disk cannot store the copy.
    pub fn store_without(&self, part: Hash, position: u16) -> io::Result<Hash> {
        let mut recipients = Vec::new();
        self.each(part, |recipient| recipients.push(recipient)).map_err(io::Error::other)?;
        let row = recipients.get_mut(usize::from(position)).ok_or_else(|| invalid("no such recipient".to_owned()))?;
        *row = Recipient::erased();
        self.put(&encode(&recipients))
    }

    /// Returns the recipients at these places, each a part and a position. Reads each part once. An error says why a
    /// recipient cannot be read.
    pub fn read_each(
        &self,
        places: BTreeSet<PartPosition>,
    ) -> BTreeMap<PartPosition, Result<Recipient, FileStoreError>> {
        let (places, mut found) = (places.into_iter().collect::<Vec<PartPosition>>(), BTreeMap::new());
        for of_part in places.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((part, _)) = of_part.first() else { continue };
            let positions: Vec<u16> = of_part.iter().map(|(_, position)| *position).collect();
            match self.read(*part, &positions) {
                Ok(read) => found.extend(read.into_iter().map(|(position, one)| ((*part, position), Ok(one)))),
                Err(fault) => found.extend(of_part.iter().map(|place| (*place, Err(fault.clone())))),
            }
        }
        found
    }

    /// Passes all recipients of a part to `show`, in order.
    ///
    /// # Errors
    /// The same errors as [`FileStore::read`].
    fn each(&self, part: Hash, mut show: impl FnMut(Recipient)) -> Result<(), FileStoreError> {
        let rows = self.head(part, &self.open_part(part)?)?.rows();
        for first in (0..rows).step_by(usize::from(BLOCK)) {
            let last = rows.min(first + u32::from(BLOCK));
            let positions: Vec<u16> = (first..last).filter_map(|position| u16::try_from(position).ok()).collect();
            self.read(part, &positions)?.into_iter().for_each(|(_, recipient)| show(recipient));
        }
        Ok(())
    }

    fn open_part(&self, part: Hash) -> Result<File, FileStoreError> {
        File::open(self.path(part)).map_err(|error| missing_or_unreadable(part, &error))
    }

    fn head(&self, part: Hash, file: &File) -> Result<Arc<Head>, FileStoreError> {
        self.heads.get(part, || {
            let damaged = |what: String| FileStoreError::Damaged { part, what };
            let mut fixed = [0; Head::FIXED];
            file.read_exact_at(&mut fixed, 0).map_err(|error| cut_or_unreadable(part, &error))?;
            let mut bytes = vec![0; Head::length(&fixed).map_err(damaged)?];
            file.read_exact_at(&mut bytes, 0).map_err(|error| cut_or_unreadable(part, &error))?;
            Ok((Head::read(part, &bytes).map_err(damaged)?, bytes.len()))
        })
    }

    /// Stores a part or an attachment, synced when this returns. Returns its hash. An intact file is not written again,
    /// but its modification time is renewed, since it may be needed for a seal or a content.
    ///
    /// # Errors
    /// Fails if the bytes are neither, or if the disk cannot store them.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Hash> {
        let part = part::verify(bytes).map_err(invalid)?;
        self.keep(part, bytes)?;
        Ok(part)
    }

    /// Stores an uploaded part under this name, after checking each recipient.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the bytes are not that part or a recipient is not valid. Other kinds if the
    /// disk cannot store them.
    pub fn store_upload(&self, part: Hash, bytes: &[u8]) -> io::Result<()> {
        if part::verify_each(bytes, check::objection).map_err(invalid)? != part {
            return Err(invalid("these bytes are not the part that was announced".to_owned()));
        }
        self.keep(part, bytes)
    }

    fn keep(&self, part: Hash, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(part);
        let _changing = self.changing.lock();
        if fs::read(&path).is_ok_and(|known| known == bytes) {
            let file = File::options().append(true).open(&path)?;
            file.set_modified(SystemTime::now())?;
            file.sync_all()?;
        } else {
            self.room_for(bytes.len() as u64)?;
            let unfinished = path.with_extension(UNFINISHED);
            let written = write_synced(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &path));
            if written.is_err() {
                // The incomplete file is useless. An error here says less than the first one.
                let _ = fs::remove_file(&unfinished);
            }
            written?;
        }
        File::open(&self.folder)?.sync_all()?;
        self.heads.remove(part);
        self.missing.lock().remove(&part);
        Ok(())
    }

    /// Checks that there is space for a part of `bytes` bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no space, with the free space. Another kind if the volume cannot be
    /// read.
    pub(crate) fn room_for(&self, bytes: u64) -> io::Result<()> {
        free_space::has_room(&self.folder, bytes)
    }

    /// Returns what the volume lacks for a usual part. `None` if there is space, or if the volume cannot be read.
    pub fn shortage(&self) -> Option<Shortage> {
        free_space::shortage(&self.folder, USUAL_PART_BYTES).ok().flatten()
    }

    /// Returns which of these parts are not here. Those that are here count as new from now on, since they may be
    /// needed for a seal.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub fn renew(&self, parts: &[Hash], now: SystemTime) -> io::Result<Vec<Hash>> {
        let _changing = self.changing.lock();
        let mut missing = Vec::new();
        for part in parts {
            let file = match File::open(self.path(*part)) {
                // A part that could not be read is not kept. It is fetched again.
                Ok(_) if self.missing.lock().contains(part) => None,
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let Some(file) = file else {
                missing.push(*part);
                continue;
            };
            let since = file.metadata()?.modified()?;
            if now.duration_since(since).is_ok_and(|age| age >= YOUNG_FOR) {
                file.set_modified(now)?;
                file.sync_all()?;
            }
        }
        Ok(missing)
    }

    /// Returns at most `most` bytes of a part's file from `offset`, and its total size. `None` if it is not here. The
    /// bytes are not verified: the receiver verifies the whole part.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub fn raw(&self, part: Hash, offset: u64, most: usize) -> io::Result<Option<(Vec<u8>, u64)>> {
        let file = match File::open(self.path(part)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let total = file.metadata()?.len();
        let length = usize::try_from(total.saturating_sub(offset)).unwrap_or(most).min(most);
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(Some((bytes, total)))
    }

    /// Returns the whole file of a part as it is on the disk, verified.
    ///
    /// # Errors
    /// The same errors as [`FileStore::read`].
    pub(crate) fn whole(&self, part: Hash) -> Result<Vec<u8>, FileStoreError> {
        let damaged = |what: String| FileStoreError::Damaged { part, what };
        let bytes = read_from_disk(&self.path(part)).map_err(|error| missing_or_unreadable(part, &error))?;
        match part::verify(&bytes).map_err(damaged)? {
            name if name == part => Ok(bytes),
            _ => Err(damaged("its content is that of another part".to_owned())),
        }
    }

    /// Returns true if the part's file exists. Its content is not verified.
    pub fn has(&self, part: Hash) -> bool {
        self.path(part).exists()
    }

    /// Records that a part is needed here and cannot be read. [`FileStore::forget_unneeded_missing`] removes all that are
    /// in no seal, so there are never more than the ledger has.
    pub(crate) fn mark_missing(&self, part: Hash) {
        self.missing.lock().insert(part);
    }

    /// Returns the missing parts that are reported to the leader, those of open runs first, and lost ones of others last.
    /// The list has [`NAMED_MAX`] elements only if at least this number of parts of open runs is missing. Otherwise it
    /// has at most one element less.
    pub(crate) fn named_missing(&self, open: &BTreeSet<Hash>) -> Vec<Hash> {
        let missing = self.missing.lock();
        let first: Vec<Hash> = missing.intersection(open).copied().take(NAMED_MAX).collect();
        let room = (NAMED_MAX - 1).saturating_sub(first.len());
        let (lost, others) = (self.lost.lock(), || missing.difference(open).copied());
        let others = others().filter(|part| !lost.has(part)).chain(others().filter(|part| lost.has(part)));
        first.iter().copied().chain(others.take(room)).collect()
    }

    /// Returns true if any part is missing here.
    pub(crate) fn any_missing(&self) -> bool {
        !self.missing.lock().is_empty()
    }

    /// Removes the parts that are not needed from the missing ones, and also deletes their files, which could not be
    /// read. So such a part is requested again when a seal needs it.
    ///
    /// # Errors
    /// Fails if a file cannot be removed.
    pub(crate) fn forget_unneeded_missing(&self, needed: &BTreeSet<Hash>) -> io::Result<()> {
        // Under the lock: a part that is stored meanwhile is intact and stays.
        let _changing = self.changing.lock();
        let unneeded = |part: &Hash| !needed.contains(part);
        let gone: Vec<Hash> = self.missing.lock().iter().copied().filter(unneeded).collect();
        for part in gone {
            remove_if_exists(&self.path(part))?;
            self.missing.lock().remove(&part);
        }
        Ok(())
    }

    /// Returns the parts that are needed here and cannot be read.
    pub fn missing(&self) -> Vec<Hash> {
        self.missing.lock().iter().copied().collect()
    }

    /// Removes parts that are not needed and older than `age`. Younger ones may be needed for a seal. Returns how many
    /// it removed.
    ///
    /// # Errors
    /// Fails if the folder cannot be read, or if a file cannot be removed.
    pub(crate) fn remove_unneeded(&self, needed: &BTreeSet<Hash>, age: Duration, now: SystemTime) -> io::Result<u64> {
        let names: BTreeSet<String> = needed.iter().map(Hash::to_string).collect();
        let mut removed = 0;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let _changing = self.changing.lock();
            // A file that was incomplete when the folder was listed may have been renamed since.
            let since = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?.modified()?,
            };
            let is_old = now.duration_since(since).is_ok_and(|for_long| for_long >= age);
            if is_old && !entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
                fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn path(&self, part: Hash) -> PathBuf {
        self.folder.join(part.to_string())
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    // Set from the clock by which the file's age is measured. In the simulation the kernel's clock is another one.
    file.set_modified(SystemTime::now())?;
    file.sync_all()
}

fn missing_or_unreadable(part: Hash, error: &io::Error) -> FileStoreError {
    match error.kind() {
        io::ErrorKind::NotFound => FileStoreError::Missing(part),
        _ => FileStoreError::Unreadable { part, error: error.to_string() },
    }
}

fn cut_or_unreadable(part: Hash, error: &io::Error) -> FileStoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => FileStoreError::Damaged { part, what: "it is cut short".to_owned() },
        _ => FileStoreError::Unreadable { part, error: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
