//! The settler: gathers the outcomes of recipients and proposes many of them in one entry.
//!
//! Outcomes come from the deliveries, and from what is settled without a delivery. Each is proposed until the ledger
//! has accepted it. A settle that is applied twice changes nothing more (P4), so a proposal with an unknown outcome is
//! repeated. If the process crashes first, its journal has the same outcomes (P11).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::command::{ClaimOutcome, RefusalEffect, RelayRefusal};
use reveille_ledger::ids::Fence;
use reveille_raft::crash;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::journal::ClaimedSlot;
use super::outcome::{DeliveryOutcome, RecipientOutcome};
use crate::process::context::NodeContext;
use crate::process::proposal;

/// Maximum number of outcomes that wait for the settler: twice the largest claim cap. If the queue is full, deliveries
/// wait and no email is handed off, since nothing can be settled.
const QUEUE_MAX: usize = 8_192;
/// Maximum number of outcomes in one proposal. A proposal that is still too large for one entry is halved
/// (`process/proposal.rs`).
const BATCH_MAX: usize = 4_096;
/// Time for which outcomes are gathered while others are still to come. It costs little delay and saves many entries.
const GATHER: Duration = Duration::from_millis(100);

/// Handle that settles outcomes.
#[derive(Clone)]
pub struct Settler {
    queue: mpsc::Sender<RecipientOutcome>,
}

impl Settler {
    /// Returns the handle and its actor. The caller runs the actor until every handle is dropped.
    pub(crate) fn new(context: Arc<NodeContext>) -> (Settler, SettlerActor) {
        let (queue, outcomes) = mpsc::channel(QUEUE_MAX);
        (Settler { queue }, SettlerActor { context, outcomes })
    }

    /// Queues an outcome. Waits while the queue is full.
    pub async fn settle(&self, settled: RecipientOutcome) {
        settled.outcome.count();
        let fence = settled.claimed_slot.fence;
        if self.queue.send(settled).await.is_err() {
            tracing::error!(%fence, "the settler is gone: this outcome stays in the journal");
        }
        crash::point("settle.half-a-batch");
    }
}

/// The actor behind [`Settler`].
pub(crate) struct SettlerActor {
    context: Arc<NodeContext>,
    outcomes: mpsc::Receiver<RecipientOutcome>,
}

impl SettlerActor {
    /// Runs until every handle is dropped and everything is settled.
    pub async fn run(mut self) {
        while let Some(first) = self.outcomes.recv().await {
            let came_at = self.context.clock.monotonic();
            let mut batch = vec![first];
            self.take_queued(&mut batch);
            if !self.is_all(batch.len()) {
                // Asleep: a wait for the next outcome would wake this task for each email.
                sleep(GATHER).await;
                self.take_queued(&mut batch);
            }
            self.propose(gather(batch)).await;
            self.context.record_settled(came_at);
        }
    }

    fn take_queued(&mut self, batch: &mut Vec<RecipientOutcome>) {
        while batch.len() < BATCH_MAX
            && let Ok(next) = self.outcomes.try_recv()
        {
            batch.push(next);
        }
    }

    /// Returns true if the node has no more claimed recipients than these, so waiting would bring no further outcome.
    fn is_all(&self, outcomes: usize) -> bool {
        let me = self.context.me;
        self.context.replica.read(|ledger| {
            let own = ledger.claims().iter().filter(|(_, claim)| claim.owner == me);
            own.map(|(_, claim)| claim.claimed.len() as usize).sum::<usize>() <= outcomes
        })
    }

    async fn propose(&self, outcomes: Vec<ClaimOutcome>) {
        crash::point("settle.before-propose");
        match proposal::settle(self.context.as_ref(), outcomes, &CancellationToken::new()).await {
            Ok(_) => crash::point("settle.after-commit"),
            Err(cause) => tracing::warn!(?cause, "outcomes are not settled: they stay in the journal"),
        }
    }
}

/// Groups outcomes by claim.
fn gather(batch: Vec<RecipientOutcome>) -> Vec<ClaimOutcome> {
    let mut by_claim: BTreeMap<Fence, ClaimOutcome> = BTreeMap::new();
    for RecipientOutcome { claimed_slot, outcome, test_reply } in batch {
        let ClaimedSlot { chunk, fence, slot } = claimed_slot;
        let settled = by_claim.entry(fence).or_insert_with(|| ClaimOutcome::empty(chunk, fence));
        if test_reply.is_some() {
            settled.relay_reply = test_reply;
        }
        match outcome {
            DeliveryOutcome::Accepted => {
                settled.accepted.insert(slot);
            }
            DeliveryOutcome::Released(why) => settled.release(why, slot),
            DeliveryOutcome::Suppressed => {
                settled.suppressed.insert(slot);
            }
            DeliveryOutcome::InDoubt => {
                settled.in_doubt.insert(slot);
            }
            DeliveryOutcome::Refused(refused) => settled.refused.push(refused),
            DeliveryOutcome::NoRelay(cause) | DeliveryOutcome::NodeUnable(cause) => {
                settled.refused.push(no_answer(slot, cause, RefusalEffect::NextWave))
            }
            DeliveryOutcome::BrokenFromRcpt(cause) => {
                settled.refused.push(no_answer(slot, cause, RefusalEffect::CountAttempt));
            }
            DeliveryOutcome::Unsendable(cause) => settled.unsendable.push((slot, cause)),
        }
    }
    by_claim.into_values().collect()
}

/// Returns how the ledger records that no relay answered: a refusal with code 0.
fn no_answer(slot: u16, cause: String, effect: RefusalEffect) -> RelayRefusal {
    RelayRefusal { slot, code: 0, enhanced: None, text: cause, effect }
}
