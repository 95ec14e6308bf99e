//! The barrier behind an opt-out, and what its answer promises (P15).
//!
//! The leader answers when every node either has applied the opt-out and listed what is past its
//! gates, or can no longer pass one by an older state. Both stay true for ever once they are true,
//! so the model looks at them at the moment of the answer.

use crate::attempt::{Attempt, Record};
use crate::broken::{Broken, Rules};
use crate::lease;
use crate::names::{Fence, Index, NODES, Node, Recipient};
use crate::state::State;

/// What the one who opted out is told. After it no gate passes a mail for the recipient; what may
/// still arrive is named.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Who opted out.
    pub recipient: Recipient,
    /// Rows whose hand-off was past the gate, or may have been.
    pub crossed: Vec<Fence>,
    /// Nodes that were waited out in silence: whatever they had past the gate may still arrive.
    pub unconfirmed: [bool; NODES],
}

impl Answer {
    /// Whether the answer covers this attempt's arrival.
    pub fn names(&self, attempt: &Attempt) -> bool {
        self.crossed.contains(&attempt.row) || self.unconfirmed[attempt.by.node.place()]
    }
}

/// The leader on `leader` answers the opt-out: nodes that have applied it are asked, the others are
/// waited out.
pub fn answer(rules: Rules, state: &mut State, leader: Node, recipient: Recipient) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    let view = state.view(leader);
    if state.answer.is_some() || !view.opted_out.has(recipient) {
        return false;
    }
    let index = view.opt_out_index;
    let mut unconfirmed = [false; NODES];
    for node in Node::all() {
        unconfirmed[node.place()] = !confirms(state, node, index);
        if unconfirmed[node.place()] && rules.keep(Broken::AnswerBeforeBarrier) {
            lease::wait_out(rules, state, epoch, node, Some(index));
        }
    }
    let mut crossed = listed_by_nodes(state, recipient, &unconfirmed);
    if rules.keep(Broken::NameOnlyTheLiving) {
        crossed.extend(doubtful_rows(state, leader, recipient, &unconfirmed));
    }
    crossed.sort_unstable();
    crossed.dedup();
    state.answer = Some(Answer { recipient, crossed, unconfirmed });
    true
}

/// Whether the gate on `node` decides by a state that includes `index`.
fn confirms(state: &State, node: Node, index: Index) -> bool {
    let process = state.process(node);
    process.alive && process.applied >= index
}

/// What the nodes that confirmed have past their gates, without a known answer.
fn listed_by_nodes(state: &State, recipient: Recipient, unconfirmed: &[bool; NODES]) -> Vec<Fence> {
    let is_open = |attempt: &&Attempt| {
        attempt.recipient == recipient
            && state.is_alive(attempt.by)
            && !unconfirmed[attempt.by.node.place()]
            && matches!(attempt.record, Record::Begun | Record::Unwritten | Record::Lost)
    };
    state.attempts.iter().filter(is_open).map(|attempt| attempt.row).collect()
}

/// What no living process can list: rows that hold the recipient in doubt, or claimed for a process
/// that did not confirm. Its hand-off may be in some buffer still.
fn doubtful_rows(state: &State, leader: Node, recipient: Recipient, unconfirmed: &[bool; NODES]) -> Vec<Fence> {
    let view = state.view(leader);
    let has_confirmed = |holder| state.is_alive(holder) && !unconfirmed[holder.node.place()];
    let rows = view
        .rows
        .iter()
        .filter(|row| row.open.has(recipient) && (view.in_doubt.has(recipient) || !has_confirmed(row.holder)));
    rows.map(|row| row.fence).collect()
}
