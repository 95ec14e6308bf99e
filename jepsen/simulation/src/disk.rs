//! The disk under a node's log, in memory. A power cut, which can be armed for the middle of a sync, loses unsynced
//! writes. When the process ends, its tasks that still run can no longer write.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_raft::wal::{Disk, DiskFile, MemoryDisk};
use tokio::sync::Notify;

use crate::network::ProcessId;
use crate::trace::Trace;

struct PowerState {
    dead: bool,
    /// Number of syncs until the armed power cut, including the sync in which the power is cut.
    cut_in: Option<u64>,
    /// The disk after the power cut.
    left: Option<MemoryDisk>,
}

/// The access of one process to its disk. Clones share it.
#[derive(Clone)]
pub struct LogDisk {
    inner: MemoryDisk,
    state: Arc<Mutex<PowerState>>,
    /// Notified by an armed power cut.
    cut: Arc<Notify>,
    process: ProcessId,
    trace: Trace,
}

impl LogDisk {
    /// Returns the access of a new process to the disk that former processes left.
    pub fn new(inner: MemoryDisk, process: ProcessId, trace: Trace) -> LogDisk {
        let state = PowerState { dead: false, cut_in: None, left: None };
        LogDisk { inner, state: Arc::new(Mutex::new(state)), cut: Arc::new(Notify::new()), process, trace }
    }

    /// Arms a power cut in the middle of the n-th sync from now (1: the next sync).
    pub fn arm(&self, syncs: u64) {
        self.state.lock().cut_in = Some(syncs);
    }

    /// Removes an armed power cut.
    pub fn disarm(&self) {
        self.state.lock().cut_in = None;
    }

    /// Waits until an armed power cut occurs.
    pub async fn was_cut(&self) {
        self.cut.notified().await;
    }

    /// Stops this handle, as a `kill -9` would, and returns the disk that the next process opens. No write is lost.
    pub fn kill(&self) -> MemoryDisk {
        let mut state = self.state.lock();
        state.dead = true;
        state.left.take().unwrap_or_else(|| MemoryDisk::with(self.inner.files()))
    }

    /// Stops this handle, as a power cut would, and returns the disk that the next process opens. Unsynced writes are
    /// lost, as `seed` decides.
    pub fn lose_power(&self, seed: u64) -> MemoryDisk {
        let mut state = self.state.lock();
        state.dead = true;
        state.left.take().unwrap_or_else(|| self.inner.crash(seed))
    }

    fn alive(&self) -> io::Result<()> {
        match self.state.lock().dead {
            true => Err(io::Error::other("the node is dead")),
            false => Ok(()),
        }
    }

    /// Called before each sync.
    fn may_be_cut(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        match &mut state.cut_in {
            Some(1) => {
                state.cut_in = None;
                state.left = Some(self.inner.crash(self.trace.elapsed().as_nanos() as u64));
                state.dead = true;
                drop(state);
                self.cut.notify_one();
                Err(io::Error::other("the power is gone"))
            }
            Some(more) => {
                *more -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Disk for LogDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?;
        Ok(Arc::new(LogFile { file: self.inner.create(name)?, disk: self.clone() }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?;
        Ok(Arc::new(LogFile { file: self.inner.open(name)?, disk: self.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.alive()?;
        self.inner.remove(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.alive()?;
        self.may_be_cut()?;
        self.inner.sync_folder()
    }
}

struct LogFile {
    file: Arc<dyn DiskFile>,
    disk: LogDisk,
}

impl DiskFile for LogFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.alive()?;
        self.disk.trace.record(b'w', &[self.disk.process.node.0, offset, u64::from(crc32c::crc32c(bytes))]);
        self.file.write_at(offset, bytes)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.disk.alive()?;
        self.file.cut(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.alive()?;
        self.disk.may_be_cut()?;
        self.file.sync()
    }
}
