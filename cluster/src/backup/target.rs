//! Where backups are kept: named immutable files in a few folders.
//!
//! Here is [`FolderTarget`], a folder that is usually a mount. [`super::bucket`] has the other one. All calls block.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use reveille_raft::files;

/// Permissions of files and folders, limited by the process's umask: several nodes may share a target.
const FILE_MODE: u32 = 0o660;
const FOLDER_MODE: u32 = 0o770;
/// End of the name of a file that is not complete.
const UNFINISHED: &str = ".new";

/// A file of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its name, with its folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last write.
    pub modified: SystemTime,
}

impl StoredFile {
    /// Returns true if a writer ended before the file was complete, or has not ended yet.
    pub fn is_unfinished(&self) -> bool {
        self.name.ends_with(UNFINISHED)
    }
}

/// A place for backups. A name is `FOLDER/FILE`; both have no special characters.
pub trait BackupTarget: Send + Sync {
    /// Stores a file durably. After a crash it has its former content, if any, or all of `bytes`.
    ///
    /// # Errors
    /// The error of the system.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Returns the content of a file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], or another error of the system.
    fn get(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Returns size and age of a file. `None`: there is none.
    ///
    /// # Errors
    /// The error of the system.
    fn stat(&self, name: &str) -> io::Result<Option<StoredFile>>;

    /// Returns the files of a folder, in any order. A folder that does not exist is empty.
    ///
    /// # Errors
    /// The error of the system.
    fn list(&self, folder: &str) -> io::Result<Vec<StoredFile>>;

    /// Removes a file, if it exists.
    ///
    /// # Errors
    /// The error of the system.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Returns how operators name the place of a file.
    fn place(&self, name: &str) -> String;
}

/// Stores a file that must not exist. Two writers of one name at the same time must write the same.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`], or another error of the system.
pub fn put_new(target: &dyn BackupTarget, name: &str, bytes: &[u8]) -> io::Result<()> {
    match target.stat(name)? {
        Some(_) => Err(ErrorKind::AlreadyExists.into()),
        None => target.put(name, bytes),
    }
}

/// A folder of the operating system.
#[derive(Clone, Debug)]
pub struct FolderTarget {
    root: PathBuf,
}

impl FolderTarget {
    /// Returns the target in this folder. The folder itself must exist when something is written: it may be the place
    /// of a mount.
    pub fn new(root: &Path) -> FolderTarget {
        FolderTarget { root: root.to_owned() }
    }
}

impl BackupTarget for FolderTarget {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        fs::metadata(&self.root)?;
        let folder = self.root.join(folder);
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&folder)?;
        let draft = format!("{file}.{:016x}{UNFINISHED}", rand::random::<u64>());
        let written = files::replace_by(&folder, file, &draft, bytes, FILE_MODE);
        if written.is_err() {
            // An error here says less than the first one, and pruning removes the file.
            let _ = fs::remove_file(folder.join(draft));
        }
        written
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.root.join(name))
    }

    fn stat(&self, name: &str) -> io::Result<Option<StoredFile>> {
        let found = fs::metadata(self.root.join(name));
        let found = found.and_then(|known| Ok((known.len(), known.modified()?)));
        missing_is_none(found.map(|(bytes, modified)| StoredFile { name: name.to_owned(), bytes, modified }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        let Some(entries) = missing_is_none(fs::read_dir(self.root.join(folder)))? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            // This program writes only names that are UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // It may have been removed since it was listed.
            let Some(known) = missing_is_none(entry.metadata())? else { continue };
            if known.is_file() {
                let name = format!("{folder}/{name}");
                found.push(StoredFile { name, bytes: known.len(), modified: known.modified()? });
            }
        }
        Ok(found)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        missing_is_none(fs::remove_file(self.root.join(name))).map(drop)
    }

    fn place(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }
}

fn missing_is_none<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_keeps_files_and_never_replaces_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(folder.path());
        assert_eq!(target.list("a").unwrap(), []);
        put_new(&target, "a/one", b"first").unwrap();
        assert_eq!(put_new(&target, "a/one", b"second").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(target.get("a/one").unwrap(), b"first");
        target.put("a/one", b"second").unwrap();
        let [listed] = &target.list("a").unwrap()[..] else { panic!("no draft is left") };
        assert_eq!((listed.name.as_str(), listed.bytes), ("a/one", 6));
        assert_eq!(target.stat("a/one").unwrap().as_ref(), Some(listed));
        target.delete("a/one").unwrap();
        target.delete("a/one").unwrap();
        assert_eq!(target.stat("a/one").unwrap(), None);
        assert_eq!(target.get("a/one").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn folder_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(&folder.path().join("mount"));
        assert_eq!(target.put("a/one", b"first").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
