//! The tasks that queue claims, feed pools and send emails.
//!
//! The task that holds a recipient settles it. After a panic nothing settles the recipients that the task held: the
//! leader revokes nothing while the node keeps its lease. So a panic stops the node (P1).

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio_util::task::TaskTracker;

use crate::process::supervisor::StopReporter;

/// The tasks for the claims of one process.
#[derive(Clone)]
pub(crate) struct WorkerTasks {
    tasks: TaskTracker,
    stop_reporter: StopReporter,
}

impl WorkerTasks {
    pub fn new(stop_reporter: StopReporter) -> WorkerTasks {
        WorkerTasks { tasks: TaskTracker::new(), stop_reporter }
    }

    /// Starts a task. A panic in it stops the node.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop_reporter = self.stop_reporter.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                metrics::counter!("reveille_actor_ends_total", "actor" => "Workers").increment(1);
                stop_reporter.report("a worker task panicked");
            }
        });
    }

    /// Waits until all tasks have ended.
    pub async fn over(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
