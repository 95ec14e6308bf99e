//! The tasks in which lanes work rows, and the word that one of them panicked.
//!
//! Whoever is claimed in a row has that row's task for an owner (P1). Nobody works a row twice, and while the
//! node keeps its lease nobody takes it away: what a task leaves behind when it panics would stay claimed for the
//! life of the process. So its end is the end of the lanes, and the table says what that means (`supervisor`).

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tasks of all rows of one life.
#[derive(Clone, Default)]
pub(crate) struct RowTasks {
    tasks: TaskTracker,
    broken: CancellationToken,
}

impl RowTasks {
    /// Works at a row.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let broken = self.broken.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!("the task of a row panicked");
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
