//! Feeds the sessions of a pool: starts the next waiting recipient when a relay has a session for it and its rate
//! allows an email.
//!
//! Each pool with waiting recipients has one feeder (`pool_queue/mod.rs`). It first gets a permit from a relay and only
//! then chooses the recipient, so the choice is as fair as possible. Recipients that cannot begin within ten seconds of
//! the claim return to pending, and other nodes can take them (P12).

use std::sync::Arc;

use reveille_ledger::command::ReleaseReason;
use tokio::time::Instant;

use super::context::WorkerContext;
use super::delivery::send;
use super::outcome::{DeliveryOutcome, RecipientOutcome, no_relay};
use super::taken_recipient::{ClaimQueue, take_next};
use super::worker_tasks::WorkerTasks;
use crate::smtp::SendPermit;
use crate::smtp::Unavailable;
use crate::smtp::registry::NoPermit;

/// Waiting recipients that return to pending, because there is no permit for them.
struct PendingRelease {
    /// The latest deadline of the recipients that return. `None`: all recipients return.
    deadlines_up_to: Option<Instant>,
    outcome: DeliveryOutcome,
}

impl PendingRelease {
    fn stopping() -> PendingRelease {
        PendingRelease { deadlines_up_to: None, outcome: DeliveryOutcome::Released(ReleaseReason::Stopping) }
    }
}

/// Feeds the pool until its queue is empty.
pub(crate) async fn feed(context: Arc<WorkerContext>, tasks: WorkerTasks, pool: String, queue: Arc<ClaimQueue>) {
    while let Some(deadline) = queue.earliest() {
        let release = match permit(&context, &pool, deadline).await {
            Ok(permit) => {
                if let Some(taken) = take_next(&context, &queue, |_| true).await {
                    tasks.spawn(send(Arc::clone(&context), Arc::clone(&queue), taken, permit));
                }
                continue;
            }
            Err(release) => release,
        };
        let waiting_recipients = match release.deadlines_up_to {
            Some(latest) => queue.take_up_to(latest),
            None => queue.take_all(),
        };
        for waiting in waiting_recipients {
            for position in waiting.recipients {
                let claimed_slot = waiting.claim.recipients[position].claimed_slot;
                let outcome = RecipientOutcome::new(claimed_slot, release.outcome.clone());
                context.settler.settle(outcome).await;
            }
        }
    }
}

/// Returns the permit to send one email.
///
/// # Errors
/// Fails if there is no permit before `deadline`: returns which waiting recipients go back.
async fn permit(context: &WorkerContext, pool: &str, deadline: Instant) -> Result<SendPermit, PendingRelease> {
    let release = |outcome| PendingRelease { deadlines_up_to: Some(deadline), outcome };
    let released = |reason| release(DeliveryOutcome::Released(reason));
    loop {
        if context.stop_requested.is_cancelled() {
            return Err(PendingRelease::stopping());
        }
        let unavailable = match context.stop_requested.run_until_cancelled(context.relays.acquire(pool, deadline)).await
        {
            None => return Err(PendingRelease::stopping()),
            Some(Ok(permit)) => return Ok(permit),
            Some(Err(NoPermit::NoRelay)) => {
                let cause = format!("pool '{pool}' has no relay");
                return Err(PendingRelease { deadlines_up_to: None, outcome: no_relay(&cause) });
            }
            Some(Err(NoPermit::Unavailable(unavailable))) => unavailable,
        };
        let until = match &unavailable {
            Unavailable::CircuitOpen { until, .. } | Unavailable::Parked { until, .. } => *until,
            // This node has too few sessions or too low a rate, but other nodes may have room.
            Unavailable::Busy => return Err(released(ReleaseReason::Busy)),
            Unavailable::RateLimited { .. } => return Err(released(ReleaseReason::RateLimited)),
            Unavailable::Closed => return Err(PendingRelease::stopping()),
        };
        context.stop_requested.run_until_cancelled(tokio::time::sleep_until(until.min(deadline))).await;
        if until >= deadline && !context.stop_requested.is_cancelled() {
            return Err(release(no_relay(&unavailable.to_string())));
        }
    }
}
