//! The recipients of sealed audiences, in immutable files (parts) that each node has for itself (P20).
//!
//! The ledger names a part by its hash and never sees its recipients. Claim workers read it once for each claim, the
//! admin service reads addresses, the [`steward`] fetches missing parts from peers, and [`seal()`] has members write
//! parts.
//! - **What is read is what was sealed**: a part's name is the hash of its head, the head has the hash of each block,
//!   and each read compares the block. A difference is a fault, never another recipient.
//! - **A file with its full name is whole**: written under another name, synced, renamed, its folder synced.
//! - **Bounded memory**: a read costs a block of 256 recipients.
//!
//! It knows no ledger and no clock, and blocks its thread. Reading order: `file`, `recipe`, `seal`, `keys`, `check`,
//! `spread`, `steward`.

mod check;
mod file;
mod free_space;
mod keys;
mod recipe;
mod seal;
mod spread;
pub mod steward;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use reveille_ledger::content::Recipient;
use reveille_ledger::ids::{Hash, NodeId};
use tokio::sync::Semaphore;

use crate::node::cache::Cache;

pub use check::AudienceFault;
use file::Head;
pub use file::{BLOCK, encode, name};
use free_space::FreeSpace;
pub use keys::{Keys, Repeats};
pub use recipe::{Recipe, recipient};
pub use seal::{SealError, seal};
pub use spread::spread;
pub use steward::fetch;

/// Bytes of heads that are kept: some hundred of the largest.
const HEAD_BYTES_MAX: usize = 1024 * 1024;
/// Missing parts that are named to the leader, once a second. As many say that there may be more of open runs: then
/// nothing of any sealed audience is for this node.
pub(crate) const NAMED_MAX: usize = 1_024;
/// Parts that are on their way to one other node at once.
const COPIES_MAX: usize = 4;
/// Parts that this node takes over at once, for all callers together: each lies in its memory until it is whole.
const TAKEN_MAX: usize = 4;
/// A part that is younger is not made younger by each request.
const YOUNG_FOR: Duration = Duration::from_secs(3_600);
/// That a node takes no part over is logged so often: an import tries each part again and again.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// The name of a file that is not whole yet ends so.
const UNFINISHED: &str = "unfinished";

/// Why recipients cannot be read here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartFault {
    /// There is no such file.
    #[error("part {0:?} of the audience is not on this node")]
    Missing(Hash),
    /// The file is not what its name says.
    #[error("part {part:?} of the audience is damaged on this node: {what}")]
    Damaged {
        /// Which.
        part: Hash,
        /// What is wrong.
        what: String,
    },
    /// The disk refuses.
    #[error("part {part:?} of the audience cannot be read on this node: {error}")]
    Unreadable {
        /// Which.
        part: Hash,
        /// What the system says.
        error: String,
    },
}

/// The parts of one node.
pub struct AudienceStore {
    folder: PathBuf,
    heads: Cache<Hash, Head>,
    lacking: Mutex<BTreeSet<Hash>>,
    /// Held while a part is put or removed, and while a caller is answered that one is here.
    changing: Mutex<()>,
    room: FreeSpace,
    /// Parts that are on their way to other nodes: one that stalls delays no other.
    copies: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
    /// Parts that are being taken over.
    pub(crate) taken: Semaphore,
    /// When it was logged of another node that it takes no part over.
    told: Mutex<BTreeMap<NodeId, Instant>>,
}

impl AudienceStore {
    /// Opens the folder, making it where there is none; what was left unfinished there is taken away.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(folder: PathBuf) -> io::Result<AudienceStore> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                fs::remove_file(path)?;
            }
        }
        // What has its name has it for good: who renamed it may have been killed before this.
        File::open(&folder)?.sync_all()?;
        let (heads, lacking, changing) = (Cache::new(HEAD_BYTES_MAX), Mutex::default(), Mutex::default());
        let (room, copies, taken) = (FreeSpace::of(folder.clone()), Mutex::default(), Semaphore::new(TAKEN_MAX));
        Ok(AudienceStore { folder, heads, lacking, changing, room, copies, taken, told: Mutex::default() })
    }

    /// The recipients at these places of a part, in order; places are given in order.
    ///
    /// # Errors
    /// When the part is not here, or what is asked of it is not what was sealed.
    pub fn read(&self, part: Hash, places: &[u16]) -> Result<Vec<(u16, Recipient)>, PartFault> {
        let read = self.read_places(part, places);
        if let Err(fault) = &read {
            tracing::warn!(%fault, "an audience");
            self.heads.remove(part);
            self.lack(part);
        }
        read
    }

    fn read_places(&self, part: Hash, places: &[u16]) -> Result<Vec<(u16, Recipient)>, PartFault> {
        let file = self.open_part(part)?;
        let head = self.head(part, &file)?;
        let mut found = Vec::with_capacity(places.len());
        for of_block in places.chunk_by(|one, other| one / BLOCK == other / BLOCK) {
            let Some(number) = of_block.first().map(|place| place / BLOCK) else { continue };
            let damaged = |what: String| PartFault::Damaged { part, what };
            let (offset, length) = head.extent(number).ok_or_else(|| damaged(format!("it has no block {number}")))?;
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, offset).map_err(|error| cut_or_unreadable(part, &error))?;
            let recipients = head.block(number, &bytes).map_err(damaged)?;
            for place in of_block {
                let recipient = recipients.get(usize::from(place % BLOCK));
                let recipient = recipient.ok_or_else(|| damaged(format!("no recipient is at place {place}")))?;
                found.push((*place, recipient.clone()));
            }
        }
        Ok(found)
    }

    /// The places in a part of those who have these address keys. Reads the whole part.
    ///
    /// # Errors
    /// As [`AudienceStore::read`].
    pub fn find(&self, part: Hash, keys: &BTreeSet<String>) -> Result<Vec<(u16, String)>, PartFault> {
        let mut found = Vec::new();
        let mut place = 0_u32;
        self.each(part, |recipient| {
            if let Ok(place) = u16::try_from(place)
                && keys.contains(&recipient.key)
            {
                found.push((place, recipient.key));
            }
            place += 1;
        })?;
        Ok(found)
    }

    /// Who of those at these places of a part, given in order, has one of these address keys. A block at a time; ends
    /// with the first that cannot be read.
    ///
    /// # Errors
    /// As [`AudienceStore::read`].
    pub fn of_these(&self, part: Hash, places: &[u16], keys: &BTreeSet<String>) -> Result<BTreeSet<u16>, PartFault> {
        let mut found = BTreeSet::new();
        for of_block in places.chunk_by(|one, other| one / BLOCK == other / BLOCK) {
            let read = self.read(part, of_block)?.into_iter();
            found.extend(read.filter(|(_, one)| keys.contains(&one.key)).map(|(place, _)| place));
        }
        Ok(found)
    }

    /// Shows all recipients of a part, in order.
    ///
    /// # Errors
    /// As [`AudienceStore::read`].
    fn each(&self, part: Hash, mut show: impl FnMut(Recipient)) -> Result<(), PartFault> {
        let rows = self.head(part, &self.open_part(part)?)?.rows();
        for first in (0..rows).step_by(usize::from(BLOCK)) {
            let last = rows.min(first + u32::from(BLOCK));
            let places: Vec<u16> = (first..last).filter_map(|place| u16::try_from(place).ok()).collect();
            self.read(part, &places)?.into_iter().for_each(|(_, recipient)| show(recipient));
        }
        Ok(())
    }

    fn open_part(&self, part: Hash) -> Result<File, PartFault> {
        File::open(self.path(part)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => PartFault::Missing(part),
            _ => PartFault::Unreadable { part, error: error.to_string() },
        })
    }

    fn head(&self, part: Hash, file: &File) -> Result<Arc<Head>, PartFault> {
        self.heads.get(part, || {
            let damaged = |what: String| PartFault::Damaged { part, what };
            let mut fixed = [0; Head::FIXED];
            file.read_exact_at(&mut fixed, 0).map_err(|error| cut_or_unreadable(part, &error))?;
            let mut bytes = vec![0; Head::length(&fixed).map_err(damaged)?];
            file.read_exact_at(&mut bytes, 0).map_err(|error| cut_or_unreadable(part, &error))?;
            Ok((Head::read(part, &bytes).map_err(damaged)?, bytes.len()))
        })
    }

    /// Keeps a part, synced when this returns; answers its hash. One that is there and whole is not written again,
    /// and is as young as if it were: it is on its way to a seal.
    ///
    /// # Errors
    /// When the bytes are no part, or the disk does not take them.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Hash> {
        let part = file::verify(bytes).map_err(invalid)?;
        self.keep(part, bytes)?;
        Ok(part)
    }

    /// Keeps an uploaded part under this name, after a check of each recipient.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when the bytes are not that part, or a recipient cannot be one; else when
    /// the disk does not take them.
    pub fn admit(&self, part: Hash, bytes: &[u8]) -> io::Result<()> {
        if file::verify_each(bytes, check::objection).map_err(invalid)? != part {
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
                // Whatever is left of it is of no use; its own error says less than the first.
                let _ = fs::remove_file(&unfinished);
            }
            self.room.wrote(bytes.len() as u64, written)?;
        }
        File::open(&self.folder)?.sync_all()?;
        self.heads.remove(part);
        self.lacking.lock().remove(&part);
        Ok(())
    }

    /// Is there room for a part of so many bytes?
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is not, with what is free where; else when that cannot be asked.
    pub(crate) fn room_for(&self, bytes: u64) -> io::Result<()> {
        self.room.ask(bytes)
    }

    /// Why there is no room for parts here, since one was refused and until there is room again.
    pub fn shortage(&self) -> Option<String> {
        self.room.shortage()
    }

    /// Who holds a permit of it has a part on its way to this node.
    fn copies_to(&self, node: NodeId) -> Arc<Semaphore> {
        let mut copies = self.copies.lock();
        Arc::clone(copies.entry(node).or_insert_with(|| Arc::new(Semaphore::new(COPIES_MAX))))
    }

    /// Is it to be logged that this node takes no part over, or was it just now?
    fn is_to_be_told(&self, node: NodeId) -> bool {
        let mut told = self.told.lock();
        let is_old = told.get(&node).is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        if is_old {
            told.insert(node, Instant::now());
        }
        is_old
    }

    /// Which of these parts are not here. Those that are count as new from now on: they are on their way to a seal.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn hold(&self, parts: &[Hash], now: SystemTime) -> io::Result<Vec<Hash>> {
        let _changing = self.changing.lock();
        let mut lacking = Vec::new();
        for part in parts {
            let file = match File::open(self.path(*part)) {
                // What could not be read is not kept, but taken over anew.
                Ok(_) if self.lacking.lock().contains(part) => None,
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let Some(file) = file else {
                lacking.push(*part);
                continue;
            };
            let since = file.metadata()?.modified()?;
            if now.duration_since(since).is_ok_and(|age| age >= YOUNG_FOR) {
                file.set_modified(now)?;
                file.sync_all()?;
            }
        }
        Ok(lacking)
    }

    /// Some bytes of a part's file from `offset`, and how many it has in all; none where it is not here. Not
    /// verified: the receiver verifies the whole.
    ///
    /// # Errors
    /// When the disk refuses.
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

    /// Whole, as far as its name tells?
    pub fn has(&self, part: Hash) -> bool {
        self.path(part).exists()
    }

    /// Notes that a part is needed here and cannot be read. Of those that are noted none is left that is not part of a
    /// seal, so there are no more than the ledger has.
    pub(crate) fn lack(&self, part: Hash) {
        self.lacking.lock().insert(part);
    }

    /// Of the parts that are lacking here, those that are reported to the leader: of open runs first, and one less than
    /// [`NAMED_MAX`] where there is room for all of these.
    pub(crate) fn named_lacking(&self, open: &BTreeSet<Hash>) -> Vec<Hash> {
        let lacking = self.lacking.lock();
        let first: Vec<Hash> = lacking.intersection(open).copied().take(NAMED_MAX).collect();
        let room = (NAMED_MAX - 1).saturating_sub(first.len());
        let others = lacking.difference(open).copied().take(room);
        first.iter().copied().chain(others).collect()
    }

    /// Is anything lacking here?
    pub(crate) fn is_lacking(&self) -> bool {
        !self.lacking.lock().is_empty()
    }

    /// A part that is not needed is not lacking. Nor is it kept where it could not be read: so it is asked for anew when it
    /// is on its way to a seal.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub(crate) fn keep_lacking(&self, needed: &BTreeSet<Hash>) -> io::Result<()> {
        // What is put meanwhile is whole.
        let _changing = self.changing.lock();
        let unneeded = |part: &Hash| !needed.contains(part);
        let gone: Vec<Hash> = self.lacking.lock().iter().copied().filter(unneeded).collect();
        for part in gone {
            match fs::remove_file(self.path(part)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.lacking.lock().remove(&part),
            };
        }
        Ok(())
    }

    /// Parts that are needed here and cannot be read.
    pub fn lacking(&self) -> Vec<Hash> {
        self.lacking.lock().iter().copied().collect()
    }

    /// Takes away what is not needed and was there for `age`: it may be on its way to a seal.
    ///
    /// # Errors
    /// When the folder cannot be read, or a file not be removed.
    pub(crate) fn remove_unneeded(&self, needed: &BTreeSet<Hash>, age: Duration, now: SystemTime) -> io::Result<u64> {
        let names: BTreeSet<String> = needed.iter().map(Hash::to_string).collect();
        let mut removed = 0;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let _changing = self.changing.lock();
            // What was unfinished when the folder was listed may have its name by now.
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
    // By the clock with which its age is read: in the simulation that of the kernel is another one.
    file.set_modified(SystemTime::now())?;
    file.sync_all()
}

fn cut_or_unreadable(part: Hash, error: &io::Error) -> PartFault {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => PartFault::Damaged { part, what: "it is cut short".to_owned() },
        _ => PartFault::Unreadable { part, error: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
