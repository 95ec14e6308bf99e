//! Whose data folder this is: the node, and the cluster that it belongs to. And the lock that keeps it to
//! one process (P10).
//!
//! The file `identity` is text, so that a person can read it:
//!
//! ```text
//! reveille 1
//! node 5f3a09c1
//! cluster 6b1f0000000000000000000000000042
//! ```
//!
//! A node without a cluster has no third line. It gets one by `initialize`, or from the first peer that
//! calls it by its id; from then on it speaks to no other cluster.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use reveille_ledger::ids::NodeId;

use crate::fault::Fault;

/// The name of a cluster, drawn once by whoever makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

const FIRST_LINE: &str = "reveille 1";

pub(crate) struct Identity {
    folder: PathBuf,
    node: NodeId,
    cluster: Mutex<Option<ClusterId>>,
    /// Held until `release`; the system lets go of it however the process ends.
    lock: Mutex<Option<File>>,
}

impl Identity {
    /// Locks the folder, creating it when it is not there, and reads whose it is.
    pub fn open(folder: &Path, node: NodeId) -> Result<Identity, Fault> {
        std::fs::create_dir_all(folder).map_err(|error| Fault::folder("create", folder, error))?;
        let lock = lock(&folder.join("lock"))?;
        let path = folder.join("identity");
        let cluster = match std::fs::read_to_string(&path) {
            Ok(text) => read(&path, &text, node)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                write(folder, node, None)?;
                None
            }
            Err(error) => return Err(Fault::folder("read", &path, error)),
        };
        Ok(Identity { folder: folder.to_owned(), node, cluster: Mutex::new(cluster), lock: Mutex::new(Some(lock)) })
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn cluster(&self) -> Option<ClusterId> {
        *self.cluster.lock()
    }

    /// Lets another process have the folder: nothing of this one touches it any more.
    pub fn release(&self) {
        self.lock.lock().take();
    }

    /// Makes this folder one of that cluster, durably. `force`: even though it names another one, which is
    /// only right while nothing was ever logged in it.
    pub fn join(&self, cluster: ClusterId, force: bool) -> Result<(), Fault> {
        let mut known = self.cluster.lock();
        match *known {
            Some(known) if known == cluster => return Ok(()),
            Some(known) if !force => {
                return Err(Fault::Foreign(format!("this node belongs to cluster {known}, not to {cluster}")));
            }
            _ => {}
        }
        write(&self.folder, self.node, Some(cluster))?;
        *known = Some(cluster);
        Ok(())
    }
}

fn lock(path: &Path) -> Result<File, Fault> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|error| Fault::folder("open", path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Fault::InUse(path.display().to_string())),
        Err(TryLockError::Error(error)) => Err(Fault::folder("lock", path, error)),
    }
}

fn read(path: &Path, text: &str, node: NodeId) -> Result<Option<ClusterId>, Fault> {
    let wrong = |what: &str| Fault::folder("understand", path, what);
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
        return Err(Fault::Foreign(format!(
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

/// Replaces the file so that a crash leaves the former or the new one, whole.
fn write(folder: &Path, node: NodeId, cluster: Option<ClusterId>) -> Result<(), Fault> {
    let mut text = format!("{FIRST_LINE}\nnode {node}\n");
    if let Some(cluster) = cluster {
        text.push_str(&format!("cluster {cluster}\n"));
    }
    let draft = folder.join("identity.new");
    let replace = || {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, folder.join("identity"))?;
        File::open(folder)?.sync_all()
    };
    replace().map_err(|error: std::io::Error| Fault::folder("write", &folder.join("identity"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0x5f3a);

    #[test]
    fn a_folder_remembers_its_node_and_its_cluster() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Identity::open(folder.path(), NODE).expect("a new folder");
        assert_eq!(identity.cluster(), None);
        identity.join(ClusterId(7), false).expect("the first cluster");
        assert!(matches!(identity.join(ClusterId(8), false), Err(Fault::Foreign(_))));
        drop(identity);

        let identity = Identity::open(folder.path(), NODE).expect("the same folder");
        assert_eq!(identity.cluster(), Some(ClusterId(7)));
        drop(identity);
        assert!(matches!(Identity::open(folder.path(), NodeId(1)), Err(Fault::Foreign(_))));
    }

    #[test]
    fn a_folder_serves_one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Identity::open(folder.path(), NODE).expect("a new folder");
        assert!(matches!(Identity::open(folder.path(), NODE), Err(Fault::InUse(_))));
        drop(first);
        Identity::open(folder.path(), NODE).expect("the lock is free again");
    }

    #[test]
    fn a_damaged_identity_refuses_to_start() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("identity"), "reveille 1\nnode zz\n").expect("a file");
        assert!(matches!(Identity::open(folder.path(), NODE), Err(Fault::Folder { action: "understand", .. })));
    }
}
