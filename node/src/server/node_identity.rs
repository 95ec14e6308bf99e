//! The node id of a data folder, and the incarnation of this process (P10).
//!
//! The node id is drawn at random for a new folder: by the node itself, or by the member that made its join token. The
//! incarnation is incremented durably at each start, before anything else happens. Both are in small text files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId};
use reveille_raft::files;

/// Why the node id and the incarnation cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NodeIdentityError {
    /// The folder or a file in it cannot be read or written.
    #[error("cannot use {}: {error}; give another folder with --data-dir, or fix its permissions or space", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system. It is not a `source`, because the message contains it already.
        error: std::io::Error,
    },
    /// A file is missing, and a file that is created after it exists.
    #[error("{} is missing, and {} is there: a node has used this data folder, and {lost}", path.display(), later.display())]
    Missing {
        /// The missing file.
        path: PathBuf,
        /// The file that is created after it.
        later: PathBuf,
        /// The consequence of a start without the file.
        lost: &'static str,
    },
    /// A file does not contain a number.
    #[error("{} holds '{text}', which is not a number: the data folder is damaged, and no node must start with it", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Its content, at most 40 characters.
        text: String,
    },
}

/// Starts the next incarnation. Creates the folder and the node id if they do not exist.
pub fn start_incarnation(folder: &Path) -> Result<ClaimOwner, NodeIdentityError> {
    files::create_private_folder(folder)
        .map_err(|error| NodeIdentityError::Folder { path: folder.to_owned(), error })?;
    let node = match node_of(folder)? {
        Some(node) => node,
        None => {
            let node = new_node();
            write(folder, "node", &format!("{:x}", node.0))?;
            node
        }
    };
    let former = match read(&folder.join("incarnation"), 10)? {
        Some(former) => former,
        None => {
            let lost = "would use numbers of its incarnations twice without it";
            refuse_used(folder, "incarnation", &["identity", files::LOG_FOLDER], lost)?;
            0
        }
    };
    let incarnation = former + 1;
    write(folder, "incarnation", &incarnation.to_string())?;
    Ok(ClaimOwner { node, incarnation: Incarnation(incarnation) })
}

/// Returns the node id of a data folder. `None`: the folder is new.
///
/// # Errors
/// [`NodeIdentityError`]; `Missing` if a node has used the folder and its id was lost.
pub fn node_of(folder: &Path) -> Result<Option<NodeId>, NodeIdentityError> {
    let node = read(&folder.join("node"), 16)?.map(NodeId);
    if node.is_none() {
        let lost = "would start as another node without it";
        refuse_used(folder, "node", &["identity", files::LOG_FOLDER, "incarnation"], lost)?;
    }
    Ok(node)
}

/// Assigns a node id to a new data folder, before the first incarnation. Repeated, it changes nothing.
pub fn assign_node(folder: &Path, node: NodeId) -> Result<(), NodeIdentityError> {
    files::create_private_folder(folder)
        .map_err(|error| NodeIdentityError::Folder { path: folder.to_owned(), error })?;
    if node_of(folder)?.is_none() {
        write(folder, "node", &format!("{:x}", node.0))?;
    }
    match read(&folder.join("incarnation"), 10)? {
        Some(_) => Ok(()),
        None => write(folder, "incarnation", "0"),
    }
}

/// Draws the id of a new node.
pub fn new_node() -> NodeId {
    NodeId((uuid::Uuid::new_v4().as_u128() as u64).max(1))
}

/// Fails if the folder has a file that is created after the missing file `name`: then `name` was lost.
fn refuse_used(folder: &Path, name: &str, created_later: &[&str], lost: &'static str) -> Result<(), NodeIdentityError> {
    match created_later.iter().map(|later| folder.join(later)).find(|path| path.exists()) {
        Some(later) => Err(NodeIdentityError::Missing { path: folder.join(name), later, lost }),
        None => Ok(()),
    }
}

fn read(path: &Path, radix: u32) -> Result<Option<u64>, NodeIdentityError> {
    match std::fs::read_to_string(path) {
        Ok(text) => match u64::from_str_radix(text.trim(), radix) {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                Err(NodeIdentityError::Damaged { path: path.to_owned(), text: text.trim().chars().take(40).collect() })
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(NodeIdentityError::Damaged { path: path.to_owned(), text: "bytes that are not text".to_owned() })
        }
        Err(error) => Err(NodeIdentityError::Folder { path: path.to_owned(), error }),
    }
}

/// Replaces a file by a line.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<(), NodeIdentityError> {
    let replaced = files::replace(folder, name, format!("{text}\n").as_bytes(), files::PUBLIC);
    replaced.map_err(|error| NodeIdentityError::Folder { path: folder.join(name), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_keeps_its_node_and_counts_its_lives() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = start_incarnation(folder.path()).expect("first");
        let second = start_incarnation(folder.path()).expect("second");
        assert_eq!(first.node, second.node);
        assert_eq!((first.incarnation, second.incarnation), (Incarnation(1), Incarnation(2)));
    }

    #[test]
    fn damaged_count_is_refused_with_the_next_step() {
        let folder = tempfile::tempdir().expect("a folder");
        start_incarnation(folder.path()).expect("first");
        std::fs::write(folder.path().join("incarnation"), "x").expect("written");
        let error = start_incarnation(folder.path()).expect_err("damaged").to_string();
        assert!(error.contains("is damaged"), "{error}");
        std::fs::write(folder.path().join("incarnation"), b"\xff").expect("written");
        let error = start_incarnation(folder.path()).expect_err("damaged").to_string();
        assert!(error.contains("holds 'bytes that are not text'"), "{error}");
        std::fs::remove_file(folder.path().join("incarnation")).expect("removed");
        std::fs::create_dir(folder.path().join("wal")).expect("a log");
        let error = start_incarnation(folder.path()).expect_err("it would begin again").to_string();
        assert!(error.contains("incarnation is missing, and "), "{error}");
        assert!(error.contains("twice"), "{error}");
    }

    #[test]
    fn used_folder_without_node_id_is_refused_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        start_incarnation(folder.path()).expect("first");
        std::fs::remove_file(folder.path().join("node")).expect("removed");
        for _ in 0..2 {
            let error = start_incarnation(folder.path()).expect_err("it would be another node");
            assert!(matches!(error, NodeIdentityError::Missing { .. }), "{error}");
            assert!(error.to_string().contains("node is missing, and "), "{error}");
        }
        assert!(!folder.path().join("node").exists(), "no other id was drawn");
        let count = std::fs::read_to_string(folder.path().join("incarnation")).expect("a count");
        assert_eq!(count.trim(), "1");
    }
}
