//! Takes recipients out of the queue of their pool, for the feeder and for sessions that go on with another email.

use std::sync::Arc;

use tokio::time::Instant;

use super::claim::{ClaimWork, ClaimedRecipient};
use super::context::WorkerContext;
use super::gate_checks::check_before_session;
use super::journal::ClaimedSlot;
use super::outcome::RecipientOutcome;
use super::pool_queue::PoolQueue;

/// The queue of one pool.
pub(crate) type ClaimQueue = PoolQueue<Arc<ClaimWork>>;

/// A recipient that was taken out of the queue of its pool. Its owner settles it.
pub(crate) struct TakenRecipient {
    pub claim: Arc<ClaimWork>,
    /// Its number in the claim.
    position: usize,
    /// Time by which it must begin, or go back (P12).
    pub deadline: Instant,
}

impl TakenRecipient {
    pub fn claimed(&self) -> &ClaimedRecipient {
        &self.claim.recipients[self.position]
    }

    pub fn claimed_slot(&self) -> ClaimedSlot {
        self.claimed().claimed_slot
    }
}

/// Takes out the next recipient that may be sent, unless it is not `wanted`. Settles the recipients before it that may
/// not be sent.
pub(crate) async fn take_next(
    context: &WorkerContext,
    queue: &ClaimQueue,
    mut wanted: impl FnMut(&ClaimedRecipient) -> bool,
) -> Option<TakenRecipient> {
    loop {
        let (claim, position, deadline) = queue.next_if(|claim, position| wanted(&claim.recipients[position]))?;
        let taken = TakenRecipient { claim, position, deadline };
        match check_before_session(context, taken.claimed_slot(), taken.claimed().run) {
            Ok(()) => return Some(taken),
            Err(outcome) => context.settler.settle(RecipientOutcome::new(taken.claimed_slot(), outcome)).await,
        }
    }
}
