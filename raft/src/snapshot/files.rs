//! Atomic file writes: temporary file, sync, rename, sync of the folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::SnapshotError;
use crate::files::remove_if_exists;

const UNFINISHED: &str = ".tmp";

/// Counter in the names of temporary files, so that two writers of one file use different ones.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Returns a converter for I/O errors; `what` is verb and object of the operation.
pub(super) fn doing(what: &str) -> impl FnOnce(io::Error) -> SnapshotError + use<'_> {
    move |source| SnapshotError::Io { doing: what.to_owned(), source }
}

/// As [`doing`], for a read. A sector that the disk cannot read counts as damage and not as a failed disk: the file is
/// repaired by writing it again, to other sectors. It is logged as an error, because more sectors may fail soon.
pub(super) fn reading(what: &str) -> impl FnOnce(io::Error) -> SnapshotError + use<'_> {
    move |error| match error.raw_os_error() == Some(Errno::IO.raw_os_error()) {
        true => {
            tracing::error!(%error, "cannot {what}: the disk may be failing; check it, and replace it");
            SnapshotError::damaged(format!("cannot {what}: {error}"))
        }
        false => doing(what)(error),
    }
}

/// Writes a file atomically: the file has either its former content or all of `bytes`, synced. The rename is durable
/// after [`sync_folder`].
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), SnapshotError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}{UNFINISHED}", WRITES.fetch_add(1, Ordering::Relaxed)));
    let unfinished = path.with_file_name(name);
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|error| {
        // Report the first error. If this removal fails, the next open removes the file.
        let _ = fs::remove_file(&unfinished);
        doing("write a snapshot file")(error)
    })
}

/// Makes renames and removals in `folder` durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), SnapshotError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(doing("sync a snapshot folder"))
}

/// Removes temporary files that a crash left behind.
pub(super) fn remove_leftovers(folder: &Path) -> Result<(), SnapshotError> {
    for name in names(folder)?.iter().filter(|name| name.ends_with(UNFINISHED)) {
        tracing::info!(name, "removed a snapshot file that was not written to its end");
        remove(&folder.join(name))?;
    }
    Ok(())
}

/// Removes a file if it exists.
pub(super) fn remove(path: &Path) -> Result<(), SnapshotError> {
    remove_if_exists(path).map_err(doing("remove a snapshot file"))
}

/// Returns the names in `folder` that are UTF-8. This crate writes only such names.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, SnapshotError> {
    let list = || -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    };
    list().map_err(doing("list a snapshot folder"))
}
