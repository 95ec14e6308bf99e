//! Supervision of a node's actors: some are started again when they end, the others stop the node.
//!
//! Actors of a leadership are not supervised here: the first of them that ends also ends its leadership (see
//! `leader/lifecycle.rs`), and the next one starts from the state.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Runs the actors of one node, and reports that the node must stop.
pub(crate) struct Supervisor {
    tasks: TaskTracker,
    stop_reporter: StopReporter,
}

/// Reports that the node must stop, and why. The first reason is kept.
#[derive(Clone, Debug)]
pub(crate) struct StopReporter(watch::Sender<Option<String>>);

impl StopReporter {
    /// Reports a reason. The first one is logged.
    pub fn report(&self, why: &str) {
        let first = self.0.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert_with(|| why.to_owned());
            first
        });
        if first {
            tracing::error!(why, "the node stops");
        }
    }
}

impl Supervisor {
    pub fn new() -> Supervisor {
        Supervisor { tasks: TaskTracker::new(), stop_reporter: StopReporter(watch::Sender::new(None)) }
    }

    /// Returns why the node must stop. `None` while it need not.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.stop_reporter.0.subscribe()
    }

    /// Returns a reporter, for an actor that continues after a failure of something else.
    pub fn stop_reporter(&self) -> StopReporter {
        self.stop_reporter.clone()
    }

    /// Runs an actor that has nothing that a new one would not find in the state. If it ends before `stop`, another one
    /// starts after `pause`.
    pub fn run_restarting<F>(
        &self,
        name: &'static str,
        runtime: &Handle,
        pause: Duration,
        stop: CancellationToken,
        mut actor: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let supervised = async move {
            loop {
                let ended = AssertUnwindSafe(actor()).catch_unwind().await;
                if stop.is_cancelled() {
                    return;
                }
                let how = count_end(name, ended.is_err());
                tracing::error!(name, how, "an actor is started again");
                if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
            }
        };
        self.tasks.spawn_on(supervised, runtime);
    }

    /// Runs an actor that has something that cannot be rebuilt. If it ends before `stop`, the node stops, and recovers
    /// as after a crash. Must be called inside a runtime, which then runs the actor.
    pub fn run_essential(
        &self,
        name: &'static str,
        stop: CancellationToken,
        actor: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop_reporter = self.stop_reporter();
        self.tasks.spawn(async move {
            let ended = AssertUnwindSafe(actor).catch_unwind().await;
            if !stop.is_cancelled() {
                let how = count_end(name, ended.is_err());
                stop_reporter.report(&format!("the {name} actor {how}"));
            }
        });
    }

    /// Waits for all actors to end.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Counts the end of an actor that was not stopped; returns how it ended.
fn count_end(name: &'static str, panicked: bool) -> &'static str {
    metrics::counter!("reveille_actor_ends_total", "actor" => name).increment(1);
    if panicked { "panicked" } else { "ended" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn stateless_actor_is_restarted_and_stateful_one_stops_the_node() {
        let (supervisor, stop, starts) = (Supervisor::new(), CancellationToken::new(), Arc::new(AtomicU32::new(0)));
        let (counted, last) = (Arc::clone(&starts), stop.clone());
        let pause = Duration::from_millis(100);
        supervisor.run_restarting("LeaseClient", &Handle::current(), pause, stop.clone(), move || {
            let (start, last) = (counted.fetch_add(1, Ordering::SeqCst), last.clone());
            async move {
                assert_ne!(start, 0, "the first start panics");
                if start == 3 {
                    last.cancel();
                }
            }
        });
        supervisor.run_essential("Settler", stop, async {});
        let mut failed = supervisor.failed();
        supervisor.ended().await;
        assert_eq!(starts.load(Ordering::SeqCst), 4);
        assert_eq!(failed.borrow_and_update().as_deref(), Some("the Settler actor ended"));
    }
}
