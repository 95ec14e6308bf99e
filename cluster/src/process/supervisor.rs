//! Supervision of a node's actors as a table: the runtime of each actor, and what its end means.
//!
//! An actor that ends without being stopped has failed, unless it returns [`ActorEnd::AsAsked`]. Actors of a leadership
//! are not in this table: the first of them that ends also ends its leadership (see `leader/epoch.rs`), and the
//! next one starts from the state.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The actors of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActorKind {
    /// Runs this node's leaderships.
    Leadership,
    /// Prolongs the node lease.
    LeaseClient,
    /// Processes claims.
    ClaimWorkers,
    /// Settles outcomes.
    Settler,
    /// Updates the relays to the ledger.
    RelayFollower,
    /// Measures late emails.
    BacklogWatch,
    /// Fetches and removes audience parts by the ledger.
    AudienceParts,
    /// Compares this replica's state with the others'.
    StateComparison,
}

/// Reaction to the end of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnEnd {
    /// The actor has nothing that a new one would not find in the state: start another one after this pause.
    Restart(Duration),
    /// The actor had something that cannot be rebuilt: stop the node, which recovers as after a crash.
    StopNode,
}

/// Runtime of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActorRuntime {
    /// Raft's runtime, for actors that must run even if the rest of the node is busy. A leadership that starves fires
    /// nothing. A lease that is not prolonged puts all of the node's claims in doubt.
    Raft,
    /// Runtime on which emails are composed and sent. It may be busy.
    Work,
}

impl ActorKind {
    /// The table's first column: the actor's runtime.
    fn runtime(self) -> ActorRuntime {
        match self {
            ActorKind::Leadership | ActorKind::LeaseClient => ActorRuntime::Raft,
            ActorKind::ClaimWorkers
            | ActorKind::Settler
            | ActorKind::RelayFollower
            | ActorKind::BacklogWatch
            | ActorKind::AudienceParts
            | ActorKind::StateComparison => ActorRuntime::Work,
        }
    }

    /// The table's second column: what the actor's end means.
    fn end(self) -> OnEnd {
        match self {
            ActorKind::Leadership => OnEnd::Restart(Duration::from_millis(100)),
            ActorKind::LeaseClient => OnEnd::Restart(Duration::from_millis(100)),
            ActorKind::RelayFollower
            | ActorKind::BacklogWatch
            | ActorKind::AudienceParts
            | ActorKind::StateComparison => OnEnd::Restart(Duration::from_secs(1)),
            // These two have the handoffs past the gate and the outcomes that are not settled.
            ActorKind::ClaimWorkers | ActorKind::Settler => OnEnd::StopNode,
        }
    }
}

/// Runs the actors of one node, and reports that the node must stop.
pub(crate) struct Supervisor {
    raft: Handle,
    work: Handle,
    tasks: TaskTracker,
    failing: Failing,
}

/// Reports that the node must stop, and why. The first reason is kept.
#[derive(Clone, Debug)]
pub(crate) struct Failing(watch::Sender<Option<String>>);

impl Failing {
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
    /// `raft` is Raft's runtime. The caller must be inside the other runtime.
    pub fn new(raft: Handle) -> Supervisor {
        Supervisor {
            raft,
            work: Handle::current(),
            tasks: TaskTracker::new(),
            failing: Failing(watch::Sender::new(None)),
        }
    }

    /// Returns why the node must stop. `None` while it need not.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.failing.0.subscribe()
    }

    /// Returns a reporter, for an actor that continues after a failure of something else.
    pub fn failing(&self) -> Failing {
        self.failing.clone()
    }

    /// Runs an actor by the table. It may end after `stop` is cancelled, or by returning [`ActorEnd::AsAsked`].
    pub fn run<F>(&self, kind: ActorKind, stop: CancellationToken, mut actor: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ActorEnd> + Send + 'static,
    {
        let failing = self.failing.clone();
        let runtime = match kind.runtime() {
            ActorRuntime::Raft => &self.raft,
            ActorRuntime::Work => &self.work,
        };
        let supervised = async move {
            loop {
                let ended = std::panic::AssertUnwindSafe(actor()).catch_unwind().await;
                if stop.is_cancelled() || matches!(ended, Ok(ActorEnd::AsAsked)) {
                    return;
                }
                let how = if ended.is_err() { "panicked" } else { "ended" };
                metrics::counter!("reveille_actor_ends_total", "actor" => format!("{kind:?}")).increment(1);
                match kind.end() {
                    OnEnd::Restart(pause) => {
                        tracing::error!(?kind, how, "an actor is started again");
                        tokio::time::sleep(pause).await;
                    }
                    OnEnd::StopNode => {
                        failing.report(&format!("the {kind:?} actor {how}"));
                        return;
                    }
                }
            }
        };
        self.tasks.spawn_on(supervised, runtime);
    }

    /// Waits for all actors to end.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Reason why an actor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActorEnd {
    /// The actor has no more work, as intended.
    AsAsked,
    /// The actor could not continue.
    Unasked,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn stateless_actor_is_restarted_and_stateful_one_stops_the_node() {
        let (supervisor, stop, starts) =
            (Supervisor::new(Handle::current()), CancellationToken::new(), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&starts);
        supervisor.run(ActorKind::LeaseClient, stop.clone(), move || {
            let start = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                assert_ne!(start, 0, "the first start panics");
                if start < 3 { ActorEnd::Unasked } else { ActorEnd::AsAsked }
            }
        });
        supervisor.run(ActorKind::Settler, stop, || async { ActorEnd::Unasked });
        let mut failed = supervisor.failed();
        supervisor.ended().await;
        assert_eq!(starts.load(Ordering::SeqCst), 4);
        assert_eq!(failed.borrow_and_update().as_deref(), Some("the Settler actor ended"));
    }
}
