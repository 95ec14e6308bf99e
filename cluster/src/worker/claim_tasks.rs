//! The tasks of claim workers, and the signal that one of them panicked.
//!
//! The task of a claim owns the claim's recipients (P1). After a panic no other task works on that claim, and no leader
//! revokes it while the node keeps its lease. Its recipients would stay claimed until the process ends. So a panic ends
//! all workers, and the supervisor stops the node.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tasks of all claims of one process.
#[derive(Clone, Default)]
pub(crate) struct ClaimTasks {
    tasks: TaskTracker,
    broken: CancellationToken,
}

impl ClaimTasks {
    /// Starts a task that works on a claim. A panic in it is logged and sets the `broken` signal.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let broken = self.broken.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!("the task of a claim panicked");
                broken.cancel();
            }
        });
    }

    /// Waits until one of the tasks has panicked.
    pub async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// Waits until all tasks have ended.
    pub async fn over(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
