//! Checks if the volume has space for a part. A shortage is logged once and remembered until there is space again.
//!
//! Called before a part is written or fetched. Parts leave space for the log: a node whose log has no space stops,
//! while an import that waits loses nothing.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// Bytes of the volume that parts leave free for the log, at most a tenth of the volume.
pub(super) const KEPT_FREE: u64 = 256 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;

/// Free space on the volume of the parts.
pub(super) struct FreeSpace {
    folder: PathBuf,
    short: Mutex<Option<Shortage>>,
}

/// A part for which there was no space.
#[derive(Clone)]
struct Shortage {
    bytes: u64,
    why: String,
    /// True if a quota was exceeded. The volume's own numbers do not show quotas.
    by_quota: bool,
}

impl FreeSpace {
    pub fn of(folder: PathBuf) -> FreeSpace {
        FreeSpace { folder, short: Mutex::default() }
    }

    /// Returns why parts are refused now. `None` if there is space.
    pub fn shortage(&self) -> Option<String> {
        self.short.lock().as_ref().map(|short| short.why.clone())
    }

    /// Checks that there is space for a part and for the log.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no space, or another kind if the volume cannot be read.
    pub fn ask(&self, bytes: u64) -> io::Result<()> {
        let room = leaves_room(&self.folder, bytes, volume(&self.folder)?);
        room.inspect_err(|error| self.note(Shortage { bytes, why: error.to_string(), by_quota: false }))
    }

    /// Records the result of writing a part. If the volume was full, the returned error says how much is free.
    pub fn wrote(&self, bytes: u64, written: io::Result<()>) -> io::Result<()> {
        let Err(error) = written else {
            self.clear();
            return Ok(());
        };
        let by_quota = error.kind() == io::ErrorKind::QuotaExceeded;
        if !by_quota && error.kind() != io::ErrorKind::StorageFull {
            return Err(error);
        }
        let free = volume(&self.folder).map_or(0, |volume| volume.free);
        let why = format!("{error}; {} MiB are free in {}", free / MIB, self.folder.display());
        self.note(Shortage { bytes, why: why.clone(), by_quota });
        Err(io::Error::new(error.kind(), why))
    }

    /// Checks again after a shortage: an operator may have freed space.
    pub fn check_again(&self) {
        let Some(short) = self.short.lock().clone() else { return };
        let has_room = || volume(&self.folder).and_then(|volume| leaves_room(&self.folder, short.bytes, volume));
        if !short.by_quota && has_room().is_ok() {
            self.clear();
        }
    }

    fn note(&self, shortage: Shortage) {
        let why = shortage.why.clone();
        // Logged once for all parts of an import and all its attempts.
        if self.short.lock().replace(shortage).is_none() {
            tracing::warn!(why, "no room for parts of audiences: imports wait, nothing is lost; free space there");
        }
    }

    fn clear(&self) {
        if self.short.lock().take().is_some() {
            tracing::info!(folder = %self.folder.display(), "there is room for parts of audiences again");
        }
    }
}

/// Sizes of a volume in bytes.
#[derive(Clone, Copy)]
pub(super) struct Volume {
    pub free: u64,
    pub total: u64,
}

fn volume(folder: &Path) -> io::Result<Volume> {
    let volume = rustix::fs::statvfs(folder)?;
    Ok(Volume { free: volume.f_bavail * volume.f_frsize, total: volume.f_blocks * volume.f_frsize })
}

pub(super) fn leaves_room(folder: &Path, bytes: u64, volume: Volume) -> io::Result<()> {
    let kept = KEPT_FREE.min(volume.total / 10);
    if volume.free >= bytes.saturating_add(kept) {
        return Ok(());
    }
    let (needed, free, kept) = (bytes.div_ceil(MIB), volume.free / MIB, kept.div_ceil(MIB));
    let folder = folder.display();
    let why = format!("{free} MiB are free in {folder} for a part of {needed}, and {kept} are kept free for the log");
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB;

    #[test]
    fn part_is_refused_when_log_needs_the_room() {
        let asked = |bytes, free, total| leaves_room(Path::new("/parts"), bytes, Volume { free, total });
        assert!(asked(GIB, 2 * GIB, 100 * GIB).is_ok());
        assert!(asked(GIB, GIB + KEPT_FREE, 100 * GIB).is_ok());
        let refused = asked(GIB, GIB + KEPT_FREE - 1, 100 * GIB).expect_err("nothing would be left");
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let why = "1279 MiB are free in /parts for a part of 1024, and 256 are kept free for the log";
        assert_eq!(refused.to_string(), why);
        assert!(asked(GIB / 2, GIB - GIB / 10, GIB).is_ok(), "of a small volume a tenth is kept");
    }

    #[test]
    fn shortage_is_reported_until_there_is_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let room = FreeSpace::of(folder.path().to_owned());
        let other = room.wrote(1, Err(io::ErrorKind::PermissionDenied.into()));
        assert!(other.is_err() && room.shortage().is_none(), "that is no shortage");
        assert!(room.ask(u64::MAX / 2).is_err());
        let known = room.shortage().expect("it is known");
        assert!(known.contains(&format!("MiB are free in {}", folder.path().display())), "{known}");
        room.check_again();
        assert!(room.shortage().is_some(), "there is none for so large a part");
        room.wrote(1, Ok(())).expect("it was written");
        assert!(room.shortage().is_none());

        let full = room.wrote(1, Err(io::ErrorKind::StorageFull.into())).expect_err("the system found no room");
        assert!(full.kind() == io::ErrorKind::StorageFull && full.to_string().contains("MiB are free in"), "{full}");
        assert_eq!(room.shortage(), Some(full.to_string()));
        room.check_again();
        assert!(room.shortage().is_none(), "there is room by now");

        assert!(room.wrote(1, Err(io::ErrorKind::QuotaExceeded.into())).is_err());
        room.check_again();
        assert!(room.shortage().is_some(), "the volume does not tell of quotas");
    }
}
