//! The barrier behind an opt-out, a pause and a cancel, and what its answer promises (P15).
//!
//! Each node must first have applied the entry and listed its handoffs past the gate, or be unable to pass a gate by an
//! older state. Both conditions stay true, so the model checks them when the leader answers.

use crate::answer::{About, Answer};
use crate::broken::{BrokenRule, Rules};
use crate::handoff::{Handoff, Record};
use crate::lease;
use crate::ledger::{Claim, RecipientState};
use crate::names::{Fence, Index, NODES, Node, Recipient};
use crate::state::ModelState;

/// Lets the leader on `leader` answer. It asks nodes that have applied the entry, and waits until the leases of the
/// other nodes have ended. Returns false if it must not answer.
pub fn answer(rules: Rules, state: &mut ModelState, leader: Node, about: About) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    let view = state.view(leader);
    let Some(index) = about.index(view).filter(|_| state.answer.is_none()) else { return false };
    let mut unconfirmed = [false; NODES];
    for node in Node::all() {
        unconfirmed[node.position()] = !confirms(state, node, index);
        let is_ahead = state.process(node).applied > view.index && !unconfirmed[node.position()];
        if is_ahead && rules.enforces(BrokenRule::NameByAnOlderState) {
            return false;
        }
    }
    for node in Node::all().filter(|node| unconfirmed[node.position()]) {
        if rules.enforces(BrokenRule::AnswerBeforeBarrier) {
            lease::wait_out(rules, state, epoch, node, Some(index));
        }
    }
    let mut crossed = listed_by_nodes(state, about, &unconfirmed);
    if rules.enforces(BrokenRule::NameOnlyTheLiving) {
        crossed.extend(doubtful_claims(state, leader, about, &unconfirmed));
    }
    crossed.sort_unstable();
    crossed.dedup();
    let mut answer = Answer { about, index, crossed, unconfirmed, missed: Vec::new() };
    answer.missed = missed(state, &answer);
    state.answer = Some(answer);
    true
}

/// Returns true if the gate on `node` decides by a state that includes `index`.
fn confirms(state: &ModelState, node: Node, index: Index) -> bool {
    let process = state.process(node);
    process.alive && process.applied >= index
}

/// Returns the handoffs past the gates of the nodes that confirmed, without a known answer. After its dialogue has
/// ended, a handoff stays listed until the recipient is no longer claimed in its node's state. Then the leader's state
/// names it.
fn listed_by_nodes(state: &ModelState, about: About, unconfirmed: &[bool; NODES]) -> Vec<(Fence, Recipient)> {
    let is_marked = |handoff: &Handoff| match handoff.record {
        Record::Begun | Record::Unwritten => true,
        Record::Lost => state.view(handoff.by.node).is_claimed_in(handoff.claim, handoff.recipient),
        Record::Released | Record::Accepted | Record::Refused => false,
    };
    let is_listed = |handoff: &&Handoff| {
        about.concerns(handoff.recipient)
            && state.is_alive(handoff.by)
            && !unconfirmed[handoff.by.node.position()]
            && is_marked(handoff)
    };
    state.handoffs.iter().filter(is_listed).map(|handoff| (handoff.claim, handoff.recipient)).collect()
}

/// Returns the handoffs that no running process can list, and that may still be in a buffer: their recipients are in
/// doubt, or claimed for a process that did not confirm.
fn doubtful_claims(
    state: &ModelState,
    leader: Node,
    about: About,
    unconfirmed: &[bool; NODES],
) -> Vec<(Fence, Recipient)> {
    let view = state.view(leader);
    let has_confirmed = |owner| state.is_alive(owner) && !unconfirmed[owner.node.position()];
    let doubtful = |claim: &Claim| {
        let (fence, confirmed) = (claim.fence, has_confirmed(claim.owner));
        let open = claim.open.iter().filter(|recipient| about.concerns(*recipient));
        let unknown = open.filter(move |recipient| !confirmed || view.is_in_state(*recipient, RecipientState::InDoubt));
        unknown.map(|recipient| (fence, recipient)).collect::<Vec<_>>()
    };
    view.claims.iter().flat_map(doubtful).collect()
}

/// Returns the handoffs that may still arrive and are not named. A handoff need not be named if a doubt about its
/// recipient was decided in any claim, and its process has crashed or its dialogue has ended without an answer.
fn missed(state: &ModelState, answer: &Answer) -> Vec<(Fence, Recipient)> {
    let is_left_out = |handoff: &Handoff| {
        let is_decided = |claim: &Claim| claim.resent.or(claim.assumed).has(handoff.recipient);
        let is_over = !state.is_alive(handoff.by) || handoff.record == Record::Lost;
        is_over && state.log.tip().claims.iter().any(is_decided)
    };
    let under_way = state.handoffs.iter().filter(|handoff| handoff.is_under_way());
    let concerned = under_way.filter(|handoff| answer.about.concerns(handoff.recipient) && !is_left_out(handoff));
    concerned.filter(|handoff| !answer.names(handoff)).map(|handoff| (handoff.claim, handoff.recipient)).collect()
}
