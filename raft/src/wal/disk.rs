//! The interface between the log and the disk: one folder of files.
//!
//! [`FolderDisk`] is the real disk, [`super::MemoryDisk`] is for tests and simulations. The contract is that of POSIX:
//! a write is readable at once and durable after [`DiskFile::sync`]; a created or removed file is durable after
//! [`Disk::sync_folder`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};

/// One folder of files. File names have no path.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file. Fails if the name exists.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Returns the names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a file. An open handle can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all creations and removals so far durable.
    fn sync_folder(&self) -> io::Result<()>;
}

/// One open file. Offsets are bytes from its start.
pub trait DiskFile: Send + Sync + 'static {
    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Fills the whole buffer from `offset`. Fails if the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all bytes at `offset`. `offset` must not exceed the length: the file has no holes.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Truncates the file to `length` bytes.
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Makes content and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Drops what the system has of the file in memory, so that the next read is one of the disk.
    fn forget_cached(&self) {}
}

/// A folder of the operating system.
#[derive(Clone, Debug)]
pub struct FolderDisk {
    folder: PathBuf,
}

impl FolderDisk {
    /// Opens the folder; creates it durably if it is missing.
    pub fn open(folder: &Path) -> io::Result<Self> {
        if !folder.is_dir() {
            std::fs::create_dir_all(folder)?;
            if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { folder: folder.to_owned() })
    }
}

impl Disk for FolderDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(self.folder.join(name))?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.folder.join(name))?;
        Ok(Arc::new(file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            // Skips names that are not UTF-8: the log creates only UTF-8 names.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn forget_cached(&self) {
        // Only advice: a check that reads memory finds less.
        let _ = fadvise(self, 0, None, Advice::DontNeed);
    }
}
