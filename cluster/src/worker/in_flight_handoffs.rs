//! The hand-offs of this node between gate and answer: what a barrier must name (P15).
//!
//! Invariant, by order: a worker inserts its hand-off *before* it reads the state; a node has the entry in its readable
//! state *before* it reads this list. So a hand-off that did not see the entry is in the list, and one that is not in the
//! list has seen the entry.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reveille_ledger::ids::{Fence, RunId};

use super::journal::Place;

/// One hand-off, from just before its gate until its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOff {
    /// Where the recipient is in its claim.
    pub place: Place,
    /// The run.
    pub run: RunId,
    /// The recipient's number in it.
    pub recipient: u32,
    /// Tenant.
    pub tenant: String,
    /// Address key.
    pub key: String,
}

impl HandOff {
    /// `r1042.3#17`: the recipient as log lines name it. Never an address.
    pub(crate) fn name(&self) -> String {
        format!("{}#{}", self.run, self.recipient)
    }

    fn id(&self) -> (Fence, RunId, u32) {
        (self.place.fence, self.run, self.recipient)
    }
}

/// The hand-offs of one node, bounded by its open dialogues.
#[derive(Debug, Default)]
pub struct InFlightHandoffs(Mutex<BTreeMap<(Fence, RunId, u32), InFlight>>);

#[derive(Debug)]
struct InFlight {
    hand_off: HandOff,
    /// Its dialogue has ended, and its answer is not known.
    in_doubt: bool,
}

impl InFlightHandoffs {
    /// Lists a hand-off. To be called before the gate reads the state.
    pub fn insert(&self, hand_off: &HandOff) {
        let in_flight = InFlight { hand_off: hand_off.clone(), in_doubt: false };
        self.0.lock().insert(hand_off.id(), in_flight);
    }

    /// The gate stayed closed, or the answer is known.
    pub fn remove(&self, hand_off: &HandOff) {
        self.0.lock().remove(&hand_off.id());
    }

    /// Its dialogue has ended without an answer: it stays listed until the state names it.
    pub fn in_doubt(&self, hand_off: &HandOff) {
        if let Some(in_flight) = self.0.lock().get_mut(&hand_off.id()) {
            in_flight.in_doubt = true;
        }
    }

    /// The claim is closed in the state. Drops finished hand-offs: the ledger names them now. Keeps those that wait for
    /// their answer: only this node knows of them.
    pub fn claim_closed(&self, fence: Fence) {
        self.0.lock().retain(|(of, _, _), in_flight| *of != fence || !in_flight.in_doubt);
    }

    /// The hand-offs that a barrier is about. To be called after the state includes the entry.
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
            place: Place { page: run, chunk: 0, fence, slot: recipient as u16 },
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
