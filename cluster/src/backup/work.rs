//! What all long work on backups shares: its errors, its progress, its pace and its end.

use std::io;
use std::time::{Duration, Instant};

use reveille_ledger::ids::Hash;
use reveille_raft::snapshot::SnapshotError;
use tokio_util::sync::CancellationToken;

/// Pace of a node that also sends: bytes a second that it reads or writes for a backup.
pub const NODE_BYTES_PER_SECOND: u64 = 64 * 1024 * 1024;
/// Maximum number of damaged files that an error names.
const NAMED_MAX: usize = 5;
/// Longest sleep at once, so that a stop does not wait.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// Reason why a backup was not made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target fails.
    #[error("cannot {doing} {place}: {source}")]
    Target {
        /// The failed operation, as a verb.
        doing: &'static str,
        /// The file.
        place: String,
        /// Error of the target.
        source: io::Error,
    },
    /// Files of the backup are missing, or differ from what was written.
    #[error("{}", damaged(.0))]
    Damaged(Vec<FileFault>),
    /// The files are what was written, and make no sound state.
    #[error("backup {index} does not load: {what}")]
    Unsound {
        /// Log index of the backup.
        index: u64,
        /// What is wrong.
        what: String,
    },
    /// A later release wrote the backup.
    #[error("backup {index} has ledger level {level}, and this program reads up to {highest}: use a newer release")]
    AboveLevel {
        /// Log index of the backup.
        index: u64,
        /// Its level.
        level: u32,
        /// The highest level of this program.
        highest: u32,
    },
    /// Another state was saved under the same index.
    #[error("{place} has another state of the same index: two clusters have one id, or a replica differs")]
    OtherState {
        /// The manifest.
        place: String,
    },
    /// This node cannot read what is to be saved.
    #[error("this node cannot read a file that belongs to the backup: {0}")]
    Source(String),
    /// A snapshot cannot be made.
    #[error("no snapshot for the backup: {0}")]
    Snapshot(#[from] SnapshotError),
    /// The node cannot make a backup now.
    #[error("{0}")]
    Unavailable(String),
    /// The node stops, or does not lead any more.
    #[error("it was stopped before its end")]
    Stopped,
}

/// A file that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Its name, if it is a block or an audience part.
    pub hash: Option<Hash>,
    /// Where it is, and what is wrong.
    pub what: String,
}

fn damaged(files: &[FileFault]) -> String {
    let named: Vec<&str> = files.iter().take(NAMED_MAX).map(|file| file.what.as_str()).collect();
    match files.len().saturating_sub(NAMED_MAX) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupPhase {
    /// Files that the target lacks are copied.
    Copy,
    /// All files are read back, and the state is loaded.
    Verify,
}

/// How far the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// The part of the work.
    pub phase: BackupPhase,
    /// Files done.
    pub done: u64,
    /// Files in all.
    pub of: u64,
}

/// Counts the files of a work, keeps its pace, and ends it when it is asked to.
pub struct BackupTask<'a> {
    stop: CancellationToken,
    report: Box<dyn FnMut(BackupProgress) + 'a>,
    bytes_per_second: Option<u64>,
    progress: BackupProgress,
    /// Time before which the work must not go on.
    ready_at: Instant,
}

impl<'a> BackupTask<'a> {
    /// Work without a limit, for commands that run beside no node.
    pub fn new(report: impl FnMut(BackupProgress) + 'a) -> BackupTask<'a> {
        let progress = BackupProgress { phase: BackupPhase::Copy, done: 0, of: 0 };
        BackupTask {
            stop: CancellationToken::new(),
            report: Box::new(report),
            bytes_per_second: None,
            progress,
            ready_at: Instant::now(),
        }
    }

    /// Work of a node, which ends with `stop`.
    pub fn of_node(stop: CancellationToken, report: impl FnMut(BackupProgress) + 'a) -> BackupTask<'a> {
        BackupTask { stop, bytes_per_second: Some(NODE_BYTES_PER_SECOND), ..BackupTask::new(report) }
    }

    /// Begins a part of the work.
    pub(super) fn begin(&mut self, phase: BackupPhase, of: usize) {
        self.progress = BackupProgress { phase, done: 0, of: of as u64 };
        (self.report)(self.progress);
    }

    /// Counts a file, and waits as long as its bytes may take.
    pub(super) fn count_file(&mut self, bytes: u64) -> Result<(), BackupError> {
        self.progress.done += 1;
        (self.report)(self.progress);
        if let Some(limit) = self.bytes_per_second {
            let takes = Duration::from_secs_f64(bytes as f64 / limit as f64);
            self.ready_at = self.ready_at.max(Instant::now()) + takes;
        }
        while !self.stop.is_cancelled() {
            let left = self.ready_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(SLEEP_MAX));
        }
        Err(BackupError::Stopped)
    }
}
