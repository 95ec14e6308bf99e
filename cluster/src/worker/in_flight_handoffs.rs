//! The hand-offs of this node between gate and answer, which a barrier must name (P15).
//!
//! Invariant: a worker inserts its hand-off *before* it reads the state. For a barrier the node applies the entry
//! *before* it reads this list. So a hand-off that did not see the entry is in the list, and a hand-off that is not in
//! the list has seen the entry.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reveille_ledger::ids::{Fence, RunId};

use super::journal::ClaimedSlot;

/// One hand-off, from just before its gate until its answer is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOff {
    /// Claim and slot of the recipient.
    pub claimed_slot: ClaimedSlot,
    /// Run of the recipient.
    pub run: RunId,
    /// Number of the recipient in the run.
    pub recipient: u32,
    /// Tenant of the run.
    pub tenant: String,
    /// Address key of the recipient, by which opt-outs name it.
    pub key: String,
}

impl HandOff {
    /// Returns the name of the recipient in log lines, such as `r1042.3#17`. Never an address.
    pub(crate) fn name(&self) -> String {
        format!("{}#{}", self.run, self.recipient)
    }

    fn id(&self) -> (Fence, RunId, u32) {
        (self.claimed_slot.fence, self.run, self.recipient)
    }
}

/// The hand-offs of one node that wait for their answer, or are in doubt while recipients of their claim are still
/// claimed.
#[derive(Debug, Default)]
pub struct InFlightHandoffs(Mutex<BTreeMap<(Fence, RunId, u32), InFlight>>);

#[derive(Debug)]
struct InFlight {
    hand_off: HandOff,
    /// True if the dialogue has ended without an answer.
    in_doubt: bool,
}

impl InFlightHandoffs {
    /// Adds a hand-off. The gate must call this before it reads the state.
    pub fn insert(&self, hand_off: &HandOff) {
        let in_flight = InFlight { hand_off: hand_off.clone(), in_doubt: false };
        self.0.lock().insert(hand_off.id(), in_flight);
    }

    /// Removes a hand-off, because the gate stayed closed or the answer is known.
    pub fn remove(&self, hand_off: &HandOff) {
        self.0.lock().remove(&hand_off.id());
    }

    /// Marks a hand-off whose dialogue ended without an answer. It stays listed until nothing is claimed in its claim,
    /// because the state may not name it yet.
    pub fn in_doubt(&self, hand_off: &HandOff) {
        if let Some(in_flight) = self.0.lock().get_mut(&hand_off.id()) {
            in_flight.in_doubt = true;
        }
    }

    /// Removes the hand-offs in doubt of a claim in which nothing is claimed any more: the ledger names them now. Keeps
    /// hand-offs that wait for their answer, since only this node knows of them.
    pub fn claim_closed(&self, fence: Fence) {
        self.0.lock().retain(|(of, _, _), in_flight| *of != fence || !in_flight.in_doubt);
    }

    /// Returns the hand-offs that concern a barrier. The state must include the barrier's entry before this call.
    pub fn about(&self, concerns: impl Fn(&HandOff) -> bool) -> Vec<HandOff> {
        let in_flight = self.0.lock();
        in_flight.values().map(|one| &one.hand_off).filter(|hand_off| concerns(hand_off)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::Epoch;

    use super::*;

    #[test]
    fn closed_claim_drops_only_hand_offs_whose_dialogues_are_over() {
        let fence = Fence { group: 1, epoch: Epoch(2), index: 7, place: 0 };
        let run = RunId { index: 5, place: 0 };
        let hand_off = |recipient: u32| HandOff {
            claimed_slot: ClaimedSlot { page: run, chunk: 0, fence, slot: recipient as u16 },
            run,
            recipient,
            tenant: "default".to_owned(),
            key: format!("r{recipient}"),
        };
        let hand_offs = InFlightHandoffs::default();
        (0..3).for_each(|recipient| hand_offs.insert(&hand_off(recipient)));
        hand_offs.in_doubt(&hand_off(0));
        hand_offs.remove(&hand_off(1));
        hand_offs.claim_closed(fence);
        let left: Vec<u32> = hand_offs.about(|_| true).iter().map(|hand_off| hand_off.recipient).collect();
        assert_eq!(left, [2], "P15: its answer is still to come");
    }
}
