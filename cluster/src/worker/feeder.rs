//! Feeds the sessions of a pool: starts the next waiting recipient when a relay has a session for it and its rate
//! allows an email.
//!
//! Each pool with waiting recipients has one feeder (`pool_queue.rs`). It first gets a permit from a relay and only
//! then chooses the recipient, so the choice is as fair as possible. Recipients that cannot begin within ten seconds of
//! the claim return to pending, and other nodes can take them (P12).

use std::sync::Arc;

use reveille_ledger::command::ReleaseReason;
use tokio::time::Instant;

use super::claim::WorkedClaim;
use super::claim_tasks::ClaimTasks;
use super::context::WorkerContext;
use super::delivery::send;
use super::gate::check_before_session;
use super::outcome::{DeliveryOutcome, no_relay};
use super::pool_queue::PoolQueue;
use crate::smtp::Unavailable;
use crate::smtp::registry::RelayPermit;

/// Reason why waiting recipients return to pending.
enum Returned {
    /// No relay can take an email now, for this reason (text for operators).
    NoRelay(String),
    /// The recipients cannot begin on this node in time.
    Released(ReleaseReason),
}

/// Feeds the pool until its queue is empty.
pub(crate) async fn feed(
    context: Arc<WorkerContext>,
    tasks: ClaimTasks,
    pool: String,
    queue: Arc<PoolQueue<Arc<WorkedClaim>>>,
) {
    while let Some(deadline) = queue.earliest() {
        let (by, cause) = match permit(&context, &pool, deadline).await {
            Ok(permit) => {
                start_next(&context, &tasks, &queue, permit).await;
                continue;
            }
            Err(denied) => denied,
        };
        for waiting in queue.take(by) {
            for number in waiting.recipients {
                let claimed_slot = waiting.claim.recipients[number].claimed_slot;
                let outcome = match &cause {
                    Returned::NoRelay(cause) => no_relay(claimed_slot, cause),
                    Returned::Released(why) => DeliveryOutcome::Released(*why),
                };
                context.settler.settle(claimed_slot, outcome).await;
            }
        }
    }
}

/// Starts the next recipient that may begin. Settles the recipients before it that may not begin.
async fn start_next(
    context: &Arc<WorkerContext>,
    tasks: &ClaimTasks,
    queue: &PoolQueue<Arc<WorkedClaim>>,
    permit: RelayPermit,
) {
    while let Some((claim, number, deadline)) = queue.next() {
        let recipient = &claim.recipients[number];
        match check_before_session(context, recipient.claimed_slot, recipient.run) {
            Ok(()) => return tasks.spawn(send(Arc::clone(context), claim, number, permit, deadline)),
            Err(refusal) => {
                if let Some(outcome) = DeliveryOutcome::of_closed_gate(refusal) {
                    context.settler.settle(recipient.claimed_slot, outcome).await;
                }
            }
        }
    }
}

/// Returns the permit to send one email.
///
/// # Errors
/// Fails if there is no permit before `deadline`: the waiting recipients whose deadline is not later than the returned
/// time go back (all for `None`), for the returned reason.
async fn permit(
    context: &WorkerContext,
    pool: &str,
    deadline: Instant,
) -> Result<RelayPermit, (Option<Instant>, Returned)> {
    let stopping = (None, Returned::Released(ReleaseReason::Stopping));
    loop {
        if context.drain.is_cancelled() {
            return Err(stopping);
        }
        let unavailable = match context.drain.run_until_cancelled(context.relays.acquire(pool, deadline)).await {
            None => return Err(stopping),
            Some(Ok(permit)) => return Ok(permit),
            Some(Err(None)) => {
                let cause = format!("pool '{pool}' has no relay: add one with `relay add`");
                return Err((None, Returned::NoRelay(cause)));
            }
            Some(Err(Some(unavailable))) => unavailable,
        };
        let until = match &unavailable {
            Unavailable::CircuitOpen { until, .. } | Unavailable::Parked { until, .. } => *until,
            // This node has too few sessions or too low a rate, but other nodes may have room.
            Unavailable::Busy => return Err((Some(deadline), Returned::Released(ReleaseReason::Busy))),
            Unavailable::Paced { .. } => return Err((Some(deadline), Returned::Released(ReleaseReason::Paced))),
            Unavailable::Closed => return Err(stopping),
        };
        context.drain.run_until_cancelled(tokio::time::sleep_until(until.min(deadline))).await;
        if until >= deadline && !context.drain.is_cancelled() {
            return Err((Some(deadline), Returned::NoRelay(unavailable.to_string())));
        }
    }
}
