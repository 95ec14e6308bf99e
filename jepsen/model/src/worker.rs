//! The worker: gate, journal, answer, and the settling of old claims by the next incarnation (P5, P10, P11).
//!
//! Gate, `handoff` and the write of the final dot are one step here. The email may then arrive at any later time,
//! whatever happens to its sender. So a process that freezes after its gate appears as a handoff that arrives late.

use crate::broken::{BrokenRule, Rules};
use crate::entry::{Outcome, Settle};
use crate::handoff::{Handoff, Record, Transit, outcome_by_journal};
use crate::ledger::Claim;
use crate::names::{Fence, Node, Recipient};
use crate::state::ModelState;

/// Returns true if `claim` belongs to the current incarnation of `node` (P10).
fn is_own(rules: Rules, state: &ModelState, node: Node, claim: &Claim) -> bool {
    let name = state.process(node).name;
    claim.owner == name || (claim.owner.node == node && !rules.enforces(BrokenRule::NoIncarnation))
}

/// Returns true if this recipient of this claim may pass the gate on `node` now (P5). The gate reads the state that the
/// node has applied, the lease, and the worker's memory.
pub fn may_pass(rules: Rules, state: &ModelState, node: Node, claim: Fence, recipient: Recipient) -> bool {
    let process = state.process(node);
    let view = state.view(node);
    process.alive
        && process.has_lease()
        && view.is_claimed_in(claim, recipient)
        && view.claim(claim).is_some_and(|claim| is_own(rules, state, node, claim))
        && (view.sends() || !rules.enforces(BrokenRule::GateIgnoresTheRun))
        && (!view.is_past_deadline() || !rules.enforces(BrokenRule::GateIgnoresTheDeadline))
        && !view.opted_out.has(recipient)
        && state.handoff(claim, recipient, process.name).is_none()
}

/// Passes the gate: `handoff` is written, then the final dot.
pub fn pass(rules: Rules, state: &mut ModelState, node: Node, claim: Fence, recipient: Recipient) -> bool {
    if !may_pass(rules, state, node, claim, recipient) {
        return false;
    }
    let record = if rules.enforces(BrokenRule::BeginAfterFinalDot) { Record::Begun } else { Record::Unwritten };
    let tip = state.log.tip();
    state.observations.passed_outside_claim |= !tip.is_claimed_in(claim, recipient) && !tip.is_overtaken(recipient);
    state.observations.passed_after_answer |=
        state.answer.as_ref().is_some_and(|answer| answer.forbids(tip, recipient));
    state.observations.passed_too_late |= state.view(node).is_past_deadline();
    state.observations.passed_unaware |= state.log.tip().is_past_deadline();
    let by = state.process(node).name;
    state.begin(Handoff { claim, recipient, by, record, transit: Transit::UnderWay });
    true
}

/// Lets the worker return a recipient before its gate, for any reason: a closed gate, a late begin, an ended lease, a
/// stop. If the node has applied the recipient's opt-out, the recipient is suppressed.
pub fn release(rules: Rules, state: &mut ModelState, node: Node, fence: Fence, recipient: Recipient) -> bool {
    let process = state.process(node);
    let by = process.name;
    let is_held = state
        .view(node)
        .claim(fence)
        .is_some_and(|claim| claim.open.has(recipient) && is_own(rules, state, node, claim));
    if !process.alive || !is_held || state.handoff(fence, recipient, by).is_some() {
        return false;
    }
    let record = Record::Released;
    state.begin(Handoff { claim: fence, recipient, by, record, transit: Transit::Silent });
    let has_opted_out = state.view(node).opted_out.has(recipient);
    let outcome = if has_opted_out { Outcome::Suppressed } else { Outcome::Released };
    state.propose(Settle { claim: fence, recipient, outcome });
    true
}

/// An event of a handoff that is past the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerEvent {
    /// The final dot arrives and the relay accepts the email, even if its sender no longer runs.
    RelayAccepts,
    /// The final dot arrives and the relay refuses the email, permanently or temporarily.
    RelayRefuses,
    /// The answer reaches the worker.
    AnswerArrives,
    /// The worker loses the connection without an answer.
    ConnectionIsLost,
}

/// Applies `event` to the handoff with this index. Returns false if it is impossible.
pub fn event(state: &mut ModelState, position: usize, event: WorkerEvent) -> bool {
    let Some(mut handoff) = state.handoffs.get(position).copied() else { return false };
    let waits = matches!(handoff.record, Record::Begun | Record::Unwritten) && state.is_alive(handoff.by);
    let outcome = match (event, handoff.transit) {
        (WorkerEvent::RelayAccepts, Transit::UnderWay) => {
            handoff.transit = Transit::Accepted;
            judge_against_answer(state, &handoff);
            None
        }
        (WorkerEvent::RelayRefuses, Transit::UnderWay) => {
            handoff.transit = Transit::Refused;
            None
        }
        (WorkerEvent::AnswerArrives, Transit::Accepted) if waits => {
            handoff.record = Record::Accepted;
            Some(Outcome::Accepted)
        }
        (WorkerEvent::AnswerArrives, Transit::Refused) if waits => {
            handoff.record = Record::Refused;
            Some(Outcome::Refused)
        }
        (WorkerEvent::ConnectionIsLost, _) if waits => {
            handoff.record = Record::Lost;
            Some(Outcome::InDoubt)
        }
        _ => return false,
    };
    state.handoffs[position] = handoff;
    if let Some(outcome) = outcome {
        let Handoff { claim, recipient, .. } = handoff;
        state.propose(Settle { claim, recipient, outcome });
    }
    true
}

fn judge_against_answer(state: &mut ModelState, handoff: &Handoff) {
    let Some(answer) = &state.answer else { return };
    state.observations.accepted_unnamed |= answer.missed.contains(&(handoff.claim, handoff.recipient));
    state.observations.accepted_named |= answer.names(handoff);
}

/// Lets the process on `node` settle the claims of its earlier incarnations by their journals (P10, P11). The process
/// has just applied its own `NodeUp`, so there are no further such claims. By a complete journal it also settles
/// recipients that a decision has closed meanwhile: assumed recipients, and recipients that the relay accepted.
pub fn settle_earlier_incarnations(rules: Rules, state: &mut ModelState, node: Node) {
    if !rules.enforces(BrokenRule::NoIncarnation) {
        return;
    }
    let process = state.process(node);
    let mut settles = Vec::new();
    for claim in &state.view(node).claims {
        if claim.owner.node != node || claim.owner.incarnation >= process.name.incarnation {
            continue;
        }
        let is_whole = process.has_journal_of(claim.owner.incarnation);
        for recipient in claim.granted.iter() {
            let record = state.handoff(claim.fence, recipient, claim.owner).map(|known| known.record);
            let is_news = is_whole && record == Some(Record::Accepted) && !claim.sent.has(recipient);
            let is_open = claim.open.has(recipient) || (is_whole && claim.assumed.has(recipient));
            if !is_open && !is_news {
                continue;
            }
            let outcome = match (is_whole, rules.enforces(BrokenRule::TrustLostJournal)) {
                (true, _) => outcome_by_journal(record),
                (false, true) => Outcome::InDoubt,
                (false, false) => outcome_by_journal(None),
            };
            settles.push(Settle { claim: claim.fence, recipient, outcome });
        }
    }
    for settle in settles {
        state.propose(settle);
    }
}
