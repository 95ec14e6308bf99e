//! Errors of the log. [`WalFailure`]: the running log failed, and the node must stop. [`OpenError`]: the log cannot be
//! opened. [`WalError`]: a submission or a read was refused.

use std::io;

/// The running log failed, as a sentence for the operator. The failure is final: the node stops, and nothing is
/// retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WalFailure(String);

impl WalFailure {
    /// Converts an error of the disk. `action` is the verb of the failed operation.
    pub(super) fn from_io(action: &str, file: &str, error: &io::Error) -> Self {
        WalFailure(match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
                "the disk is full ({action} {file}: {error}); free space on the volume of the data folder and start \
                 again"
            ),
            _ => format!("can not {action} {file}: {error}"),
        })
    }

    /// The writer's thread is gone: a bug, not an error of the disk.
    pub(crate) fn writer_gone() -> Self {
        WalFailure("the writer of the log is gone; the node stops".to_owned())
    }
}

impl From<WalFailure> for io::Error {
    fn from(failure: WalFailure) -> Self {
        io::Error::other(failure)
    }
}

/// Reason why a submission or a read was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// The log has failed.
    #[error(transparent)]
    Failed(#[from] WalFailure),
    /// The caller broke the contract, for example by a gap in the indexes or an oversized entry. Nothing was written.
    #[error("the log refuses: {0}")]
    Refused(String),
    /// An entry could not be read back.
    #[error("the log can not be read back: {0}")]
    Unreadable(String),
}

impl From<WalError> for io::Error {
    fn from(error: WalError) -> Self {
        io::Error::other(error)
    }
}

/// Reason why the log cannot be opened. The node must not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Synced bytes differ from what was written. A start would forget votes or entries that other nodes rely on.
    #[error(
        "{file} is damaged at byte {offset}: expected {expected}, found {found}. \
         This node must not start with it: it may have promised what it no longer knows"
    )]
    Damaged {
        /// The file's name within the folder of the log.
        file: String,
        /// Offset of the damage in bytes.
        offset: u64,
        /// The expected content.
        expected: String,
        /// The content that was found.
        found: String,
    },
    /// The folder contains the log of another node.
    #[error("{file} belongs to node {found}, this is node {expected}: the data folders were mixed up")]
    Foreign {
        /// The file's name.
        file: String,
        /// Id of this node.
        expected: u64,
        /// Id of the node that wrote the log.
        found: u64,
    },
    /// A later version of this program wrote the log.
    #[error("{file} has format version {found}, this program knows version {known}: start the newer program")]
    TooNew {
        /// The file's name.
        file: String,
        /// Format version of the file.
        found: u32,
        /// Highest format version that this program reads.
        known: u32,
    },
    /// The disk failed.
    #[error(transparent)]
    Failed(#[from] WalFailure),
}

impl OpenError {
    /// Converts an error of the disk.
    pub(crate) fn from_io(action: &'static str, file: &str, error: io::Error) -> Self {
        OpenError::Failed(WalFailure::from_io(action, file, &error))
    }
}
