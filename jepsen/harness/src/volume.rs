//! A disk for one node: an ext4 file system in a file. It can lose power and can be filled.
//!
//! Synced data is in the file; data that was only written is in the memory of the mounted file system. So a copy of the
//! file, taken while it is mounted, is what a disk holds after a power cut.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tool;

/// Size of the disk, enough for a run of an hour. The file is sparse.
const VOLUME_BYTES: u64 = 1 << 30;
/// The file that fills the disk.
const FILLER: &str = "filler";

/// A mounted image. A drop unmounts it.
pub struct Volume {
    image: PathBuf,
    place: PathBuf,
}

impl Volume {
    /// Returns why this machine cannot have such a disk; `None` if it can.
    pub fn missing() -> Option<String> {
        tool::missing("disks", &["mkfs.ext4", "mount", "umount", "cp"])
    }

    /// Creates an image in `folder` and mounts it at `place`.
    pub fn new(folder: &Path, name: &str, place: &Path) -> Result<Volume> {
        let image = folder.join(format!("{name}.ext4"));
        File::create_new(&image)?.set_len(VOLUME_BYTES)?;
        fs::create_dir_all(place)?;
        // All tables and the journal are written now, not later in the background.
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        tool::run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", options, tool::text(&image)?])?;
        mount(&image, place)?;
        Ok(Volume { image, place: place.to_owned() })
    }

    /// Simulates a power cut: data that was not synced is lost. No process may have a file of the disk open.
    pub fn cut_power(&mut self) -> Result<()> {
        let after = self.image.with_extension("after");
        tool::run("cp", &["--sparse=always", tool::text(&self.image)?, tool::text(&after)?])?;
        unmount(&self.place)?;
        fs::rename(&after, &self.image)?;
        mount(&self.image, &self.place)
    }

    /// Fills the disk completely.
    pub fn fill(&self) -> Result<()> {
        let filler = self.place.join(FILLER);
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
        match fs::remove_file(self.place.join(FILLER)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("the filler of a disk"),
            _ => Ok(()),
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.place) {
            eprintln!("{error:#}");
        }
    }
}

fn mount(image: &Path, place: &Path) -> Result<()> {
    tool::run("mount", &["-t", "ext4", "-o", "loop,noatime", tool::text(image)?, tool::text(place)?])
}

/// Unmounts the disk and frees its loop device. Unmounts lazily if a process that just ended still holds a file.
fn unmount(place: &Path) -> Result<()> {
    let place = tool::text(place)?;
    tool::run("umount", &[place]).or_else(|_| tool::run("umount", &["--lazy", place]))
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
        let place = folder.path().join("place");
        let Ok(mut volume) = Volume::new(folder.path(), "one", &place) else {
            reveille_strict::skip("this machine mounts no images");
            return;
        };
        fs::write(place.join("synced"), "synced").unwrap();
        File::open(place.join("synced")).unwrap().sync_all().unwrap();
        File::open(&place).unwrap().sync_all().unwrap();
        fs::write(place.join("written"), "written").unwrap();
        volume.cut_power().unwrap();
        assert_eq!(fs::read_to_string(place.join("synced")).unwrap(), "synced");
        assert!(!place.join("written").exists());

        volume.fill().unwrap();
        let full = fs::write(place.join("more"), [1; 8_192]);
        assert_eq!(full.unwrap_err().raw_os_error(), Some(28), "ENOSPC");
        volume.empty().unwrap();
        // ext4 frees blocks when its journal is committed.
        File::open(&place).unwrap().sync_all().unwrap();
        fs::write(place.join("more"), [1; 8_192]).unwrap();
        drop(volume);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "unmounted");
    }
}
