//! The barrier behind an opt-out, a pause and a cancel, and what its answer promises (P15).
//!
//! The leader answers when every node either has applied the entry and listed what is past its
//! gates, or can no longer pass one by an older state. Both stay true for ever once they are true,
//! so the model looks at them at the moment of the answer.

use crate::answer::{About, Answer};
use crate::attempt::{Attempt, Record};
use crate::broken::{BrokenRule, Rules};
use crate::lease;
use crate::ledger::{Claim, RecipientState};
use crate::names::{Fence, Index, NODES, Node, Recipient};
use crate::state::ModelState;

/// The leader on `leader` answers: nodes that have applied the entry are asked, the others are
/// waited out.
pub fn answer(rules: Rules, state: &mut ModelState, leader: Node, about: About) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    let view = state.view(leader);
    let Some(index) = about.index(view).filter(|_| state.answer.is_none()) else { return false };
    let mut unconfirmed = [false; NODES];
    for node in Node::all() {
        unconfirmed[node.place()] = !confirms(state, node, index);
        let is_ahead = state.process(node).applied > view.index && !unconfirmed[node.place()];
        if is_ahead && rules.keep(BrokenRule::NameByAnOlderState) {
            return false;
        }
    }
    for node in Node::all().filter(|node| unconfirmed[node.place()]) {
        if rules.keep(BrokenRule::AnswerBeforeBarrier) {
            lease::wait_out(rules, state, epoch, node, Some(index));
        }
    }
    let mut crossed = listed_by_nodes(state, about, &unconfirmed);
    if rules.keep(BrokenRule::NameOnlyTheLiving) {
        crossed.extend(doubtful_rows(state, leader, about, &unconfirmed));
    }
    crossed.sort_unstable();
    crossed.dedup();
    let mut answer = Answer { about, index, crossed, unconfirmed, missed: Vec::new() };
    answer.missed = missed(state, &answer);
    state.answer = Some(answer);
    true
}

/// Whether the gate on `node` decides by a state that includes `index`.
fn confirms(state: &ModelState, node: Node, index: Index) -> bool {
    let process = state.process(node);
    process.alive && process.applied >= index
}

/// What the nodes that confirmed have past their gates, without a known answer. Whose dialogue has ended is marked
/// until the node's own state says that its claim holds it no longer: from there the leader's state names it.
fn listed_by_nodes(state: &ModelState, about: About, unconfirmed: &[bool; NODES]) -> Vec<(Fence, Recipient)> {
    let is_marked = |attempt: &Attempt| match attempt.record {
        Record::Begun | Record::Unwritten => true,
        Record::Lost => state.view(attempt.by.node).is_claimed_in(attempt.claim, attempt.recipient),
        Record::Released | Record::Accepted | Record::Refused => false,
    };
    let is_listed = |attempt: &&Attempt| {
        about.concerns(attempt.recipient)
            && state.is_alive(attempt.by)
            && !unconfirmed[attempt.by.node.place()]
            && is_marked(attempt)
    };
    state.attempts.iter().filter(is_listed).map(|attempt| (attempt.claim, attempt.recipient)).collect()
}

/// What no living process can list: claims that hold a recipient in doubt, or claimed for a process
/// that did not confirm. Its hand-off may be in some buffer still.
fn doubtful_rows(
    state: &ModelState,
    leader: Node,
    about: About,
    unconfirmed: &[bool; NODES],
) -> Vec<(Fence, Recipient)> {
    let view = state.view(leader);
    let has_confirmed = |owner| state.is_alive(owner) && !unconfirmed[owner.node.place()];
    let doubtful = |claim: &Claim| {
        let (fence, confirmed) = (claim.fence, has_confirmed(claim.owner));
        let open = claim.open.iter().filter(|recipient| about.concerns(*recipient));
        let unknown = open.filter(move |recipient| !confirmed || view.is_in_state(*recipient, RecipientState::InDoubt));
        unknown.map(|recipient| (fence, recipient)).collect::<Vec<_>>()
    };
    view.claims.iter().flat_map(doubtful).collect()
}

/// What may still arrive and is not named. The promise leaves out one thing: a hand-off of a recipient about whose
/// doubt an operator has decided, in this claim or in a former one, once its process has died or its dialogue has ended
/// without an answer.
fn missed(state: &ModelState, answer: &Answer) -> Vec<(Fence, Recipient)> {
    let is_left_out = |attempt: &Attempt| {
        let is_decided = |claim: &Claim| claim.resent.or(claim.assumed).has(attempt.recipient);
        let is_over = !state.is_alive(attempt.by) || attempt.record == Record::Lost;
        is_over && state.log.tip().claims.iter().any(is_decided)
    };
    let under_way = state.attempts.iter().filter(|attempt| attempt.is_under_way());
    let concerned = under_way.filter(|attempt| answer.about.concerns(attempt.recipient) && !is_left_out(attempt));
    concerned.filter(|attempt| !answer.names(attempt)).map(|attempt| (attempt.claim, attempt.recipient)).collect()
}
