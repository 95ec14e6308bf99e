//! The tasks that work on claims.
//!
//! The task of a claim owns the claim's recipients (P1). After a panic no other task works on that claim, and no leader
//! revokes it while the node keeps its lease. Its recipients would stay claimed until the process ends. So a panic
//! stops the node.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio_util::task::TaskTracker;

use crate::process::supervisor::Failing;

/// The tasks of all claims of one process.
#[derive(Clone)]
pub(crate) struct ClaimTasks {
    tasks: TaskTracker,
    failing: Failing,
}

impl ClaimTasks {
    pub fn new(failing: Failing) -> ClaimTasks {
        ClaimTasks { tasks: TaskTracker::new(), failing }
    }

    /// Starts a task that works on a claim. A panic in it stops the node.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let failing = self.failing.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                metrics::counter!("reveille_actor_ends_total", "actor" => "Workers").increment(1);
                failing.report("the task of a claim panicked");
            }
        });
    }

    /// Waits until all tasks have ended.
    pub async fn over(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
