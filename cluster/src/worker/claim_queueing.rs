//! Queues the recipients of one claim for sessions of its pool (P4, P5).
//!
//! `workers.rs` calls it once for each claim. `feeder.rs` then starts the delivery of each recipient,
//! `composition.rs` composes its email, and `delivery.rs` sends it (P5.1 has the order of all steps). Each recipient of
//! a claim has at most one `handoff`. After `handoff` the recipient leaves the claim, whatever the answer is, and nothing
//! here retries.

use std::collections::VecDeque;
use std::sync::Arc;

use reveille_ledger::command::ReleaseReason;
use reveille_raft::crash;
use tokio::time::Instant;

use super::audience_read;
use super::claim::ClaimWork;
use super::context::WorkerContext;
use super::feeder::feed;
use super::injected_bugs;
use super::outcome::{DeliveryOutcome, RecipientOutcome, node_unable};
use super::pool_queue::WaitingClaim;
use super::worker_tasks::WorkerTasks;
use crate::process::limits::SESSION_WITHIN;

/// Reads the recipients of `claim` and queues those that could be read. Settles the others. `tasks` run the deliveries.
pub(crate) async fn queue_recipients(context: Arc<WorkerContext>, tasks: WorkerTasks, mut claim: ClaimWork) {
    crash::point("claim.after-commit-before-send");
    if context.node.leadership().is_none() {
        crash::point("claim.after-apply-on-follower");
    }
    let deadline = Instant::now() + SESSION_WITHIN;
    claim.sealed_recipients = audience_read::recipients(&context, &claim.recipients, deadline).await;
    let claim = Arc::new(claim);
    let mut positions = VecDeque::new();
    for (position, recipient) in claim.recipients.iter().enumerate() {
        let claimed_slot = recipient.claimed_slot;
        if let Some(Err(cause)) = claim.sealed_recipients.get(&claimed_slot.slot) {
            context.settler.settle(RecipientOutcome::new(claimed_slot, unread(&context, cause))).await;
            continue;
        }
        if injected_bugs::idles(position, claim.recipients.len()) {
            tasks.spawn(injected_bugs::idle(context.settler.clone(), claimed_slot));
            continue;
        }
        positions.push_back(position);
    }
    let (tenant, share) = (claim.tenant.as_str().into(), claim.share);
    let waiting = WaitingClaim { claim: Arc::clone(&claim), tenant, share, recipients: positions, deadline };
    if let Some(queue) = context.queues.push(&claim.pool, waiting) {
        tasks.spawn(feed(Arc::clone(&context), tasks.clone(), claim.pool.clone(), queue));
    }
}

/// Returns the outcome of a recipient that could not be read, before it uses a relay. It is pending again after a
/// while, and the attempt is not counted: this node may fetch the part from a peer, or another node may have it.
fn unread(context: &WorkerContext, cause: &str) -> DeliveryOutcome {
    if context.stop_requested.is_cancelled() {
        return DeliveryOutcome::Released(ReleaseReason::Stopping);
    }
    node_unable(cause)
}
