//! The options of a run, and its fixed sizes.

use std::path::PathBuf;

use tokio::time::Duration;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of all random choices.
    pub seed: u64,
    /// Length in minutes of virtual time, at least 5.
    pub minutes: u64,
    /// Folder in memory for the files of the nodes. The caller removes it.
    pub folder: PathBuf,
    /// File for the history. `None`: the history is not written.
    pub history: Option<PathBuf>,
    /// The command that repeats the run.
    pub command: String,
    /// The commit that is judged.
    pub commit: String,
}

impl Options {
    /// Heartbeat interval of a leader, in milliseconds. Every third seed has the interval of the product
    /// (`raft/src/options.rs`), so that several leaders may follow one another within one lease. The other seeds send a
    /// fifth of the messages, and run about twice as fast.
    pub fn heartbeat_ms(&self) -> u64 {
        if self.seed.is_multiple_of(3) { 50 } else { 250 }
    }
}

/// Number of sessions of each node with the relay.
pub const SESSIONS: u32 = 4;
/// Time before the first fault.
pub const FAULTS_AFTER: Duration = Duration::from_secs(10);
