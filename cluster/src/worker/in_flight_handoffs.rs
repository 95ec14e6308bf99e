//! The handoffs of this node between gate and answer, which a barrier must name (P15).
//!
//! Invariant: a delivery inserts its handoff *before* it reads the state. For a barrier the node applies the entry
//! *before* it reads this list. So a handoff that did not see the entry is in the list, and a handoff that is not in
//! the list has seen the entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_ledger::ids::{Fence, RunId};

use super::journal::ClaimedSlot;

/// One handoff. It is made before its dialogue, and listed from just before its gate until its answer is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// Claim and slot of the recipient.
    pub claimed_slot: ClaimedSlot,
    /// Run of the recipient.
    pub run: RunId,
    /// Number of the recipient in the run.
    pub recipient: u32,
    /// Tenant of the run, and address key of the recipient: by them opt-outs name it.
    pub tenant_and_key: (String, String),
}

impl Handoff {
    /// Returns the name of the recipient in log lines, such as `r1042.3#17`. Never an address.
    pub(crate) fn name(&self) -> String {
        format!("{}#{}", self.run, self.recipient)
    }

    fn id(&self) -> (Fence, RunId, u32) {
        (self.claimed_slot.fence, self.run, self.recipient)
    }
}

/// The handoffs of one node that wait for their answer, or are in doubt while recipients of their claim are still
/// claimed.
#[derive(Debug, Default)]
pub struct InFlightHandoffs(Mutex<BTreeMap<(Fence, RunId, u32), InFlight>>);

#[derive(Debug)]
struct InFlight {
    handoff: Arc<Handoff>,
    /// True if the dialogue has ended without an answer.
    in_doubt: bool,
}

impl InFlightHandoffs {
    /// Adds a handoff. The gate must call this before it reads the state.
    pub fn insert(&self, handoff: &Arc<Handoff>) {
        let in_flight = InFlight { handoff: Arc::clone(handoff), in_doubt: false };
        self.0.lock().insert(handoff.id(), in_flight);
    }

    /// Removes a handoff, because the gate stayed closed or the answer is known.
    pub fn remove(&self, handoff: &Handoff) {
        self.0.lock().remove(&handoff.id());
    }

    /// Marks a handoff whose dialogue ended without an answer. It stays listed until its claim has no claimed
    /// recipient: until then the state may not show it as in doubt.
    pub fn in_doubt(&self, handoff: &Handoff) {
        if let Some(in_flight) = self.0.lock().get_mut(&handoff.id()) {
            in_flight.in_doubt = true;
        }
    }

    /// Removes the handoffs in doubt of a claim in which nothing is claimed any more: the ledger names them now. Keeps
    /// handoffs that wait for their answer, since only this node knows of them.
    pub fn claim_emptied(&self, fence: Fence) {
        self.0.lock().retain(|(of, _, _), in_flight| *of != fence || !in_flight.in_doubt);
    }

    /// Returns the handoffs that concern a barrier. The state must include the barrier's entry before this call.
    pub fn about(&self, concerns: impl Fn(&Handoff) -> bool) -> Vec<Arc<Handoff>> {
        let in_flight = self.0.lock();
        in_flight.values().map(|one| &one.handoff).filter(|handoff| concerns(handoff)).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::{Epoch, PageId};

    use super::*;

    #[test]
    fn emptied_claim_drops_only_handoffs_whose_dialogues_are_over() {
        let fence = Fence { group: 1, epoch: Epoch(2), index: 7, place: 0 };
        let run = RunId { index: 5, place: 0 };
        let handoff = |recipient: u32| Handoff {
            claimed_slot: ClaimedSlot { chunk: PageId(run).chunk(0), fence, slot: recipient as u16 },
            run,
            recipient,
            tenant_and_key: ("default".to_owned(), format!("r{recipient}")),
        };
        let handoffs = InFlightHandoffs::default();
        (0..3).for_each(|recipient| handoffs.insert(&Arc::new(handoff(recipient))));
        handoffs.in_doubt(&handoff(0));
        handoffs.remove(&handoff(1));
        handoffs.claim_emptied(fence);
        let left: Vec<u32> = handoffs.about(|_| true).iter().map(|handoff| handoff.recipient).collect();
        assert_eq!(left, [2], "P15: its answer is still to come");
    }
}
