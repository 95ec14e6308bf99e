//! Who does the work of a node that must not hold up its async runtime: the seam that a simulation needs, which has
//! one thread and no chance.
//!
//! Chosen once, in [`crate::Options`]. Nobody else asks which one it is than those that would start a thread.

use tokio::task::JoinError;

/// Who works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Threads of their own, for the log, for what is applied, for the state store, for Raft's runtime and for
    /// whatever blocks: what a node uses.
    Threads,
    /// The caller's runtime and nothing else: what waits for the disk holds all others up. For simulations, whose
    /// disk is memory.
    Inline,
}

impl Execution {
    /// Does what blocks, where it may. An error: it panicked, or the runtime ended.
    pub async fn blocking<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        match self {
            Execution::Threads => tokio::task::spawn_blocking(work).await,
            // A task of its own, so that others go on first here too, and a panic ends no more than there.
            Execution::Inline => tokio::spawn(async move { work() }).await,
        }
    }
}
