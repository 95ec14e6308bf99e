//! Keeps space on the volume of the data folder for work that must go on when the volume is full.
//!
//! The file `reserve` takes the space while there is enough of it. With less than twice its size beside it, this node
//! refuses new work; settles, opt-outs and pauses go on. With less than its size the file is removed, the node gets no
//! claims, and a leader hands over to a node that has more. All of that ends by itself when there is space again.
//! `monitoring/disk_watch.rs` checks it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use reveille_raft::files::{PRIVATE, remove_if_exists};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use serde::{Deserialize, Serialize};

/// Name of the file in the data folder.
const FILE: &str = "reserve";
/// The reserve takes at most this part of a volume.
const PART_OF_VOLUME: u64 = 20;
const MIB: u64 = 1024 * 1024;

/// Space on the volume of the data folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskSpace {
    /// Enough for everything.
    #[default]
    Ample,
    /// Too little for new work.
    Short,
    /// So little that the reserve is in use.
    Exhausted,
}

/// A volume that has too little space for new work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{} MiB are free in {folder}, and new work needs {}", free / MIB, needed.div_ceil(MIB))]
pub struct Shortage {
    /// A folder on the volume.
    pub folder: String,
    /// Free bytes.
    pub free: u64,
    /// Bytes that new work needs.
    pub needed: u64,
}

/// The reserve of a node. By default there is none.
#[derive(Debug, Default)]
pub struct DiskReserve {
    folder: PathBuf,
    bytes: u64,
    /// The last check.
    space: Mutex<DiskSpace>,
}

/// What the volume and the file are at one moment.
struct Reading {
    /// Bytes that the reserve takes of this volume.
    size: u64,
    /// The file is there and whole.
    kept: bool,
    /// Free bytes of the volume, without the file.
    free: u64,
}

impl DiskReserve {
    /// Returns the reserve of a data folder, and checks it once: a node that starts on a full volume may need it. With
    /// 0 `bytes` there is none.
    pub fn open(folder: &Path, bytes: u64) -> DiskReserve {
        let reserve = DiskReserve { folder: folder.to_owned(), bytes, space: Mutex::default() };
        if let Err(error) = reserve.check() {
            tracing::warn!(%error, "the reserve on the data volume could not be made or removed");
        }
        reserve
    }

    /// Returns true if there is a reserve.
    pub(crate) fn is_kept(&self) -> bool {
        self.bytes > 0
    }

    /// Returns the space at the last check.
    pub fn space(&self) -> DiskSpace {
        *self.space.lock()
    }

    /// Reads the volume. Returns what it lacks for new work; `None` if it has enough, or if it cannot be read.
    ///
    /// Asked before each command that is new work: between two checks a quick client can fill a small volume.
    pub fn shortage(&self) -> Option<Shortage> {
        if !self.is_kept() {
            return None;
        }
        let reading = self.read().ok()?;
        let (space, _) = judge(&reading);
        let needed = if reading.kept { 2 * reading.size } else { 3 * reading.size };
        let folder = self.folder.display().to_string();
        (space != DiskSpace::Ample).then_some(Shortage { folder, free: reading.free, needed })
    }

    /// Reads the volume, and makes, shortens or removes the file. Returns the space.
    ///
    /// # Errors
    /// Fails if the volume cannot be read, or if the file cannot be changed.
    pub(crate) fn check(&self) -> io::Result<DiskSpace> {
        if !self.is_kept() {
            return remove_if_exists(&self.file()).map(|()| DiskSpace::Ample);
        }
        let reading = self.read()?;
        let (space, keep) = judge(&reading);
        *self.space.lock() = space;
        match (reading.kept, keep) {
            (true, true) => shorten(&self.file(), reading.size)?,
            (false, true) => make(&self.file(), reading.size)?,
            (_, false) => remove_if_exists(&self.file())?,
        }
        Ok(space)
    }

    fn read(&self) -> io::Result<Reading> {
        let volume = statvfs(&self.folder)?;
        let size = self.bytes.min(volume.f_blocks * volume.f_frsize / PART_OF_VOLUME);
        // A crash may have left a file that is not whole, and the volume may have grown.
        let kept = std::fs::metadata(self.file()).is_ok_and(|file| file.len() >= size);
        Ok(Reading { size, kept, free: volume.f_bavail * volume.f_frsize })
    }

    fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }
}

/// Returns the space of a volume, and whether to keep the reserve. It is made again only with twice its size beside it,
/// so that it is not made and removed in turn.
fn judge(reading: &Reading) -> (DiskSpace, bool) {
    let &Reading { size, kept, free } = reading;
    let beside = if kept { free } else { free.saturating_sub(size) };
    let space = match beside {
        beside if beside >= 2 * size => DiskSpace::Ample,
        beside if beside >= size => DiskSpace::Short,
        _ => DiskSpace::Exhausted,
    };
    (space, space == DiskSpace::Ample || (kept && space == DiskSpace::Short))
}

/// Makes the file. Its space is allocated: a sparse file keeps none.
fn make(path: &Path, size: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    Ok(fallocate(&file, FallocateFlags::empty(), 0, size)?)
}

/// Frees what a larger reserve of a former start, or of a larger volume, takes.
fn shorten(path: &Path, size: u64) -> io::Result<()> {
    if std::fs::metadata(path)?.len() > size {
        OpenOptions::new().write(true).open(path)?.set_len(size)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn smaller_reserve_frees_what_a_larger_one_took() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(FILE);
        let length = || std::fs::metadata(&file).map(|file| file.len()).ok();
        for (bytes, expected) in [(3 * MIB, Some(3 * MIB)), (MIB, Some(MIB)), (0, None)] {
            let _reserve = DiskReserve::open(folder.path(), bytes);
            assert_eq!(length(), expected);
        }
    }

    #[test]
    fn reserve_is_removed_below_its_size_and_made_again_above_three_times() {
        use DiskSpace::{Ample, Exhausted, Short};
        for (free, kept, expected) in [
            (900, true, (Ample, true)),
            (200, true, (Ample, true)),
            (199, true, (Short, true)),
            (100, true, (Short, true)),
            (99, true, (Exhausted, false)),
            (199, false, (Exhausted, false)),
            (200, false, (Short, false)),
            (299, false, (Short, false)),
            (300, false, (Ample, true)),
        ] {
            assert_eq!(judge(&Reading { size: 100, kept, free }), expected, "{free} free, kept: {kept}");
        }
    }

    #[test]
    fn reserve_takes_its_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let reserve = DiskReserve::open(folder.path(), 3 * MIB);
        assert_eq!((reserve.space(), reserve.shortage()), (DiskSpace::Ample, None));
        let file = std::fs::metadata(folder.path().join(FILE)).expect("it is there");
        assert!(file.blocks() * 512 >= 3 * MIB, "{} blocks", file.blocks());
    }

    #[test]
    fn half_made_reserve_is_completed() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(FILE), b"half").expect("written");
        DiskReserve::open(folder.path(), MIB);
        let file = std::fs::metadata(folder.path().join(FILE)).expect("it is there");
        assert!(file.len() == MIB && file.blocks() * 512 >= MIB, "{} blocks", file.blocks());
    }
}
