//! Files that are either whole or not there: tmp, sync, rename, sync of the folder.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::SnapshotError;

const UNFINISHED: &str = ".tmp";

/// Makes two writers of one name use two tmp files.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Turns an I/O error into ours; `what` is verb and object.
pub(super) fn doing(what: &str) -> impl FnOnce(io::Error) -> SnapshotError + use<'_> {
    move |source| match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => SnapshotError::Full { doing: what.to_owned() },
        _ => SnapshotError::Io { doing: what.to_owned(), source },
    }
}

/// Writes a file whole: under its name lies either what lay there before or all of `bytes`, synced. The rename itself
/// is safe after [`sync_folder`].
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
        // The error that matters is the first; what stays is removed at the next open.
        let _ = fs::remove_file(&unfinished);
        doing("write a snapshot file")(error)
    })
}

/// Makes renames and removals in `folder` survive a power cut.
pub(super) fn sync_folder(folder: &Path) -> Result<(), SnapshotError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(doing("sync a snapshot folder"))
}

/// Removes what a crash left half written.
pub(super) fn remove_leftovers(folder: &Path) -> Result<(), SnapshotError> {
    for name in names(folder)?.iter().filter(|name| name.ends_with(UNFINISHED)) {
        tracing::info!(name, "removed a snapshot file that was not written to its end");
        remove(&folder.join(name))?;
    }
    Ok(())
}

/// Removes a file; that it is gone already is fine.
pub(super) fn remove(path: &Path) -> Result<(), SnapshotError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(doing("remove a snapshot file")(error)),
        _ => Ok(()),
    }
}

/// Names in `folder` that are text (ours all are).
pub(super) fn names(folder: &Path) -> Result<Vec<String>, SnapshotError> {
    let list = || -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    };
    list().map_err(doing("list a snapshot folder"))
}
