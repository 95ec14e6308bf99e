//! The steps to try in a state. There may be too many: [`crate::protocol`] drops a step that the rules do not allow, or
//! that changes nothing.

use crate::action::Action;
use crate::answer::About;
use crate::entry::{Decide, Decider, Decision, Entry};
use crate::handoff::{Handoff, Transit};
use crate::names::{ClaimOwner, Node, Recipient, Recipients};
use crate::run::InDoubt;
use crate::sizes::Sizes;
use crate::state::ModelState;
use crate::worker::WorkerEvent;

/// The recipient that opts out. All recipients are alike, so the first is enough.
const OPTS_OUT: Recipient = 0;

/// Adds every step to try, always in the same order.
pub fn all(sizes: &Sizes, state: &ModelState, actions: &mut Vec<Action>) {
    for node in Node::all() {
        if state.process(node).alive {
            process_steps(sizes, state, node, actions);
        } else {
            actions.push(Action::Start(node));
        }
        if state.process(node).term.is_some() {
            leader_steps(sizes, state, node, actions);
        }
    }
    messages(sizes, state, actions);
    orders(sizes, state, actions);
    relay_steps(sizes, state, actions);
}

fn process_steps(sizes: &Sizes, state: &ModelState, node: Node, actions: &mut Vec<Action>) {
    if state.kills < sizes.kills {
        actions.push(Action::Kill(node));
    }
    if state.power_cuts < sizes.power_cuts {
        actions.push(Action::PowerCut(node));
    }
    if state.elections < sizes.elections {
        actions.extend((0..=sizes.until).map(|agreed| Action::Elect(node, agreed)));
    }
    actions.push(Action::Apply(node));
    for claim in &state.view(node).claims {
        for recipient in claim.open.iter() {
            actions.push(Action::Pass(node, claim.fence, recipient));
            actions.push(Action::Release(node, claim.fence, recipient));
        }
    }
}

fn leader_steps(sizes: &Sizes, state: &ModelState, leader: Node, actions: &mut Vec<Action>) {
    let can_claim = sizes.has_claims_left(state);
    for node in Node::all() {
        if state.process(node).alive && (can_claim || state.has_work(node)) {
            actions.push(Action::Grant(leader, node));
        }
    }
    if can_claim {
        for owner in Node::all().flat_map(|node| incarnations(state, node)) {
            for slice in Recipients::first(sizes.recipients).choices() {
                actions.push(Action::Claim(leader, owner, slice));
            }
        }
    }
    for claim in &state.view(leader).claims {
        actions.push(Action::Revoke(leader, claim.fence));
    }
    if sizes.opt_outs > 0 {
        actions.push(Action::Answer(leader, About::OptedOut(OPTS_OUT)));
    }
    if sizes.pauses + sizes.cancels > 0 {
        actions.push(Action::Answer(leader, About::Run));
    }
    if sizes.until > 0 {
        actions.extend((0..=sizes.until).map(|now| Action::Tick(leader, now)));
        actions.push(Action::Expire(leader));
    }
    if sizes.policies.in_doubt != InDoubt::Hold {
        actions.extend((0..sizes.recipients).map(|recipient| Action::Decide(leader, recipient)));
    }
}

/// Adds commands of operators, whatever the state is when they are committed.
fn orders(sizes: &Sizes, state: &ModelState, actions: &mut Vec<Action>) {
    let ordered = &state.orders;
    if ordered.pauses < sizes.pauses {
        actions.push(Action::Commit(Entry::RunPause));
    }
    if ordered.resumes < sizes.resumes {
        actions.push(Action::Commit(Entry::RunResume));
    }
    if ordered.cancels < sizes.cancels {
        actions.push(Action::Commit(Entry::RunCancel));
    }
    for recipient in 0..sizes.recipients {
        if ordered.decisions < sizes.decisions {
            let decide = |decision| Entry::Decide(Decide { recipient, decision, by: Decider::Operator });
            actions.extend([Decision::Assume, Decision::Resend].map(decide).map(Action::Commit));
        }
        if ordered.requeues < sizes.requeues {
            actions.push(Action::Commit(Entry::Requeue { recipient }));
        }
    }
}

/// Adds entries that may be committed at any time, by any sender.
fn messages(sizes: &Sizes, state: &ModelState, actions: &mut Vec<Action>) {
    let announced = Node::all().flat_map(|node| incarnations(state, node));
    actions.extend(announced.map(|process| Action::Commit(Entry::NodeUp { process })));
    actions.extend((0..state.settles.len()).map(Action::Settle));
    if state.opt_outs < sizes.opt_outs {
        actions.push(Action::Commit(Entry::OptOut { recipient: OPTS_OUT }));
    }
}

fn relay_steps(sizes: &Sizes, state: &ModelState, actions: &mut Vec<Action>) {
    let is_refused = |handoff: &&Handoff| handoff.transit == Transit::Refused;
    let refusals = state.handoffs.iter().filter(is_refused).count();
    for (position, handoff) in state.handoffs.iter().enumerate() {
        actions.push(Action::WorkerEvent(position, WorkerEvent::RelayAccepts));
        if refusals < usize::from(sizes.refusals) {
            actions.push(Action::WorkerEvent(position, WorkerEvent::RelayRefuses));
        }
        if state.is_alive(handoff.by) {
            actions.push(Action::WorkerEvent(position, WorkerEvent::AnswerArrives));
            actions.push(Action::WorkerEvent(position, WorkerEvent::ConnectionIsLost));
        }
    }
}

/// Returns the incarnations of `node` so far. Late messages may be about any of them.
fn incarnations(state: &ModelState, node: Node) -> impl Iterator<Item = ClaimOwner> + use<> {
    let last = state.process(node).name.incarnation;
    (1..=last).map(move |incarnation| ClaimOwner { node, incarnation })
}
