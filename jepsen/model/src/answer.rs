//! The answer of the barrier behind an opt-out, a pause and a cancel (P15).

use crate::handoff::Handoff;
use crate::ledger::Ledger;
use crate::names::{Fence, Index, NODES, Recipient};

/// Subject of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum About {
    /// The opt-out of this recipient.
    OptedOut(Recipient),
    /// The pause or cancel of the run.
    Run,
}

impl About {
    /// Returns true if the barrier concerns a handoff to this recipient.
    pub fn concerns(self, recipient: Recipient) -> bool {
        matches!(self, About::Run) || self == About::OptedOut(recipient)
    }

    /// Returns the index of the last entry about this subject. `None`: there is no such entry.
    pub fn index(self, view: &Ledger) -> Option<Index> {
        match self {
            About::OptedOut(recipient) => view.opted_out.has(recipient).then_some(view.opt_out_index),
            About::Run => Some(view.run.stop_index).filter(|index| *index > 0),
        }
    }
}

/// The answer of a barrier. After the answer no gate passes an email of its subject. The answer names the emails that
/// may still arrive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The subject.
    pub about: About,
    /// The answered entry.
    pub index: Index,
    /// Handoffs that were past the gate, or may have been, with their claims.
    pub crossed: Vec<(Fence, Recipient)>,
    /// Nodes that did not answer: their handoffs past the gate may still arrive.
    pub unconfirmed: [bool; NODES],
    /// Handoffs past the gate that the answer wrongly does not name. No process of the model reads this.
    pub missed: Vec<(Fence, Recipient)>,
}

impl Answer {
    /// Returns true if the answer covers the arrival of this handoff.
    pub fn names(&self, handoff: &Handoff) -> bool {
        let is_listed = self.crossed.contains(&(handoff.claim, handoff.recipient));
        let is_named = is_listed || self.unconfirmed[handoff.by.node.position()];
        self.about.concerns(handoff.recipient) && is_named
    }

    /// Returns true if gates must not pass this recipient: after an opt-out or a cancel always, after a pause until the
    /// run is resumed.
    pub fn forbids(&self, tip: &Ledger, recipient: Recipient) -> bool {
        match self.about {
            About::OptedOut(opted_out) => opted_out == recipient,
            About::Run => tip.run.stopped_since > 0 && tip.run.stopped_since <= self.index,
        }
    }
}
