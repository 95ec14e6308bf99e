//! The folder of journals: their paths, the files that earlier processes left, and the boot id of the machine.

use std::io;
use std::path::{Path, PathBuf};

use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId};
use reveille_raft::files::{create_private_folder, remove_if_exists};

/// File systems in memory: `TMPFS_MAGIC`, `RAMFS_MAGIC` (linux/magic.h).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// Returns the kernel's boot id, which changes at each start of the machine.
///
/// # Errors
/// Fails without `/proc`. Without a boot id no journal can prove anything, so the caller must not create one.
pub fn boot_id() -> io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

/// Returns the incarnations of `node` that have a journal in `folder`, in order; none if the folder does not exist.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn leftovers(folder: &Path, node: NodeId) -> io::Result<Vec<Incarnation>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(entry?.file_name().to_str().and_then(|name| incarnation(name, node)));
    }
    found.sort_unstable();
    Ok(found)
}

/// Deletes the journal of an incarnation that has no open claims (P11), and its unfinished rewrite.
///
/// # Errors
/// Fails if an existing file cannot be removed.
pub fn delete(folder: &Path, process: ClaimOwner) -> io::Result<()> {
    let path = path(folder, process);
    for file in [unfinished(&path), path] {
        remove_if_exists(&file)?;
    }
    Ok(())
}

/// Returns the path of the journal of one incarnation.
pub(super) fn path(folder: &Path, process: ClaimOwner) -> PathBuf {
    folder.join(format!("journal-{}-{}", process.node, process.incarnation.0))
}

/// Returns the path of the rewrite that will replace `path`.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension("unfinished")
}

/// Creates the folder, readable by its owner only. Logs an error if the folder is not in memory.
pub(super) fn prepare(folder: &Path) -> io::Result<()> {
    create_private_folder(folder)?;
    if !in_memory(folder)? {
        tracing::error!(
            folder = %folder.display(),
            "the journal does not lie in memory: each email may wait for a disk, and a reboot voids it all the same; \
             name a folder on a tmpfs with --journal-dir"
        );
    }
    Ok(())
}

/// Returns true if the folder is in memory (P11). On a disk a journal proves no more: its header carries the boot id,
/// so a file that survives a power cut is ignored. But each email then costs disk time.
///
/// # Errors
/// Fails if the file system of the folder cannot be determined.
pub fn in_memory(folder: &Path) -> io::Result<bool> {
    let file_system = rustix::fs::statfs(folder)?.f_type as u64;
    Ok(IN_MEMORY.contains(&(file_system & 0xFFFF_FFFF)))
}

fn incarnation(name: &str, node: NodeId) -> Option<Incarnation> {
    let number = name.strip_prefix(&format!("journal-{node}-"))?;
    number.parse().ok().map(Incarnation)
}
