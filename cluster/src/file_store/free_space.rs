//! Checks if the volume of the parts has space for a part.
//!
//! Called before a part is written or fetched. Parts leave space for the log: a node whose log has no space stops,
//! while an import that waits loses nothing.

use std::io;
use std::path::Path;

/// Bytes of the volume that parts leave free for the log, at most a tenth of the volume: below it the node takes no new
/// work (`process/disk_reserve.rs`).
pub(super) const KEPT_FREE: u64 = 512 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;

/// Checks that the volume of a folder has space for a part and for the log.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`] if there is no space, or another kind if the volume cannot be read.
pub(super) fn has_room(folder: &Path, bytes: u64) -> io::Result<()> {
    leaves_room(folder, bytes, volume(folder)?)
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
        let why = "1535 MiB are free in /parts for a part of 1024, and 512 are kept free for the log";
        assert_eq!(refused.to_string(), why);
        assert!(asked(GIB / 2, GIB - GIB / 10, GIB).is_ok(), "of a small volume a tenth is kept");
    }
}
