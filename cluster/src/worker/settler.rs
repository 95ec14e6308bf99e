//! The settler: gathers the outcomes of recipients and proposes many of them in one entry.
//!
//! Outcomes come from the deliveries, and from what is settled without a delivery. Each is proposed until the ledger
//! has accepted it. A settle that is applied twice changes nothing more (P4), so a proposal with an unknown outcome is
//! repeated. If the process dies first, its journal has the same outcomes (P11).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::command::ClaimOutcome;
use reveille_ledger::ids::Fence;
use reveille_raft::crash;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::journal::ClaimedSlot;
use super::outcome::DeliveryOutcome;
use crate::process::context::NodeContext;
use crate::process::proposal;

/// Maximum number of outcomes that wait for the settler: twice the largest claim cap. If the queue is full, deliveries
/// wait and no email is handed off, since nothing can be settled.
const QUEUE_MAX: usize = 8_192;
/// Maximum number of outcomes in one proposal. A proposal that is still too large for one entry is halved
/// (`process/proposal.rs`).
const BATCH_MAX: usize = 4_096;
/// Time for which outcomes are gathered while others are still to come. It costs little delay and saves many entries.
const GATHER: Duration = Duration::from_millis(20);

/// Handle that settles outcomes.
#[derive(Clone)]
pub struct Settler {
    queue: mpsc::Sender<(ClaimedSlot, DeliveryOutcome)>,
}

impl Settler {
    /// Returns the handle and its actor. The caller runs the actor until every handle is dropped.
    pub(crate) fn new(context: Arc<NodeContext>) -> (Settler, SettlerActor) {
        let (queue, outcomes) = mpsc::channel(QUEUE_MAX);
        (Settler { queue }, SettlerActor { context, outcomes })
    }

    /// Queues an outcome; waits while the queue is full.
    pub async fn settle(&self, claimed_slot: ClaimedSlot, outcome: DeliveryOutcome) {
        outcome.count();
        if self.queue.send((claimed_slot, outcome)).await.is_err() {
            tracing::error!(fence = %claimed_slot.fence, "the settler is gone: this outcome stays in the journal");
        }
        crash::point("settle.half-a-batch");
    }
}

/// The actor behind [`Settler`].
pub(crate) struct SettlerActor {
    context: Arc<NodeContext>,
    outcomes: mpsc::Receiver<(ClaimedSlot, DeliveryOutcome)>,
}

impl SettlerActor {
    /// Runs until every handle is dropped and everything is settled.
    pub async fn run(mut self) {
        while let Some(first) = self.outcomes.recv().await {
            let came_at = self.context.clock.monotonic();
            let mut batch = vec![first];
            while batch.len() < BATCH_MAX
                && let Ok(next) = self.outcomes.try_recv()
            {
                batch.push(next);
            }
            let wait = if self.is_all(batch.len()) { Duration::ZERO } else { GATHER };
            let end = Instant::now() + wait;
            while batch.len() < BATCH_MAX
                && let Ok(Some(next)) =
                    timeout(end.saturating_duration_since(Instant::now()), self.outcomes.recv()).await
            {
                batch.push(next);
            }
            self.propose(gather(batch)).await;
            self.context.note_settled(came_at);
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
pub(crate) fn gather(batch: impl IntoIterator<Item = (ClaimedSlot, DeliveryOutcome)>) -> Vec<ClaimOutcome> {
    let mut by_claim: BTreeMap<Fence, ClaimOutcome> = BTreeMap::new();
    for (claimed_slot, outcome) in batch {
        let settled = by_claim
            .entry(claimed_slot.fence)
            .or_insert_with(|| ClaimOutcome::empty(claimed_slot.page, claimed_slot.chunk, claimed_slot.fence));
        let outcome = match outcome {
            DeliveryOutcome::Test(reply, outcome) => {
                settled.relay_reply = Some(reply);
                *outcome
            }
            outcome => outcome,
        };
        match outcome {
            DeliveryOutcome::Accepted => {
                settled.accepted.insert(claimed_slot.slot);
            }
            DeliveryOutcome::Released(why) => settled.release(why, claimed_slot.slot),
            DeliveryOutcome::Suppressed => {
                settled.suppressed.insert(claimed_slot.slot);
            }
            DeliveryOutcome::InDoubt => {
                settled.in_doubt.insert(claimed_slot.slot);
            }
            DeliveryOutcome::Refused(refused) => settled.refused.push(refused),
            DeliveryOutcome::Unsendable(cause) => settled.unsendable.push((claimed_slot.slot, cause)),
            // A test outcome contains no other test outcome.
            DeliveryOutcome::Test(..) => {}
        }
    }
    by_claim.into_values().collect()
}
