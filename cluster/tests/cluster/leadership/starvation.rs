//! A node whose work occupies all threads of its main runtime: Raft, the leader's actors and the lease client keep
//! running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::lease::LEASE;
use reveille_cluster::process::lifecycle::NodeRuntime;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::Role;
use tokio::runtime::{Builder, Runtime};

use super::voters::{epoch, started, stopped, until};
use crate::support::{STEP_TIMEOUT, schedule};

/// Threads of the runtime that is starved.
const WORKERS: usize = 2;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().expect("a runtime")
}

/// Occupies every thread of a runtime until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn all_threads_of(runtime: &Runtime) -> Busy {
        let (over, spinning) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..WORKERS {
            let (over, spinning) = (Arc::clone(&over), Arc::clone(&spinning));
            runtime.spawn(async move {
                spinning.fetch_add(1, Ordering::SeqCst);
                while !over.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        until("every thread spins", || spinning.load(Ordering::SeqCst) == WORKERS);
        Busy(over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn has_lease(context: &NodeContext) -> bool {
    let applied = context.replica.read(|ledger| ledger.head().applied);
    context.lease.is_valid(context.clock.boot(), applied)
}

#[test]
fn busy_work_threads_cause_no_election_and_delay_no_timer_or_lease() {
    let folder = tempfile::tempdir().expect("a folder");
    let (work, hand) = (runtime(), runtime());
    let node_runtimes: Vec<NodeRuntime> = work.block_on(async { started(folder.path(), |_| {}).await });
    let contexts: Vec<Arc<NodeContext>> =
        node_runtimes.iter().map(|node_runtime| Arc::clone(&node_runtime.context)).collect();
    until("all have leases", || contexts.iter().all(|context| has_lease(context)));
    let roles: Vec<Role> = contexts.iter().map(|context| *context.replica.role().borrow()).collect();
    let began = epoch(&contexts[0]);

    let busy = Busy::all_threads_of(&work);
    let since = Instant::now();
    let created = hand.block_on(contexts[0].replica.propose(&schedule(1), Instant::now() + STEP_TIMEOUT));
    assert!(matches!(created.expect("an answer").outcome, CommandOutcome::Schedule(_)));
    until("the schedule fired", || contexts[0].replica.read(|ledger| ledger.runs().next().is_some()));
    // Longer than a lease: a node that has a lease now has renewed it meanwhile.
    until("a lease has passed", || since.elapsed() > LEASE + Duration::from_secs(1));
    until("the keeper goes on", || contexts.iter().all(|context| has_lease(context)));
    let now: Vec<Role> = contexts.iter().map(|context| *context.replica.role().borrow()).collect();
    assert_eq!(now, roles, "no election");
    assert_eq!(epoch(&contexts[0]), began, "and no other epoch");
    drop(busy);

    work.block_on(stopped(node_runtimes));
}
