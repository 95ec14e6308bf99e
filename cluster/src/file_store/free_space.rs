//! Checks if the volume of the parts has space for a part.
//!
//! Called before a part is written or fetched. Parts leave space for the log: a node whose log has no space stops,
//! while an import that waits loses nothing.

use std::io;
use std::path::Path;

use crate::monitoring::disk_reserve::Shortage;

/// Bytes of the volume that parts leave free for the log, at most a tenth of the volume. Twice the default of
/// `disk_reserve_mib`, below which a node takes no new work (`monitoring/disk_reserve.rs`). A constant, because parts may be
/// on another volume than the reserve.
pub(super) const KEPT_FREE: u64 = 512 * 1024 * 1024;

/// Checks that the volume of a folder has space for a part and for the log.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`] if there is no space, or another kind if the volume cannot be read.
pub(super) fn has_room(folder: &Path, bytes: u64) -> io::Result<()> {
    match shortage(folder, bytes)? {
        None => Ok(()),
        Some(shortage) => Err(io::Error::new(io::ErrorKind::StorageFull, shortage.to_string())),
    }
}

/// Returns what the volume of a folder lacks for a part and for the log; `None` if it has enough.
///
/// # Errors
/// Fails if the volume cannot be read.
pub(super) fn shortage(folder: &Path, bytes: u64) -> io::Result<Option<Shortage>> {
    Ok(shortage_of(folder, bytes, volume(folder)?))
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

pub(super) fn shortage_of(folder: &Path, bytes: u64, volume: Volume) -> Option<Shortage> {
    let needed = bytes.saturating_add(KEPT_FREE.min(volume.total / 10));
    (volume.free < needed).then(|| Shortage { folder: folder.display().to_string(), free: volume.free, needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * 1024 * 1024;

    #[test]
    fn part_is_refused_when_log_needs_the_room() {
        let asked = |bytes, free, total| shortage_of(Path::new("/parts"), bytes, Volume { free, total });
        assert_eq!(asked(GIB, 2 * GIB, 100 * GIB), None);
        assert_eq!(asked(GIB, GIB + KEPT_FREE, 100 * GIB), None);
        let short = asked(GIB, GIB + KEPT_FREE - 1, 100 * GIB).expect("nothing would be left");
        assert_eq!(short.to_string(), "1535 MiB are free in /parts, and new work needs 1536");
        assert_eq!(asked(GIB / 2, GIB - GIB / 10, GIB), None, "of a small volume a tenth is kept");
    }
}
