//! The worker of one claim (P4, P5): reads its recipients and queues them for sessions of its pool.
//!
//! Order for one recipient: journal `open`, compose, journal `composed`, dialogue up to the gate, journal `begin`,
//! final dot, answer, journal the answer, settle. Each recipient of a claim has at most one `begin`. After it the
//! recipient leaves the claim, whatever the answer, and nothing here retries. `feeder.rs` starts each recipient,
//! `composition.rs` composes its email, and `delivery.rs` sends it.

use std::collections::VecDeque;
use std::sync::Arc;

use reveille_ledger::command::ReleaseReason;
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_raft::crash;
use tokio::time::Instant;

use super::audience_read;
use super::claim::WorkedClaim;
use super::claim_tasks::ClaimTasks;
use super::context::WorkerContext;
use super::delivery::PREPARE_WITHIN;
use super::feeder::feed;
use super::journal::ClaimedSlot;
use super::outcome::{DeliveryOutcome, no_relay};
use super::pool_queue::WaitingClaim;
use crate::process::limits::SESSION_WITHIN;

/// Prepares one claim for sending.
pub(crate) struct ClaimWorker {
    pub context: Arc<WorkerContext>,
    /// Tasks that send the emails of the claim; they outlive this worker.
    pub tasks: ClaimTasks,
    pub claim: WorkedClaim,
}

impl ClaimWorker {
    /// Queues the recipients of the claim that could be read.
    pub async fn run(self) {
        let ClaimWorker { context, tasks, mut claim } = self;
        crash::point("claim.after-commit-before-send");
        if context.node.leadership().is_none() {
            crash::point("claim.after-apply-on-follower");
        }
        let deadline = Instant::now() + SESSION_WITHIN;
        claim.read = audience_read::recipients(&context, &claim.recipients, deadline).await;
        let claim = Arc::new(claim);
        let mut recipients = VecDeque::new();
        for (number, recipient) in claim.recipients.iter().enumerate() {
            let claimed_slot = recipient.claimed_slot;
            if let Some(Err(cause)) = claim.read.get(&claimed_slot.slot) {
                context.settler.settle(claimed_slot, unread(&context, claimed_slot, cause)).await;
                continue;
            }
            if number > 0 && number + 1 == claim.recipients.len() && injected_bugs::is(Bug::IdleClaim) {
                tasks.spawn(idle(Arc::clone(&context), claimed_slot));
                continue;
            }
            recipients.push_back(number);
        }
        let (tenant, share) = (claim.tenant.as_str().into(), claim.share);
        let waiting = WaitingClaim { claim: Arc::clone(&claim), tenant, share, recipients, deadline };
        if let Some(queue) = context.queues.push(&claim.pool, waiting) {
            tasks.spawn(feed(Arc::clone(&context), tasks.clone(), claim.pool.clone(), queue));
        }
    }
}

/// Returns the outcome of a recipient that could not be read, before it uses a relay. It is pending again after a
/// while, and the attempt is not counted: this node may fetch the part from a peer, or another node may have it.
fn unread(context: &WorkerContext, claimed_slot: ClaimedSlot, cause: &str) -> DeliveryOutcome {
    if context.drain.is_cancelled() {
        return DeliveryOutcome::Released(ReleaseReason::Stopping);
    }
    no_relay(claimed_slot, cause)
}

/// [`Bug::IdleClaim`]: keeps a recipient claimed for a minute without a handoff.
async fn idle(context: Arc<WorkerContext>, claimed_slot: ClaimedSlot) {
    tokio::time::sleep(PREPARE_WITHIN).await;
    context.settler.settle(claimed_slot, DeliveryOutcome::Released(ReleaseReason::Busy)).await;
}
