//! The options of a run, and its fixed sizes.

use std::path::PathBuf;

use tokio::time::Duration;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// All chance comes from this.
    pub seed: u64,
    /// How long it lasts, in minutes of virtual time.
    pub minutes: u64,
    /// How often a leader shows itself, in milliseconds.
    pub heartbeat_ms: u64,
    /// A folder in memory for what nodes keep in files; its creator removes it.
    pub folder: PathBuf,
    /// Where the history is written, if anywhere.
    pub history: Option<PathBuf>,
    /// The command that repeats the run.
    pub command: String,
    /// The commit that is judged.
    pub commit: String,
}

/// Sessions to the relay on each node.
pub const SESSIONS: u32 = 4;
/// No fault comes before this.
pub const FAULTS_AFTER: Duration = Duration::from_secs(10);
