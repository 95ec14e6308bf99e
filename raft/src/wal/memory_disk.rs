//! A disk in memory for tests and simulations: it loses unsynced data at a crash, and fails on request.
//!
//! A crash is the worst one that a disk allows. Each unsynced sector, creation and removal either survives or is lost,
//! and a file that grew may have any length in between. A failed sync behaves as in Linux: its data count as clean, and
//! no later sync writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::SECTOR_BYTES;
use super::disk::{Disk, DiskFile};

/// The disk. Clones share one disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    names: BTreeMap<String, Arc<MemoryFile>>,
    /// The names at the last sync of the folder.
    durable_names: BTreeMap<String, Arc<MemoryFile>>,
    injected: Arc<Mutex<InjectedErrors>>,
    hold: Arc<SyncGate>,
}

/// Makes syncs wait while `held` is true.
#[derive(Default)]
struct SyncGate {
    held: Mutex<bool>,
    changed: Condvar,
}

#[derive(Default)]
struct InjectedErrors {
    write: Option<io::ErrorKind>,
    sync: Option<io::ErrorKind>,
    /// Number of bytes that may still be written. `None`: no limit.
    space: Option<u64>,
}

#[derive(Default)]
struct MemoryFile {
    state: Mutex<FileState>,
    injected: Arc<Mutex<InjectedErrors>>,
    hold: Arc<SyncGate>,
}

#[derive(Clone, Default)]
struct FileState {
    content: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors written since the last sync. The next sync makes them durable.
    dirty: BTreeSet<usize>,
    /// Sectors that a failed sync did not write, and that no later sync writes.
    forgotten: BTreeSet<usize>,
}

impl MemoryDisk {
    /// Returns an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the disk after a power cut. `seed` decides what survives. The result replaces this disk.
    pub fn crash(&self, seed: u64) -> MemoryDisk {
        let mut chance = Chance(seed);
        let inner = self.inner.lock();
        let mut names = BTreeMap::new();
        let candidates: BTreeSet<&String> = inner.names.keys().chain(inner.durable_names.keys()).collect();
        for name in candidates {
            let (now, durable) = (inner.names.get(name), inner.durable_names.get(name));
            let survivor = match (now, durable) {
                (Some(file), Some(_)) => Some(file),
                (Some(file), None) | (None, Some(file)) => Some(file).filter(|_| chance.coin()),
                (None, None) => None,
            };
            if let Some(file) = survivor {
                let content = file.state.lock().crash(&mut chance);
                names.insert(name.clone(), content);
            }
        }
        MemoryDisk::with(names)
    }

    /// Returns a disk with these files, all durable.
    pub fn with(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> MemoryDisk {
        let disk = MemoryDisk::new();
        {
            let mut inner = disk.inner.lock();
            for (name, content) in files {
                let state = FileState { durable: content.clone(), content, ..FileState::default() };
                let (injected, hold) = (Arc::clone(&inner.injected), Arc::clone(&inner.hold));
                let file = MemoryFile { state: Mutex::new(state), injected, hold };
                inner.names.insert(name, Arc::new(file));
            }
            inner.durable_names = inner.names.clone();
        }
        disk
    }

    /// Returns the current content of all files.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let inner = self.inner.lock();
        inner.names.iter().map(|(name, file)| (name.clone(), file.state.lock().content.clone())).collect()
    }

    /// From now on every sync fails.
    pub fn fail_syncs(&self, kind: io::ErrorKind) {
        self.inner.lock().injected.lock().sync = Some(kind);
    }

    /// From now on every write fails.
    pub fn fail_writes(&self, kind: io::ErrorKind) {
        self.inner.lock().injected.lock().write = Some(kind);
    }

    /// Makes syncs of files and of the folder wait while `held` is true.
    pub fn hold_syncs(&self, held: bool) {
        let hold = Arc::clone(&self.inner.lock().hold);
        *hold.held.lock() = held;
        hold.changed.notify_all();
    }

    /// Ends all injected errors, but not a hold of syncs.
    pub fn heal(&self) {
        *self.inner.lock().injected.lock() = InjectedErrors::default();
    }

    /// From now on only `bytes` bytes can be written. The write that exceeds them is cut short and fails.
    pub fn limit_space(&self, bytes: u64) {
        self.inner.lock().injected.lock().space = Some(bytes);
    }
}

impl Disk for MemoryDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.inner.lock();
        if inner.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (injected, hold) = (Arc::clone(&inner.injected), Arc::clone(&inner.hold));
        let file = Arc::new(MemoryFile { state: Mutex::default(), injected, hold });
        inner.names.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner.lock();
        let file = inner.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::clone(file) as Arc<dyn DiskFile>)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.inner.lock().names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.lock().names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self) -> io::Result<()> {
        // Wait without the disk's lock: `hold_syncs` needs the lock to end the hold.
        let hold = Arc::clone(&self.inner.lock().hold);
        hold.wait();
        let mut inner = self.inner.lock();
        if let Some(kind) = inner.injected.lock().sync {
            return Err(kind.into());
        }
        inner.durable_names = inner.names.clone();
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.state.lock().content.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = state.content.get(from..from.saturating_add(buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let fits = self.injected.lock().take_space(bytes.len())?;
        let written = bytes.get(..fits).unwrap_or(bytes);
        self.state.lock().write(usize::try_from(offset).unwrap_or(usize::MAX), written)?;
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.content.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.hold.wait();
        let injected = self.injected.lock().sync;
        self.state.lock().sync(injected)
    }
}

impl SyncGate {
    fn wait(&self) {
        self.changed.wait_while(&mut self.held.lock(), |held| *held);
    }
}

impl InjectedErrors {
    /// Returns how many of `bytes` can be written, and counts them as written.
    fn take_space(&mut self, bytes: usize) -> io::Result<usize> {
        if let Some(kind) = self.write {
            return Err(kind.into());
        }
        let Some(space) = &mut self.space else { return Ok(bytes) };
        let fits = bytes.min(usize::try_from(*space).unwrap_or(usize::MAX));
        *space -= fits as u64;
        Ok(fits)
    }
}

impl FileState {
    fn write(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        if offset > self.content.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a write behind the end leaves a hole"));
        }
        let end = offset + bytes.len();
        self.content.resize(self.content.len().max(end), 0);
        if let Some(location) = self.content.get_mut(offset..end) {
            location.copy_from_slice(bytes);
        }
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        Ok(())
    }

    fn sync(&mut self, injected: Option<io::ErrorKind>) -> io::Result<()> {
        let dirty = std::mem::take(&mut self.dirty);
        if let Some(kind) = injected {
            self.forgotten.extend(dirty);
            return Err(kind.into());
        }
        self.durable.resize(self.content.len(), 0);
        for number in dirty {
            self.forgotten.remove(&number);
            let end = self.content.len().min((number + 1) * SECTOR_BYTES);
            let sector = number * SECTOR_BYTES..end;
            if let (Some(old), Some(new)) = (self.durable.get_mut(sector.clone()), self.content.get(sector)) {
                old.copy_from_slice(new);
            }
        }
        Ok(())
    }

    /// Returns the content of the file after a crash.
    fn crash(&self, chance: &mut Chance) -> Vec<u8> {
        let (short, long) = (self.durable.len().min(self.content.len()), self.durable.len().max(self.content.len()));
        let length = short + chance.below(long - short + 1);
        let mut left = self.durable.clone();
        left.resize(length, 0);
        for (number, sector) in left.chunks_mut(SECTOR_BYTES).enumerate() {
            let from = number * SECTOR_BYTES;
            if (self.dirty.contains(&number) || self.forgotten.contains(&number))
                && chance.coin()
                && let Some(new) = self.content.get(from..from + sector.len())
            {
                sector.copy_from_slice(new);
            }
        }
        left
    }
}

/// Random numbers from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// Returns a number below `bound`, which must not be zero.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
