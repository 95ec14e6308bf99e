//! The options of a run, and its fixed sizes.

use std::path::PathBuf;

use tokio::time::Duration;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all random choices.
    pub seed: u64,
    /// Length in minutes of virtual time.
    pub minutes: u64,
    /// A folder in memory for the files of the nodes; the caller removes it.
    pub folder: PathBuf,
    /// The file for the history, if any.
    pub history: Option<PathBuf>,
    /// The command that repeats the run.
    pub command: String,
    /// The commit that is judged.
    pub commit: String,
}

impl Options {
    /// Heartbeat interval of a leader, in milliseconds. Every third seed has that of the product (`raft/src/options.rs`):
    /// several leaders may follow one another within one lease. The others send a fifth of the messages, and run about
    /// twice as fast.
    pub fn heartbeat_ms(&self) -> u64 {
        if self.seed.is_multiple_of(3) { 50 } else { 250 }
    }
}

/// Sessions to the relay on each node.
pub const SESSIONS: u32 = 4;
/// No fault comes before this.
pub const FAULTS_AFTER: Duration = Duration::from_secs(10);
