//! Errors that stop a node or prevent its start: the storage is unusable, or an invariant is broken. Nothing is
//! retried. The error names the cause, and an operator decides.

use std::fmt::Display;
use std::path::Path;

use tokio::sync::watch;

use crate::wal;

/// Reason why a node stops or does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatalError {
    /// Another process uses the data folder.
    #[error("{0} is in use by another process: stop that one first")]
    InUse(String),
    /// The data folder can not be read or written.
    #[error("can not {action} {path}: {detail}")]
    Folder {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The file or folder.
        path: String,
        /// Error text of the operating system, or what is wrong with the content.
        detail: String,
    },
    /// The file `identity` is damaged, so it is unknown to which node and cluster the data folder belongs.
    #[error(
        "{path} is damaged: {detail}. It names the node and the cluster of this data folder; no node starts without it"
    )]
    BadIdentity {
        /// The file.
        path: String,
        /// The difference from the format.
        detail: String,
    },
    /// The data folder belongs to another node or cluster, or its identity is incomplete.
    #[error("{0}")]
    Foreign(String),
    /// The data folder is an older copy of this node's folder. It lacks later promises, so no node may start with it
    /// (P10).
    #[error("the data folder is older than what this node had: {0}")]
    Outdated(String),
    /// The node was removed from its cluster, so it stops for good (P22).
    #[error("this node was removed from its cluster: {0}")]
    Removed(String),
    /// The log on disk differs from what was written. No node may start with this data folder.
    #[error("the log: {0}")]
    Damaged(String),
    /// The write-ahead log cannot be opened, or it failed while the node ran.
    #[error("the log: {0}")]
    Log(String),
    /// The state on disk or a snapshot is unusable, and this node cannot rebuild it.
    #[error("the state: {0}")]
    State(String),
    /// A committed entry that this build cannot apply. Skipping it would make this replica differ from the others.
    #[error("entry {index} can not be applied: {detail}; start a newer build on this data folder")]
    Unreadable {
        /// Log index of the entry.
        index: u64,
        /// Reason why the entry cannot be applied.
        detail: String,
    },
    /// The state on disk, or from a peer, has a level that this build does not know (P23).
    #[error(
        "the state is of ledger level {level}, and this build applies up to {highest}; start a newer build on this \
         data folder"
    )]
    AboveLevel {
        /// Level of the state.
        level: u32,
        /// Highest level that this build applies.
        highest: u32,
    },
    /// Applying an entry panicked: a bug that stops every node at the same entry. Nothing is lost; a fixed build
    /// continues from there.
    #[error(
        "applying entry {index} panicked; this is a bug, please report it. Nothing is lost: keep the data folder, and \
         start a build that applies this entry on it"
    )]
    Poison {
        /// Log index of the entry.
        index: u64,
    },
    /// The state differs from that of a majority of the voters: by a bug, damaged memory, or a disk that lies.
    #[error(
        "the state after entry {index} differs from that of a majority; start this node once more, so that it replays \
         its log. If it stops again, leave it stopped, keep its data folder, and report this as a bug"
    )]
    Diverged {
        /// Log index at which the states were compared.
        index: u64,
    },
    /// The node cannot listen on its peer address.
    #[error("can not listen for peers: {0}")]
    Listen(String),
    /// A bug: an invariant does not hold, or a thread died.
    #[error("{0}; this is a bug, please report it")]
    Broken(String),
}

impl FatalError {
    pub(crate) fn folder(action: &'static str, path: &Path, error: impl Display) -> FatalError {
        FatalError::Folder { action, path: path.display().to_string(), detail: error.to_string() }
    }
}

impl From<wal::OpenError> for FatalError {
    fn from(error: wal::OpenError) -> FatalError {
        match error {
            wal::OpenError::Foreign { .. } => FatalError::Foreign(error.to_string()),
            wal::OpenError::Damaged { .. } => FatalError::Damaged(error.to_string()),
            _ => FatalError::Log(error.to_string()),
        }
    }
}

/// Keeps the first fatal error of a running node: later errors are its consequences.
#[derive(Clone)]
pub(crate) struct FatalErrorCell {
    first: watch::Sender<Option<FatalError>>,
}

impl FatalErrorCell {
    pub fn new() -> FatalErrorCell {
        FatalErrorCell { first: watch::Sender::new(None) }
    }

    /// Keeps and logs the error, unless the node has a fatal error already.
    pub fn raise(&self, fatal_error: FatalError) {
        self.first.send_if_modified(|known| {
            if known.is_some() {
                return false;
            }
            tracing::error!(error = %fatal_error, "this node must stop");
            *known = Some(fatal_error);
            true
        });
    }

    pub fn get(&self) -> Option<FatalError> {
        self.first.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Option<FatalError>> {
        self.first.subscribe()
    }
}
