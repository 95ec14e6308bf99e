//! Steps of a leader without an operator, besides claims and revocations: it moves ledger time (P18), ends a run that
//! is past its deadline (P16), and decides doubts by the run's policy (P14).
//!
//! The leader proposes by the state that it has applied, which may be old. `apply` checks again.

use crate::broken::Rules;
use crate::entry::{Decide, Decider, Decision, Entry};
use crate::ledger::{Ledger, RecipientState};
use crate::names::{Node, Recipient, Time};
use crate::run::{InDoubt, RunState};
use crate::state::ModelState;

/// Lets the leader on `leader` stamp an entry with the time of its clock. Returns false if nothing changes.
pub fn tick(rules: Rules, state: &mut ModelState, leader: Node, now: Time) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    state.commit(rules, Entry::Tick { epoch, now })
}

/// Lets the leader on `leader` end a run that is past its deadline and has a pending recipient. Returns false if
/// nothing changes.
pub fn expire(rules: Rules, state: &mut ModelState, leader: Node) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    let view = state.view(leader);
    let is_late = view.is_past_deadline() && !view.set(RecipientState::Pending).is_empty();
    is_late && state.commit(rules, Entry::Expire { epoch })
}

/// Lets the leader on `leader` decide about a recipient in doubt, if the policy has a decision now. Returns false if
/// nothing changes.
pub fn decide(rules: Rules, state: &mut ModelState, leader: Node, recipient: Recipient) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    let view = state.view(leader);
    let Some(decision) = decision(view).filter(|_| view.is_in_state(recipient, RecipientState::InDoubt)) else {
        return false;
    };
    state.commit(rules, Entry::Decide(Decide { recipient, decision, by: Decider::Policy(epoch) }))
}

fn decision(view: &Ledger) -> Option<Decision> {
    match view.run.policies.in_doubt {
        InDoubt::Hold => None,
        InDoubt::Resend => {
            let goes_on = view.run.state != RunState::Cancelled && !view.is_past_deadline();
            goes_on.then_some(Decision::Resend)
        }
        InDoubt::AssumeSent => view.is_finished().then_some(Decision::Assume),
    }
}
