//! Who is past the gate right now: what a barrier must name (P15).
//!
//! The order is the whole point. A lane marks its hand-off *before* it reads the state; a node has the
//! entry in its readable state *before* it reads the marks. So a hand-off that did not see the entry is
//! among the marks, and one that is not among the marks has seen it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reveille_ledger::ids::{Fence, RunId};

/// One hand-off, from just before its gate until its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOff {
    /// The run.
    pub run: RunId,
    /// The recipient's number in it.
    pub recipient: u32,
    /// Tenant.
    pub tenant: String,
    /// Address key.
    pub key: String,
    /// The row.
    pub fence: Fence,
}

/// The hand-offs of one node, bounded by its open dialogues.
#[derive(Debug, Default)]
pub struct Marks {
    past_gate: Mutex<BTreeMap<(Fence, RunId, u32), HandOff>>,
}

impl Marks {
    /// Marks a hand-off. To be called before the gate reads the state.
    pub fn set(&self, hand_off: HandOff) {
        let key = (hand_off.fence, hand_off.run, hand_off.recipient);
        self.past_gate.lock().insert(key, hand_off);
    }

    /// The gate stayed shut, or the answer is known.
    pub fn clear(&self, fence: Fence, run: RunId, recipient: u32) {
        self.past_gate.lock().remove(&(fence, run, recipient));
    }

    /// Nothing of this row is claimed any more in the state: whatever was past its gate is settled, or is in
    /// doubt there and named from there.
    pub fn clear_row(&self, fence: Fence) {
        self.past_gate.lock().retain(|(of, _, _), _| *of != fence);
    }

    /// The hand-offs that a barrier is about. To be called after the state includes the entry.
    pub fn about(&self, concerns: impl Fn(&HandOff) -> bool) -> Vec<HandOff> {
        self.past_gate.lock().values().filter(|hand_off| concerns(hand_off)).cloned().collect()
    }
}
