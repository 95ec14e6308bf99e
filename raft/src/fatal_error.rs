//! Why a node stops, or does not start. Storage or an invariant is broken: nothing is retried, the cause
//! is said loudly, and an operator decides.

use std::fmt::Display;
use std::path::Path;

use tokio::sync::watch;

use crate::wal;

/// What is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatalError {
    /// Two processes on one data folder would undo each other's promises.
    #[error("{0} is in use by another process: stop that one first")]
    InUse(String),
    /// The data folder can not be read or written.
    #[error("can not {action} {path}: {detail}")]
    Folder {
        /// What was being done, as a verb.
        action: &'static str,
        /// To which file or folder.
        path: String,
        /// What the system said.
        detail: String,
    },
    /// The data folder is another node's, or another cluster's.
    #[error("{0}")]
    Foreign(String),
    /// The data folder is an older copy of what this node had: what it promised since is not in it, and no node
    /// must ever start with it again (P10).
    #[error("the data folder is older than what this node had: {0}")]
    Outdated(String),
    /// The write-ahead log is not what was written: no node must ever start with this data folder.
    #[error("the log: {0}")]
    Damaged(String),
    /// The write-ahead log does not open, or failed.
    #[error("the log: {0}")]
    Log(String),
    /// The state on disk or a snapshot failed, and can not be rebuilt here.
    #[error("the state: {0}")]
    State(String),
    /// A committed entry that this build can not apply. Skipping it would make this node another one than
    /// its peers: start a newer build.
    #[error("entry {index} can not be applied: {detail}; start a newer build on this data folder")]
    Unreadable {
        /// Its index.
        index: u64,
        /// Why not.
        detail: String,
    },
    /// The state on disk, or one that came from a peer, is of a level that this build does not know (P23).
    #[error(
        "the state is of ledger level {level}, and this build applies up to {highest}; start a newer build on this \
         data folder"
    )]
    AboveLevel {
        /// The state's.
        level: u32,
        /// This build's.
        highest: u32,
    },
    /// Applying an entry panicked: a bug of ours, which stops every node at the same entry. The entry is in the log
    /// and nothing is lost; a build that applies it goes on from there.
    #[error(
        "applying entry {index} panicked; this is a bug, please report it. Nothing is lost: keep the data folder, and \
         start a build that applies this entry on it"
    )]
    Poison {
        /// Its index.
        index: u64,
    },
    /// The peer address can not be listened on.
    #[error("can not listen for peers: {0}")]
    Listen(String),
    /// An error of ours: an invariant does not hold, or a thread died.
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

/// Where the first fault of a running node is kept; later ones are only its echo.
#[derive(Clone)]
pub(crate) struct FatalErrorCell {
    first: watch::Sender<Option<FatalError>>,
}

impl FatalErrorCell {
    pub fn new() -> FatalErrorCell {
        FatalErrorCell { first: watch::Sender::new(None) }
    }

    /// Keeps the fault unless there is one already, and says it.
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
