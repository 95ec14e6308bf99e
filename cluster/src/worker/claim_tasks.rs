//! The tasks of claim workers, and the signal that one of them panicked.
//!
//! The task of a claim owns its recipients (P1). No task works a claim twice, and no leader takes it away while the node
//! keeps its lease: recipients of a panicked task would stay claimed for the life of the process. So a panic ends all
//! workers, and the supervisor's table says what that means.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tasks of all claims of one life.
#[derive(Clone, Default)]
pub(crate) struct ClaimTasks {
    tasks: TaskTracker,
    broken: CancellationToken,
}

impl ClaimTasks {
    /// Works at a claim.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let broken = self.broken.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!("the task of a claim panicked");
                broken.cancel();
            }
        });
    }

    /// Returns once one of them has panicked.
    pub async fn broken(&self) {
        self.broken.cancelled().await;
    }

    /// Returns once all have ended.
    pub async fn over(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
