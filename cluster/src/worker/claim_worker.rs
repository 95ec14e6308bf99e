//! The worker of one claim: from granted recipients to one outcome each (P4, P5).
//!
//! Order for one recipient: journal `open`, compose, journal `composed`, dialogue up to the gate, journal `begin`,
//! terminator, answer, journal the answer, settle. There is one `begin` for each (claim, recipient): after it the
//! recipient leaves the claim, whatever the answer, and nothing here retries. What cannot begin within ten seconds returns
//! to pending. `composition.rs` composes, `delivery.rs` sees one email through.

use std::collections::BTreeSet;
use std::sync::Arc;

use reveille_ledger::command::ReleaseReason;
use reveille_raft::crash;
use tokio::time::Instant;

use super::claim::{ClaimedRecipient, WorkedClaim};
use super::claim_tasks::ClaimTasks;
use super::context::WorkerContext;
use super::delivery::send;
use super::gate::may_begin;
use super::outcome::{DeliveryOutcome, no_relay};
use super::tenant_queue::QueuedClaim;
use super::{audience_read, claim_after_send};
use crate::node::limits::BEGIN_WITHIN;
use crate::smtp::registry::RelayPermit;
use crate::smtp::{GateRefusal, Unavailable};

/// Works one claim.
pub(crate) struct ClaimWorker {
    pub context: Arc<WorkerContext>,
    /// Runs the emails of the claim, and outlives this worker.
    pub tasks: ClaimTasks,
    pub claim: WorkedClaim,
}

/// Why the rest of a claim returns to pending.
enum Returned {
    /// No relay can take it now, in words for people.
    NoRelay(String),
    /// It cannot begin here.
    Released(ReleaseReason),
}

/// Why there is no permit.
enum Denied {
    /// This recipient may not leave; the next one of the claim may.
    Recipient(GateRefusal),
    /// The rest of the claim returns.
    Claim(Returned),
}

impl ClaimWorker {
    /// Begins the recipients one after the other, as fast as the relays allow; returns what cannot begin in time.
    pub async fn run(self) {
        let ClaimWorker { context, tasks, mut claim } = self;
        crash::point("claim.after-commit-before-send");
        if context.node.leadership().is_none() {
            crash::point("claim.after-apply-on-follower");
        }
        let deadline = Instant::now() + BEGIN_WITHIN;
        claim.read = audience_read::recipients(&context, &claim.recipients, deadline).await;
        let unread = settle_unread(&context, &claim).await;
        let claim = Arc::new(claim);
        let sent = claim.recipients.iter().enumerate().filter(|(_, one)| !unread.contains(&one.place.slot));
        let last = sent.clone().map(|(number, _)| number).next_back();
        let mut queued = context.queues.join(&claim.tenant, &claim.pool, claim.share);
        let mut returned = None;
        for (number, recipient) in sent {
            let place = recipient.place;
            let is_last = Some(number) == last;
            if claim_after_send::takes_over(&context, &tasks, place, is_last && number > 0).await {
                continue;
            }
            if returned.is_none() {
                match permit(&context, (&mut queued, &claim.pool), recipient, (deadline, is_last)).await {
                    Ok(permit) => {
                        tasks.spawn(send(Arc::clone(&context), Arc::clone(&claim), number, permit, deadline));
                        continue;
                    }
                    Err(Denied::Recipient(refusal)) => {
                        queued.leave();
                        if let Some(outcome) = DeliveryOutcome::of_closed_gate(refusal) {
                            context.settler.settle(place, outcome).await;
                        }
                        continue;
                    }
                    Err(Denied::Claim(cause)) => returned = Some(cause),
                }
                queued.leave();
            }
            let outcome = match &returned {
                Some(Returned::NoRelay(cause)) => no_relay(place, cause),
                Some(Returned::Released(why)) => DeliveryOutcome::Released(*why),
                None => DeliveryOutcome::Released(ReleaseReason::Busy),
            };
            context.settler.settle(place, outcome).await;
        }
    }
}

/// Returns recipients that could not be read, before anything of a relay is spent on them; answers their slots. The
/// part may come from a peer, and other nodes may have it: these recipients are pending again in a while, uncounted.
async fn settle_unread(context: &WorkerContext, claim: &WorkedClaim) -> BTreeSet<u16> {
    let mut settled = BTreeSet::new();
    for place in claim.recipients.iter().map(|recipient| recipient.place) {
        let Some(Err(cause)) = claim.read.get(&place.slot) else { continue };
        let outcome = if context.drain.is_cancelled() {
            DeliveryOutcome::Released(ReleaseReason::Stopping)
        } else {
            no_relay(place, cause)
        };
        context.settler.settle(place, outcome).await;
        settled.insert(place.slot);
    }
    settled
}

/// The right to send one email, or why there is none in time.
async fn permit(
    context: &WorkerContext,
    (queued, pool): (&mut QueuedClaim, &str),
    recipient: &ClaimedRecipient,
    (deadline, is_last): (Instant, bool),
) -> Result<RelayPermit, Denied> {
    let released = |why| Err(Denied::Claim(Returned::Released(why)));
    loop {
        let applied = context.node.replica.read(|ledger| {
            may_begin(ledger, context.node.me, recipient.place, recipient.run).map_err(Denied::Recipient)?;
            Ok(ledger.head().applied)
        })?;
        if context.drain.is_cancelled() {
            return released(ReleaseReason::Stopping);
        }
        if !context.node.lease.runs(context.node.lease_clock(), applied) {
            return released(ReleaseReason::LeaseOver);
        }
        let asked = async {
            let turn = queued.turn(deadline).await.ok_or(Some(Unavailable::Busy))?;
            let permit = context.relays.acquire(pool, deadline).await?;
            // The turn is over as soon as there is a permit, or none: it is not held through a dialogue.
            if !is_last {
                queued.requeue(turn);
            }
            Ok(permit)
        };
        let unavailable = match context.drain.run_until_cancelled(asked).await {
            None => return released(ReleaseReason::Stopping),
            Some(Ok(permit)) => return Ok(permit),
            Some(Err(None)) => {
                let cause = format!("pool '{pool}' has no relay: add one with `relay add`");
                return Err(Denied::Claim(Returned::NoRelay(cause)));
            }
            Some(Err(Some(unavailable))) => unavailable,
        };
        let until = match &unavailable {
            Unavailable::CircuitOpen { until, .. } | Unavailable::Parked { until, .. } => *until,
            // The rate or the sessions of this node do not suffice for the claim: other nodes may have room.
            Unavailable::Busy => return released(ReleaseReason::Busy),
            Unavailable::Paced { .. } => return released(ReleaseReason::Paced),
            Unavailable::Closed => return released(ReleaseReason::Stopping),
        };
        if until >= deadline {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = context.drain.cancelled() => return released(ReleaseReason::Stopping),
            }
            return Err(Denied::Claim(Returned::NoRelay(unavailable.to_string())));
        }
        context.drain.run_until_cancelled(tokio::time::sleep_until(until)).await;
    }
}
