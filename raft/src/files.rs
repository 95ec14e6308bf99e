//! Small files of a data folder, and of the command line.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Folder of the log in a data folder.
pub const LOG_FOLDER: &str = "wal";
/// Folder of the snapshots in a data folder.
pub const SNAPSHOTS_FOLDER: &str = "snapshots";
/// Permissions of a file that its owner alone may read.
pub const PRIVATE: u32 = 0o600;
/// Permissions of a file that everyone may read.
pub const PUBLIC: u32 = 0o644;

/// Creates a folder and its parents, as far as they do not exist, so that only their owner may read what is in them:
/// the log and the snapshots have addresses.
///
/// # Errors
/// The error of the system.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces a file durably: after a crash it has the former or the new content. The process's umask limits `mode`.
///
/// # Errors
/// The error of the system. The file then has its former content.
pub fn replace(folder: &Path, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = format!("{name}.new");
    // A draft that a crash left could have other permissions.
    remove_if_exists(&folder.join(&draft))?;
    replace_by(folder, name, &draft, content, mode)
}

/// As [`replace`], with a name for the draft, which must be free: for a folder that several processes write.
///
/// # Errors
/// The error of the system. The file then has its former content.
pub fn replace_by(folder: &Path, name: &str, draft: &str, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = folder.join(draft);
    let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&draft, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Returns the content of a file as it is on the disk. The system's copy in memory, which may hide damage, is dropped.
///
/// # Errors
/// The error of the system.
pub fn read_from_disk(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a file if it exists.
///
/// # Errors
/// The error of the system, if the file could not be removed.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn private_file_stays_private_after_a_crash_left_a_public_draft() {
        let folder = tempfile::tempdir().unwrap();
        replace(folder.path(), "key.new", b"draft", PUBLIC).unwrap();
        replace(folder.path(), "key", b"secret", PRIVATE).unwrap();
        let path = folder.path().join("key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
    }
}
