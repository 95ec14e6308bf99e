//! Supervision as a table: where an actor runs, and what its end means.
//!
//! An actor that ends unasked has failed, whatever it returned. Actors of a leadership are not
//! here: the first of them that ends takes its leadership with it (see `leader/leadership.rs`), and the state builds it anew.

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
    /// Stands for this node's leaderships.
    Leadership,
    /// Keeps the node lease.
    LeaseClient,
    /// Works claims.
    ClaimWorkers,
    /// Settles outcomes.
    Settler,
    /// Keeps relay pools in step with the ledger.
    RelayFollower,
    /// Looks at what is late.
    BacklogWatch,
    /// Keeps the parts of audiences in step with the ledger.
    AudienceParts,
}

/// What happens when an actor ends on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnEnd {
    /// It holds nothing that a new one would not find in the state: another one after this pause.
    Restart(Duration),
    /// It held something that cannot be built again: the node stops, and recovers as after a crash.
    StopNode,
}

/// Which runtime an actor has its threads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActorRuntime {
    /// Raft's own: what must go on however busy the rest is. A leadership that starves fires nothing, and a
    /// lease that is not asked for puts a whole node's rows in doubt: wounds of our own making.
    Raft,
    /// Where emails are composed and sent: as busy as it likes.
    Work,
}

impl ActorKind {
    /// The table: where.
    fn place(self) -> ActorRuntime {
        match self {
            ActorKind::Leadership | ActorKind::LeaseClient => ActorRuntime::Raft,
            ActorKind::ClaimWorkers
            | ActorKind::Settler
            | ActorKind::RelayFollower
            | ActorKind::BacklogWatch
            | ActorKind::AudienceParts => ActorRuntime::Work,
        }
    }

    /// The table: what its end means.
    fn end(self) -> OnEnd {
        match self {
            ActorKind::Leadership => OnEnd::Restart(Duration::from_millis(100)),
            ActorKind::LeaseClient => OnEnd::Restart(Duration::from_millis(100)),
            ActorKind::RelayFollower | ActorKind::BacklogWatch | ActorKind::AudienceParts => {
                OnEnd::Restart(Duration::from_secs(1))
            }
            // What is past the gate and what is not settled lives in these two.
            ActorKind::ClaimWorkers | ActorKind::Settler => OnEnd::StopNode,
        }
    }
}

/// The actors of one node, and the word that the node must stop.
pub(crate) struct Supervisor {
    raft: Handle,
    work: Handle,
    tasks: TaskTracker,
    failing: Failing,
}

/// Says that the node must stop, and why. The first reason stands.
#[derive(Clone, Debug)]
pub(crate) struct Failing(watch::Sender<Option<String>>);

impl Failing {
    /// Says it, and logs the first reason.
    pub fn say(&self, why: &str) {
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
    /// With Raft's runtime; the other one is that of the caller, who must be inside one.
    pub fn new(raft: Handle) -> Supervisor {
        Supervisor {
            raft,
            work: Handle::current(),
            tasks: TaskTracker::new(),
            failing: Failing(watch::Sender::new(None)),
        }
    }

    /// Says why the node must stop, once it must.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.failing.0.subscribe()
    }

    /// For what fails inside an actor that goes on.
    pub fn failing(&self) -> Failing {
        self.failing.clone()
    }

    /// Runs an actor under the table. It may end when `stop` is cancelled, or when it says that it is done
    /// by returning true.
    pub fn run<F>(&self, kind: ActorKind, stop: CancellationToken, mut actor: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ActorEnd> + Send + 'static,
    {
        let failing = self.failing.clone();
        let runtime = match kind.place() {
            ActorRuntime::Raft => &self.raft,
            ActorRuntime::Work => &self.work,
        };
        let life = async move {
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
                        failing.say(&format!("the {kind:?} actor {how}"));
                        return;
                    }
                }
            }
        };
        self.tasks.spawn_on(life, runtime);
    }

    /// Waits for all actors to end.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What an actor says when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActorEnd {
    /// Nothing is left for it to do, and that was meant.
    AsAsked,
    /// It could not go on.
    Unasked,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn an_actor_without_own_state_is_started_again_and_another_stops_the_node() {
        let (supervisor, stop, lives) =
            (Supervisor::new(Handle::current()), CancellationToken::new(), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&lives);
        supervisor.run(ActorKind::LeaseClient, stop.clone(), move || {
            let life = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                assert_ne!(life, 0, "the first life panics");
                if life < 3 { ActorEnd::Unasked } else { ActorEnd::AsAsked }
            }
        });
        supervisor.run(ActorKind::Settler, stop, || async { ActorEnd::Unasked });
        let mut failed = supervisor.failed();
        supervisor.ended().await;
        assert_eq!(lives.load(Ordering::SeqCst), 4);
        assert_eq!(failed.borrow_and_update().as_deref(), Some("the Settler actor ended"));
    }
}
