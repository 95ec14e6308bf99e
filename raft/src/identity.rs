//! Identity of a data folder: its node, its cluster, and a lock that one process at a time holds (P10).
//!
//! The file `identity` is text, so that an operator can read it:
//!
//! ```text
//! reveille 1
//! node 5f3a09c1
//! cluster 6b1f0000000000000000000000000042
//! ```
//!
//! A node without a cluster has no third line. [`assign_folder`] adds the line before the first start, or `initialize`,
//! or the first peer that calls the node by its id.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;

use crate::fatal_error::FatalError;
use crate::files;

/// Id of a cluster: a random number, drawn when the cluster is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{_0:032x}")]
pub struct ClusterId(pub u128);

const FIRST_LINE: &str = "reveille 1";
/// Name of the file.
const IDENTITY: &str = "identity";
/// Name of the file that marks a data folder as older than this node's last start (P10). Its content is the reason, as
/// text.
const OUTDATED: &str = "outdated";
/// Name of the file that marks the data folder of a node that was removed from its cluster (P22). Its content says by
/// what, as text.
const REMOVED: &str = "removed";

pub(crate) struct Identity {
    folder: PathBuf,
    node: NodeId,
    cluster: Mutex<Option<ClusterId>>,
    /// Held until `release`. The operating system releases the lock when the process ends for any reason.
    lock: Mutex<Option<FolderLock>>,
}

/// The lock of a folder. It is released explicitly: between fork and exec, a child that another thread starts has a copy
/// of the descriptor, which would keep the lock.
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the lock of the data folder is released when the process ends");
        }
    }
}

impl Identity {
    /// Locks the folder, creates it if needed, and reads its identity.
    pub fn open(folder: &Path, node: NodeId) -> Result<Identity, FatalError> {
        files::create_private_folder(folder).map_err(|error| FatalError::folder("create", folder, error))?;
        let lock = lock(&folder.join("lock"))?;
        refuse_marked(&folder.join(OUTDATED), FatalError::Outdated)?;
        refuse_marked(&folder.join(REMOVED), FatalError::Removed)?;
        let cluster = cluster_of_folder(folder, node)?;
        if cluster.is_none() {
            write(folder, node, None)?;
        }
        Ok(Identity { folder: folder.to_owned(), node, cluster: Mutex::new(cluster), lock: Mutex::new(Some(lock)) })
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn cluster(&self) -> Option<ClusterId> {
        *self.cluster.lock()
    }

    /// Releases the lock. The process no longer uses the folder after this call.
    pub fn release(&self) {
        self.lock.lock().take();
    }

    /// Marks the folder as outdated: no process may start with it again. Does nothing if the lock was released.
    pub fn mark_outdated(&self, why: &str) -> Result<(), FatalError> {
        self.mark(OUTDATED, why)
    }

    /// Marks the folder of a node that was removed. As [`Identity::mark_outdated`].
    pub fn mark_removed(&self, why: &str) -> Result<(), FatalError> {
        self.mark(REMOVED, why)
    }

    fn mark(&self, name: &str, why: &str) -> Result<(), FatalError> {
        if self.lock.lock().is_none() {
            return Ok(());
        }
        put(&self.folder, name, &format!("{why}\n"))
    }

    /// Durably assigns this folder to a cluster. `force` replaces another cluster, which is right only while the log is
    /// empty.
    pub fn join(&self, cluster: ClusterId, force: bool) -> Result<(), FatalError> {
        let mut known = self.cluster.lock();
        match *known {
            Some(known) if known == cluster => return Ok(()),
            Some(known) if !force => {
                return Err(FatalError::Foreign(format!("this node belongs to cluster {known}, not to {cluster}")));
            }
            _ => {}
        }
        write(&self.folder, self.node, Some(cluster))?;
        *known = Some(cluster);
        Ok(())
    }
}

/// Durably assigns a data folder to a node and a cluster, before the first start. Repeated, it changes nothing.
///
/// # Errors
/// [`FatalError`] if the folder belongs to another node or cluster, is in use, or cannot be written.
pub fn assign_folder(folder: &Path, node: NodeId, cluster: ClusterId) -> Result<(), FatalError> {
    Identity::open(folder, node)?.join(cluster, false)
}

/// Returns the cluster of a node's data folder. `None`: it belongs to no cluster yet.
///
/// # Errors
/// [`FatalError`] if the folder belongs to another node, or its identity cannot be read.
pub fn cluster_of_folder(folder: &Path, node: NodeId) -> Result<Option<ClusterId>, FatalError> {
    let path = folder.join(IDENTITY);
    match std::fs::read_to_string(&path) {
        Ok(text) => read(&path, &text, node),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FatalError::folder("read", &path, error)),
    }
}

fn lock(path: &Path) -> Result<FolderLock, FatalError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|error| FatalError::folder("open", path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(FolderLock(file)),
        Err(TryLockError::WouldBlock) => Err(FatalError::InUse(path.display().to_string())),
        Err(TryLockError::Error(error)) => Err(FatalError::folder("lock", path, error)),
    }
}

fn read(path: &Path, text: &str, node: NodeId) -> Result<Option<ClusterId>, FatalError> {
    let wrong = |what: &str| FatalError::BadIdentity { path: path.display().to_string(), detail: what.to_owned() };
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(wrong("its first line is not 'reveille 1'"));
    }
    let found = lines
        .next()
        .and_then(|line| line.strip_prefix("node "))
        .and_then(|id| u64::from_str_radix(id, 16).ok())
        .ok_or_else(|| wrong("its second line is not 'node ID'"))?;
    if found != node.0 {
        let found = NodeId(found);
        return Err(FatalError::Foreign(format!(
            "{} belongs to node {found}, this is node {node}: the data folders were mixed up",
            path.display()
        )));
    }
    let Some(line) = lines.next() else { return Ok(None) };
    let cluster = line
        .strip_prefix("cluster ")
        .and_then(|id| u128::from_str_radix(id, 16).ok())
        .ok_or_else(|| wrong("its third line is not 'cluster ID'"))?;
    Ok(Some(ClusterId(cluster)))
}

fn write(folder: &Path, node: NodeId, cluster: Option<ClusterId>) -> Result<(), FatalError> {
    let mut text = format!("{FIRST_LINE}\nnode {node}\n");
    if let Some(cluster) = cluster {
        text.push_str(&format!("cluster {cluster}\n"));
    }
    put(folder, IDENTITY, &text)
}

fn put(folder: &Path, name: &str, text: &str) -> Result<(), FatalError> {
    let replaced = files::replace(folder, name, text.as_bytes(), files::PUBLIC);
    replaced.map_err(|error| FatalError::folder("write", &folder.join(name), error))
}

fn refuse_marked(mark: &Path, because: fn(String) -> FatalError) -> Result<(), FatalError> {
    match std::fs::read_to_string(mark) {
        Ok(why) => Err(because(format!("{} (see {})", why.trim_end(), mark.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FatalError::folder("read", mark, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0x5f3a);

    #[test]
    fn data_folder_keeps_node_and_cluster_ids() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Identity::open(folder.path(), NODE).expect("a new folder");
        assert_eq!(identity.cluster(), None);
        identity.join(ClusterId(7), false).expect("the first cluster");
        assert!(matches!(identity.join(ClusterId(8), false), Err(FatalError::Foreign(_))));
        drop(identity);

        let identity = Identity::open(folder.path(), NODE).expect("the same folder");
        assert_eq!(identity.cluster(), Some(ClusterId(7)));
        drop(identity);
        assert!(matches!(Identity::open(folder.path(), NodeId(1)), Err(FatalError::Foreign(_))));
    }

    #[test]
    fn data_folder_serves_one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Identity::open(folder.path(), NODE).expect("a new folder");
        assert!(matches!(Identity::open(folder.path(), NODE), Err(FatalError::InUse(_))));
        drop(first);
        Identity::open(folder.path(), NODE).expect("the lock is free again");
    }

    #[test]
    fn data_folder_set_aside_refuses_to_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Identity::open(folder.path(), NODE).expect("a new folder");
        identity.mark_outdated("node 2 remembers its life 7").expect("it is marked");
        drop(identity);
        let again = Identity::open(folder.path(), NODE).map(|_| ());
        assert!(matches!(&again, Err(FatalError::Outdated(why)) if why.contains("its life 7")), "{again:?}");
        std::fs::remove_file(folder.path().join(OUTDATED)).expect("another folder");
        let identity = Identity::open(folder.path(), NODE).expect("without the note");
        identity.mark_removed("entry 7 removed node 5f3a").expect("it is marked");
        drop(identity);
        let again = Identity::open(folder.path(), NODE).map(|_| ());
        assert!(matches!(&again, Err(FatalError::Removed(why)) if why.contains("entry 7")), "{again:?}");
        std::fs::remove_file(folder.path().join(REMOVED)).expect("another folder");
        let identity = Identity::open(folder.path(), NODE).expect("without the note");
        identity.release();
        identity.mark_outdated("late").expect("it may be another's by now");
        Identity::open(folder.path(), NODE).expect("nothing was marked");
    }

    #[test]
    fn damaged_identity_refuses_to_start() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("identity"), "reveille 1\nnode zz\n").expect("a file");
        let refused = Identity::open(folder.path(), NODE).map(|_| ());
        let Err(error @ FatalError::BadIdentity { .. }) = &refused else { panic!("{refused:?}") };
        let text = error.to_string();
        assert!(text.contains("identity is damaged: its second line is not 'node ID'"), "{text}");
    }
}
