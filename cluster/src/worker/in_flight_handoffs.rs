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
    past_gate: Mutex<BTreeMap<(Fence, RunId, u32), Mark>>,
}

#[derive(Debug)]
struct Mark {
    hand_off: HandOff,
    /// Its dialogue has ended, in doubt.
    over: bool,
}

impl Marks {
    /// Marks a hand-off. To be called before the gate reads the state.
    pub fn set(&self, hand_off: HandOff) {
        let key = (hand_off.fence, hand_off.run, hand_off.recipient);
        self.past_gate.lock().insert(key, Mark { hand_off, over: false });
    }

    /// The gate stayed shut, or the answer is known.
    pub fn clear(&self, fence: Fence, run: RunId, recipient: u32) {
        self.past_gate.lock().remove(&(fence, run, recipient));
    }

    /// Its dialogue has ended, and nobody knows the answer: it stays until the state says so itself.
    pub fn over(&self, fence: Fence, run: RunId, recipient: u32) {
        if let Some(mark) = self.past_gate.lock().get_mut(&(fence, run, recipient)) {
            mark.over = true;
        }
    }

    /// Nothing of this row is claimed any more in the state: whose dialogue is over is settled, or is in doubt
    /// there and named from there. Whose dialogue goes on is still in the air, whatever was decided of it
    /// meanwhile: nobody else could name it.
    pub fn clear_row(&self, fence: Fence) {
        self.past_gate.lock().retain(|(of, _, _), mark| *of != fence || !mark.over);
    }

    /// The hand-offs that a barrier is about. To be called after the state includes the entry.
    pub fn about(&self, concerns: impl Fn(&HandOff) -> bool) -> Vec<HandOff> {
        let marks = self.past_gate.lock();
        marks.values().map(|mark| &mark.hand_off).filter(|hand_off| concerns(hand_off)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::Epoch;

    use super::*;

    const FENCE: Fence = Fence { group: 1, epoch: Epoch(2), index: 7, place: 0 };
    const RUN: RunId = RunId { index: 5, place: 0 };

    fn mark(marks: &Marks, recipient: u32) {
        let (tenant, key) = ("default".to_owned(), format!("r{recipient}"));
        marks.set(HandOff { run: RUN, recipient, tenant, key, fence: FENCE });
    }

    #[test]
    fn a_row_that_is_closed_takes_only_marks_of_dialogues_that_are_over() {
        let marks = Marks::default();
        (0..3).for_each(|recipient| mark(&marks, recipient));
        marks.over(FENCE, RUN, 0);
        marks.clear(FENCE, RUN, 1);
        marks.clear_row(FENCE);
        let left: Vec<u32> = marks.about(|_| true).iter().map(|hand_off| hand_off.recipient).collect();
        assert_eq!(left, [2], "P15: it is in the air");
    }
}
