//! Resources that a command creates outside its own process: two folders, network namespaces, mounts and processes. All
//! their names contain one token, so that they can be found and removed.
//!
//! A command removes its own resources. If it was killed with -9, the next command removes them at its start. A file
//! lock shows whether the owner is alive; a process id would not, because another process may have it by then.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use reveille_node_client::node_process::remove_clock_files;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::host_network;
use crate::tool;

/// Journals are in a file system in memory.
const MEMORY: &str = "/dev/shm";
const PREFIX: &str = "reveille-jepsen-";
/// The locked file in each folder.
const OWNER: &str = "owner";
/// The list of mount points.
const MOUNTS: &str = "mounts";
/// A file beside the journals names the other folder, since the next command may have another temporary folder.
const DATA: &str = "data";
/// Time after which a folder without an owner's file is abandoned. While a folder is created or removed it has none for
/// a moment.
const OWNERLESS_FOR: Duration = Duration::from_secs(60);

/// Two folders with one token.
pub struct Workspace {
    token: String,
    data: Owned,
    journals: Option<Owned>,
}

/// A folder and the lock in it.
struct Owned {
    folder: TempDir,
    _lock: File,
}

impl Workspace {
    /// Removes the resources of dead owners, and creates the folders.
    pub fn new() -> Result<Workspace> {
        let places = [std::env::temp_dir(), PathBuf::from(MEMORY)];
        sweep(&places);
        let token = format!("{:08x}", rand::random::<u32>());
        let data = Owned::new(&places[0], &token)?;
        let journals = places[1].is_dir().then(|| Owned::new(&places[1], &token)).transpose()?;
        if let Some(journals) = &journals {
            fs::write(journals.folder.path().join(DATA), places[0].as_os_str().as_encoded_bytes())?;
        }
        Ok(Workspace { token, data, journals })
    }

    /// Returns the token: eight random digits that all names contain.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the folder on a disk.
    pub fn data(&self) -> &Path {
        self.data.folder.path()
    }

    /// Records mount points before they are used, so that they are found after a crash.
    pub fn will_mount(&self, places: &[PathBuf]) -> Result<()> {
        let lines: String = places.iter().map(|place| format!("{}\n", place.display())).collect();
        fs::write(self.data().join(MOUNTS), lines).context("the list of mounts")
    }

    /// Returns the folder in memory; `None` if the machine has no file system in memory.
    pub fn journals(&self) -> Option<&Path> {
        self.journals.as_ref().map(|owned| owned.folder.path())
    }
}

impl Owned {
    fn new(parent: &Path, token: &str) -> Result<Owned> {
        let name = format!("{PREFIX}{token}");
        let folder = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir_in(parent);
        let folder = folder.with_context(|| format!("no folder can be made in {}", parent.display()))?;
        // The rename shows the file only when it is locked.
        let unseen = folder.path().join("owner.new");
        let lock = File::create(&unseen)?;
        lock.lock().with_context(|| format!("the lock of {}", unseen.display()))?;
        fs::rename(unseen, folder.path().join(OWNER))?;
        Ok(Owned { folder, _lock: lock })
    }
}

/// Removes the resources of dead owners; reports those that it cannot remove.
fn sweep(places: &[PathBuf]) {
    let left: BTreeSet<String> = places.iter().flat_map(|place| abandoned(place)).collect();
    for token in left {
        eprintln!("an earlier run was killed: removing what it left under {PREFIX}{token}");
        kill_all(&token);
        host_network::remove(&token);
        let named = format!("{PREFIX}{token}");
        let elsewhere = places.iter().filter_map(|place| fs::read_to_string(place.join(&named).join(DATA)).ok());
        let all: BTreeSet<PathBuf> = elsewhere.map(PathBuf::from).chain(places.iter().cloned()).collect();
        for folder in all.iter().map(|place| place.join(&named)).filter(|path| path.exists()) {
            unmount_all(&folder);
            if let Err(error) = fs::remove_dir_all(&folder) {
                eprintln!("cannot remove {}: {error}", folder.display());
            }
        }
    }
}

/// Returns the tokens of folders whose lock is free, or that have been without an owner's file for too long.
fn abandoned(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let tokens = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let token = name.strip_prefix(PREFIX)?.to_owned();
        match File::open(entry.path().join(OWNER)) {
            // Unlocked and not only dropped: a process that another thread starts holds a copy of the file until its exec.
            Ok(lock) => lock.try_lock().ok().and_then(|()| lock.unlock().ok())?,
            Err(_) => {
                let age = entry.metadata().ok()?.modified().ok()?.elapsed().ok()?;
                (age > OWNERLESS_FOR).then_some(())?;
            }
        }
        Some(token)
    });
    tokens.collect()
}

/// Kills nodes whose journal folder has this token, and their tracers.
fn kill_all(token: &str) {
    let named = format!("{PREFIX}{token}");
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        if is_ours(&String::from_utf8_lossy(&line), &named) {
            // The process may have ended meanwhile.
            let _ = kill_process(id, Signal::KILL);
            remove_clock_files(id.as_raw_nonzero().get().unsigned_abs());
        }
    }
}

/// Returns true if a command line is that of a node with journals in such a folder, or of its tracer. No other process
/// is killed.
fn is_ours(line: &str, folder: &str) -> bool {
    let arguments: Vec<&str> = line.split('\0').collect();
    let after = |flag| arguments.windows(2).any(|pair| pair[0] == flag && pair[1].contains(folder));
    let traces = arguments.first().is_some_and(|program| program.ends_with("strace"));
    after("--journal-dir") || traces && after("-o")
}

/// Unmounts the mounts that the owner of this folder recorded; see [`Workspace::will_mount`].
fn unmount_all(folder: &Path) {
    let named = fs::read_to_string(folder.join(MOUNTS)).unwrap_or_default();
    let mounted = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_mounted = |place: &&str| mounted.lines().any(|line| line.split(' ').nth(1) == Some(place));
    for place in named.lines().filter(is_mounted) {
        if let Err(error) = tool::run("umount", &["--lazy", place]) {
            eprintln!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_dead_owner_is_removed_and_of_living_owner_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let living = Owned::new(place.path(), "00000001").unwrap();
        let dead = Owned::new(place.path(), "00000002").unwrap();
        dead._lock.unlock().unwrap();
        fs::create_dir(place.path().join("reveille-jepsen-other")).unwrap();
        assert_eq!(abandoned(place.path()), ["00000002"], "and not one without an owner's file");
        sweep(&[place.path().to_owned()]);
        assert!(!dead.folder.path().exists() && living.folder.path().exists());
    }

    #[test]
    fn data_folder_is_found_by_file_beside_journals() {
        let (memory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let journals = Owned::new(memory.path(), "00000003").unwrap();
        let data = elsewhere.path().join("reveille-jepsen-00000003");
        fs::create_dir(&data).unwrap();
        fs::write(journals.folder.path().join(DATA), elsewhere.path().as_os_str().as_encoded_bytes()).unwrap();
        journals._lock.unlock().unwrap();
        sweep(&[memory.path().to_owned()]);
        assert!(!data.exists() && !journals.folder.path().exists());
    }

    #[test]
    fn only_nodes_and_tracers_of_this_token_are_killed() {
        let folder = "reveille-jepsen-0000000a";
        let node = "/x/reveille\0start\0--journal-dir\0/dev/shm/reveille-jepsen-0000000a/n1\0";
        assert!(is_ours(node, folder) && !is_ours(node, "reveille-jepsen-0000000b"));
        assert!(is_ours("/usr/bin/strace\0-o\0/tmp/reveille-jepsen-0000000a/trace\0", folder));
        assert!(!is_ours("tail\0-f\0/tmp/reveille-jepsen-0000000a/n1/node.log\0", folder), "a reader of the log");
    }
}
