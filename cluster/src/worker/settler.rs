//! The settler: gathers what became of recipients and proposes it, many in one entry.
//!
//! Outcomes come from claim workers and from recovery. Each is proposed until the ledger has taken it: a settle
//! that comes twice changes nothing more (P4), so an unknown answer is simply asked again. Nothing is lost
//! while the process lives; if it dies, the journal says the same things (P11).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::command::ClaimOutcome;
use reveille_ledger::ids::Fence;
use reveille_raft::crash;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::journal::Place;
use super::outcome::DeliveryOutcome;
use crate::node::context::NodeContext;
use crate::node::proposal;

/// Outcomes that wait for the settler. Twice the largest claim cap: when it is full the claim workers wait, and
/// with them the hand-offs, which is what must happen when nothing can be settled.
const QUEUE_MAX: usize = 8_192;
/// Outcomes that are settled together. What exceeds an entry all the same is halved (`propose_until_taken`).
const BATCH_MAX: usize = 4_096;
/// How long outcomes are gathered while others are under way: it costs little lateness and saves many entries.
const GATHER: Duration = Duration::from_millis(20);

/// Where claim workers leave outcomes.
#[derive(Clone)]
pub struct Settler {
    queue: mpsc::Sender<(Place, DeliveryOutcome)>,
}

impl Settler {
    /// The handle, and the actor that is to be run until every handle is gone.
    pub(crate) fn new(context: Arc<NodeContext>) -> (Settler, Actor) {
        let (queue, outcomes) = mpsc::channel(QUEUE_MAX);
        (Settler { queue }, Actor { context, outcomes })
    }

    /// Leaves an outcome; waits while the queue is full.
    pub async fn settle(&self, place: Place, outcome: DeliveryOutcome) {
        outcome.count();
        if self.queue.send((place, outcome)).await.is_err() {
            tracing::error!(fence = %place.fence, "the settler is gone: this outcome stays in the journal");
        }
        crash::point("settle.half-a-batch");
    }
}

/// The actor behind [`Settler`].
pub(crate) struct Actor {
    context: Arc<NodeContext>,
    outcomes: mpsc::Receiver<(Place, DeliveryOutcome)>,
}

impl Actor {
    /// Runs until every handle is gone and everything is settled.
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
            self.put(gather(batch)).await;
            self.context.note_settled(came_at);
        }
    }

    /// Is this as much as the node has claimed? Then there is nothing to wait for.
    fn is_all(&self, outcomes: usize) -> bool {
        let me = self.context.me;
        self.context.replica.read(|ledger| {
            let own = ledger.claims().iter().filter(|(_, claim)| claim.owner == me);
            own.map(|(_, claim)| claim.claimed.len() as usize).sum::<usize>() <= outcomes
        })
    }

    async fn put(&self, outcomes: Vec<ClaimOutcome>) {
        crash::point("settle.before-propose");
        match proposal::settle(&self.context, outcomes, &CancellationToken::new()).await {
            Ok(_) => crash::point("settle.after-commit"),
            Err(cause) => tracing::warn!(?cause, "outcomes are not settled: they stay in the journal"),
        }
    }
}

/// Outcomes of the same claim together.
pub(crate) fn gather(batch: impl IntoIterator<Item = (Place, DeliveryOutcome)>) -> Vec<ClaimOutcome> {
    let mut by_claim: BTreeMap<Fence, ClaimOutcome> = BTreeMap::new();
    for (place, outcome) in batch {
        let settled =
            by_claim.entry(place.fence).or_insert_with(|| ClaimOutcome::empty(place.page, place.chunk, place.fence));
        let outcome = match outcome {
            DeliveryOutcome::Test(said, outcome) => {
                settled.relay_reply = Some(said);
                *outcome
            }
            outcome => outcome,
        };
        match outcome {
            DeliveryOutcome::Accepted => {
                settled.accepted.insert(place.slot);
            }
            DeliveryOutcome::Released(why) => settled.release(why, place.slot),
            DeliveryOutcome::Suppressed => {
                settled.suppressed.insert(place.slot);
            }
            DeliveryOutcome::InDoubt => {
                settled.in_doubt.insert(place.slot);
            }
            DeliveryOutcome::Refused(refused) => settled.refused.push(refused),
            DeliveryOutcome::Unsendable(cause) => settled.unsendable.push((place.slot, cause)),
            // It is nested once at most.
            DeliveryOutcome::Test(..) => {}
        }
    }
    by_claim.into_values().collect()
}
