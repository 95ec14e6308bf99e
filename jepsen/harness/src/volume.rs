//! A disk for one node: an ext4 file system in a file. It can lose power and can be filled.
//!
//! Synced data is in the file; data that was only written is in the memory of the mounted file system. So a copy of the
//! file, taken while it is mounted, is what a disk holds after a power cut.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tool;

/// Size of the disk in bytes, enough for a run of an hour. The file is sparse.
const VOLUME_BYTES: u64 = 1 << 30;
/// The file that fills the disk.
const FILLER: &str = "filler";

/// A mounted image. Dropping it unmounts the image.
pub struct Volume {
    image: PathBuf,
    mount_point: PathBuf,
}

impl Volume {
    /// Returns why this machine cannot have such a disk. `None`: it can.
    pub fn missing() -> Option<String> {
        tool::missing("disks", &["mkfs.ext4", "mount", "umount", "cp"])
    }

    /// Creates an image in `folder` and mounts it at `mount_point`.
    pub fn new(folder: &Path, name: &str, mount_point: &Path) -> Result<Volume> {
        let image = folder.join(format!("{name}.ext4"));
        File::create_new(&image)?.set_len(VOLUME_BYTES)?;
        fs::create_dir_all(mount_point)?;
        // All tables and the journal are written now, not later in the background.
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        tool::run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", options, tool::text(&image)?])?;
        mount(&image, mount_point)?;
        Ok(Volume { image, mount_point: mount_point.to_owned() })
    }

    /// Simulates a power cut: data that was not synced is lost. No process may have a file of the disk open.
    pub fn cut_power(&mut self) -> Result<()> {
        let after = self.image.with_extension("after");
        tool::run("cp", &["--sparse=always", tool::text(&self.image)?, tool::text(&after)?])?;
        unmount(&self.mount_point)?;
        fs::rename(&after, &self.image)?;
        mount(&self.image, &self.mount_point)
    }

    /// Fills the disk completely.
    pub fn fill(&self) -> Result<()> {
        let filler = self.mount_point.join(FILLER);
        let mut block = VOLUME_BYTES;
        let file = File::create(&filler)?;
        let mut bytes = 0;
        // Halves the size until not even one block fits.
        while block >= 4_096 {
            match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), bytes, block) {
                Ok(()) => bytes += block,
                Err(rustix::io::Errno::NOSPC) => block /= 2,
                Err(error) => return Err(error).context("filling a disk"),
            }
        }
        Ok(())
    }

    /// Removes the filler. A power cut may have removed it before, since it was not synced.
    pub fn empty(&self) -> Result<()> {
        match fs::remove_file(self.mount_point.join(FILLER)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("the filler of a disk"),
            _ => Ok(()),
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.mount_point) {
            eprintln!("{error:#}");
        }
    }
}

fn mount(image: &Path, mount_point: &Path) -> Result<()> {
    tool::run("mount", &["-t", "ext4", "-o", "loop,noatime", tool::text(image)?, tool::text(mount_point)?])
}

/// Unmounts the disk and frees its loop device. Unmounts lazily if a process that just ended still holds a file.
fn unmount(mount_point: &Path) -> Result<()> {
    let mount_point = tool::text(mount_point)?;
    tool::run("umount", &[mount_point]).or_else(|_| tool::run("umount", &["--lazy", mount_point]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_cut_loses_only_unsynced_data() {
        if let Some(why) = Volume::missing() {
            reveille_strict::skip(&why);
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mount_point = folder.path().join("mount_point");
        let Ok(mut volume) = Volume::new(folder.path(), "one", &mount_point) else {
            reveille_strict::skip("this machine mounts no images");
            return;
        };
        fs::write(mount_point.join("synced"), "synced").unwrap();
        File::open(mount_point.join("synced")).unwrap().sync_all().unwrap();
        File::open(&mount_point).unwrap().sync_all().unwrap();
        fs::write(mount_point.join("written"), "written").unwrap();
        volume.cut_power().unwrap();
        assert_eq!(fs::read_to_string(mount_point.join("synced")).unwrap(), "synced");
        assert!(!mount_point.join("written").exists());

        volume.fill().unwrap();
        let full = fs::write(mount_point.join("more"), [1; 8_192]);
        assert_eq!(full.unwrap_err().raw_os_error(), Some(28), "ENOSPC");
        volume.empty().unwrap();
        // ext4 frees blocks when its journal is committed.
        File::open(&mount_point).unwrap().sync_all().unwrap();
        fs::write(mount_point.join("more"), [1; 8_192]).unwrap();
        drop(volume);
        assert_eq!(fs::read_dir(&mount_point).unwrap().count(), 0, "unmounted");
    }
}
