//! A small disk for tests of a full disk: of snapshots here, and of a whole node (`node/tests/node/main.rs` includes
//! this file).

use std::path::Path;
use std::process::Command;

/// A file system in memory, of a few megabytes. Unmounted on drop, even after a panic.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts a file system. Without root it reports that the test is skipped, and returns `None`.
    pub(crate) fn mount(megabytes: u32) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounting = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        if mounting.is_ok_and(|mounting| mounting.status.success()) {
            return Some(SmallDisk { folder });
        }
        reveille_strict::skip("only root can mount a small tmpfs");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy, because a thread of a node may hold a file for a moment longer.
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}
