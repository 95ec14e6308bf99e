//! Where journals lie, what is left over there, and in which life of the machine.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId};

/// File systems that are memory: `TMPFS_MAGIC`, `RAMFS_MAGIC` (linux/magic.h).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// A journal of a former life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Which life's.
    pub incarnation: Incarnation,
    /// Where.
    pub path: PathBuf,
}

/// The kernel's id of this life of the machine.
///
/// # Errors
/// Where there is no `/proc`: then no journal can prove anything, and none should be begun.
pub fn boot_id() -> io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

/// The journals of `node` in `folder`, by life. None when there is no such folder.
///
/// # Errors
/// When the folder cannot be read.
pub fn leftovers(folder: &Path, node: NodeId) -> io::Result<Vec<Leftover>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let incarnation = entry.file_name().to_str().and_then(|name| incarnation(name, node));
        found.extend(incarnation.map(|incarnation| Leftover { incarnation, path: entry.path() }));
    }
    found.sort_by_key(|leftover| leftover.incarnation);
    Ok(found)
}

/// Deletes the journal of a life of which no claim is open any more (P11), and what it left unfinished.
///
/// # Errors
/// When a file is there and cannot be removed.
pub fn delete(folder: &Path, process: ClaimOwner) -> io::Result<()> {
    let path = path(folder, process);
    for file in [unfinished(&path), path] {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The file of one life.
pub(super) fn path(folder: &Path, process: ClaimOwner) -> PathBuf {
    folder.join(format!("journal-{}-{}", process.node, process.incarnation.0))
}

/// The file that is to take the place of `path`.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension("unfinished")
}

/// Makes the folder, for its owner alone, and says so when it does not lie in memory.
pub(super) fn prepare(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if !in_memory(folder)? {
        tracing::error!(
            folder = %folder.display(),
            "the journal does not lie in memory: each email may wait for a disk, and a reboot voids it all the same; \
             name a folder on a tmpfs with --journal-dir"
        );
    }
    Ok(())
}

/// Does a folder lie in memory (P11)? On a disk a journal proves no more: its header names the life of the
/// machine, so that what a power cut left of it is not believed. It costs a disk's time for each mail.
///
/// # Errors
/// When the folder cannot be listed.
pub fn in_memory(folder: &Path) -> io::Result<bool> {
    let file_system = rustix::fs::statfs(folder)?.f_type as u64;
    Ok(IN_MEMORY.contains(&(file_system & 0xFFFF_FFFF)))
}

fn incarnation(name: &str, node: NodeId) -> Option<Incarnation> {
    let number = name.strip_prefix(&format!("journal-{node}-"))?;
    number.parse().ok().map(Incarnation)
}
