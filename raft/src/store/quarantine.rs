//! Moves a damaged store away, and keeps the mark that distinguishes an emptied store from a new one.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::StoreError;

/// Damaged folders that are kept for analysis. Older ones are removed, so that repeated damage does not fill the disk.
const KEPT: usize = 2;

/// Moves the store at `path` to `<path>.damaged-<n>` (n counts up) and forgets that it held anything.
pub(super) fn quarantine(path: &Path, why: &StoreError) -> Result<(), StoreError> {
    const DOING: &str = "move the damaged state store away";
    let older = damaged(path).map_err(|error| StoreError::io(DOING, error))?;
    let number = older.last().map_or(1, |(number, _)| number.saturating_add(1));
    let target = sibling(path, &format!("damaged-{number}"));
    match fs::rename(path, &target) {
        Ok(()) => {
            tracing::warn!(%why, moved_to = %target.display(), "the state store was moved away; it is rewritten from snapshot and log")
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::warn!(%why, "the state store is missing; it is rewritten from snapshot and log");
        }
        Err(error) => return Err(StoreError::io(DOING, error)),
    }
    remove_if_there(fs::remove_file(mark(path))).map_err(|error| StoreError::io(DOING, error))?;
    for (_, folder) in older.iter().rev().skip(KEPT - 1) {
        if let Err(error) = fs::remove_dir_all(folder) {
            tracing::warn!(folder = %folder.display(), %error, "an old damaged state store could not be removed");
        }
    }
    Ok(())
}

/// Removes the store at `path`, but not the mark: until new rows are in, it counts as unexpectedly empty.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    remove_if_there(fs::remove_dir_all(path)).map_err(|error| StoreError::io("remove the former state store", error))
}

/// From now on an empty store at `path` is damage. Written before the first row.
pub(super) fn expect_rows(path: &Path) -> Result<(), StoreError> {
    let write = || -> io::Result<()> {
        let mark = mark(path);
        if mark.exists() {
            return Ok(());
        }
        File::create(&mark)?.sync_all()?;
        mark.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(|error| StoreError::io("mark the state store as filled", error))
}

/// Was anything ever written to the store at `path`?
pub(super) fn rows_expected(path: &Path) -> bool {
    mark(path).exists()
}

fn mark(path: &Path) -> PathBuf {
    sibling(path, "filled")
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// The folders set aside so far, by number.
fn damaged(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let prefix = sibling(path, "damaged-");
    let prefix = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix(&prefix).and_then(|number| number.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn remove_if_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
