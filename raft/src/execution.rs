//! Selects where a node does work that would block its async runtime: on separate threads, or inline. Simulations run
//! inline: they use one thread and repeat a run exactly. [`crate::ReplicaOptions`] sets this once.

use tokio::task::JoinError;

/// Place where blocking work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// On separate threads: the log, the apply thread, Raft's runtime, and other blocking calls.
    Threads,
    /// On the caller's runtime: a wait for the disk stops all other tasks. For simulations, whose disk is memory.
    Inline,
}

impl Execution {
    /// Runs a blocking closure. An error means that it panicked or that the runtime ended.
    pub async fn blocking<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        match self {
            Execution::Threads => tokio::task::spawn_blocking(work).await,
            // In a separate task: other tasks run first, and a panic ends this task only, as with threads.
            Execution::Inline => tokio::spawn(async move { work() }).await,
        }
    }
}
