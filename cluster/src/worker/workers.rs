//! Finds the claims of this node and starts the work on each (P4).
//!
//! A claim is found by its hint. Claims whose hint was lost are found by reading the state once a second. This process
//! works on each claim at most once. `claim_queueing.rs` does it; the sessions with relays limit the number of emails
//! that are sent at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::Claim;
use reveille_ledger::command::Command;
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::Fence;
use reveille_raft::Hint;
use tokio_util::sync::CancellationToken;

use super::claim::ClaimWork;
use super::claim_queueing::queue_recipients;
use super::context::WorkerContext;
use super::lease_client::StopSignals;
use super::worker_tasks::WorkerTasks;
use crate::process::lease::{ASK_EVERY, LEASE};

/// Interval at which the state is read for claims whose hint was lost.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Interval at which closed claims with assumed recipients are checked again.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Maximum time that a stopping node waits for the entry after which no claim is granted to it.
const LAST_TICK_WITHIN: Duration = Duration::from_secs(2);

/// Works on every claim that is granted to this process. After the stop, new claims are returned at once; it ends when
/// no more claims can come and the last task is done.
pub(crate) async fn run(context: Arc<WorkerContext>, stop: StopSignals) {
    let mut hints = context.node.replica.hints();
    let mut worked: BTreeSet<Fence> = BTreeSet::new();
    let tasks = WorkerTasks::new(context.journal.stop_reporter());
    let mut poll = tokio::time::interval(POLL_EVERY);
    let mut forget = tokio::time::interval(FORGET_EVERY);
    let over = async {
        stop.stop_requested.cancelled().await;
        until_nothing_more_is_granted(&context, &stop.leader_knows).await;
        tasks.over().await;
    };
    tokio::pin!(over);
    loop {
        let claims = tokio::select! {
            () = &mut over => break,
            _ = forget.tick() => {
                context.forget_again();
                continue;
            }
            _ = poll.tick() => own_claims(&context, &mut worked),
            hint = hints.next() => match hint {
                Some(Hint::Effect { effect: Effect::ClaimGranted { fence, owner }, .. }) if owner == context.node.me => {
                    vec![fence]
                }
                Some(Hint::Effect { effect: Effect::ClaimEmptied { fence, owner }, .. }) if owner == context.node.me => {
                    context.node.handoffs.claim_emptied(fence);
                    forget_if_closed(&context, fence);
                    continue;
                }
                Some(Hint::Effect { .. }) => continue,
                Some(Hint::Resync) => own_claims(&context, &mut worked),
                None => break,
            },
        };
        start_work(&context, &mut worked, &tasks, claims);
    }
    if stop.stop_requested.is_cancelled() {
        // Every claim is in the state now, but hints may have been lost.
        let claims = own_claims(&context, &mut worked);
        start_work(&context, &mut worked, &tasks, claims);
    }
    tasks.over().await;
}

/// Waits until every claim that any leader grants to this process is in the state. A leader that knows of the stop
/// grants no more claims, and its earlier claims precede the `Tick` in the log. If no leader answers, the last request
/// may still have been granted, so that lease is waited out. A later leader learns of the stop only from lease
/// requests. A request from before the stop that arrives a second late may therefore leave a claim for the next start.
async fn until_nothing_more_is_granted(context: &WorkerContext, known: &CancellationToken) {
    let _ = tokio::time::timeout(ASK_EVERY + LEASE, known.cancelled()).await;
    let deadline = std::time::Instant::now() + LAST_TICK_WITHIN;
    match context.node.replica.propose(&Command::Tick, deadline).await {
        Ok(reply) => drop(context.node.replica.wait_applied(reply.index, deadline).await),
        Err(error) => tracing::debug!(%error, "claims may still be granted: the next start settles them"),
    }
}

/// Starts the work on each claim that this process has not worked on yet.
fn start_work(context: &Arc<WorkerContext>, worked: &mut BTreeSet<Fence>, tasks: &WorkerTasks, claims: Vec<Fence>) {
    for fence in claims {
        if worked.insert(fence)
            && let Some(claim) = claim_of(context, fence)
        {
            tasks.spawn(queue_recipients(Arc::clone(context), tasks.clone(), claim));
        }
    }
}

fn claim_of(context: &WorkerContext, fence: Fence) -> Option<ClaimWork> {
    context.node.replica.read(|ledger| ClaimWork::new(ledger, fence, ledger.claims().get(&fence)?))
}

/// Returns the claims of this process that have work: claimed recipients, or a revocation while this process runs.
/// After a revocation this process releases the recipients that it never began, which resolves their doubt. Removes
/// only closed claims from `worked`, because an open claim must never be worked on twice.
fn own_claims(context: &WorkerContext, worked: &mut BTreeSet<Fence>) -> Vec<Fence> {
    let (own, closed) = context.node.replica.read(|ledger| {
        let has_work = |claim: &Claim| !claim.claimed.is_empty() || claim.was_revoked();
        let own = ledger.claims().iter().filter(|(_, claim)| claim.owner == context.node.me && has_work(claim));
        let own: Vec<Fence> = own.map(|(fence, _)| *fence).collect();
        let applied = ledger.head().applied;
        let gone = |fence: &&Fence| fence.index <= applied && !ledger.claims().contains(fence);
        (own, worked.iter().filter(gone).copied().collect::<Vec<Fence>>())
    });
    for fence in closed {
        worked.remove(&fence);
        context.node.handoffs.claim_emptied(fence);
        context.forget(fence);
    }
    own
}

/// Forgets the claim in the journal if it is closed. The journal keeps the records of a claim until none of its
/// recipients is claimed or in doubt (P11).
fn forget_if_closed(context: &WorkerContext, fence: Fence) {
    if context.node.replica.read(|ledger| !ledger.claims().contains(&fence)) {
        context.forget(fence);
    }
}
