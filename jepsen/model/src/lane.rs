//! The lane: gate, journal, answer, and what a new life makes of an old journal (P5, P10, P11).
//!
//! Gate, `begin` and the write of the terminator are one step here. The mail itself travels after
//! that, for as long as it likes, whatever becomes of its sender; so a process that freezes after
//! its gate is in the model, as a hand-off that arrives late.

use crate::attempt::{Attempt, Record, Wire, outcome_by_journal};
use crate::broken::{Broken, Rules};
use crate::entry::{Outcome, Settle};
use crate::ledger::Row;
use crate::names::{Fence, Node, Recipient};
use crate::state::State;

/// Whether the process on `node` may work `row`: it must be of its own life (P10).
fn is_mine(rules: Rules, state: &State, node: Node, row: &Row) -> bool {
    let name = state.process(node).name;
    row.holder == name || (row.holder.node == node && !rules.keep(Broken::NoIncarnation))
}

/// Whether the gate on `node` lets this recipient of this row pass now (P5). It asks the state that
/// the node has applied, the lease, and the lane's own memory.
pub fn may_pass(rules: Rules, state: &State, node: Node, row: Fence, recipient: Recipient) -> bool {
    let process = state.process(node);
    let view = state.view(node);
    process.alive
        && process.has_lease()
        && view.is_claimed_in(row, recipient)
        && view.row(row).is_some_and(|row| is_mine(rules, state, node, row))
        && (view.sends() || !rules.keep(Broken::GateIgnoresTheRun))
        && (!view.is_past_deadline() || !rules.keep(Broken::GateIgnoresTheDeadline))
        && !view.opted_out.has(recipient)
        && state.attempt(row, recipient, process.name).is_none()
}

/// Passes the gate: `begin` is written, then the terminator.
pub fn pass(rules: Rules, state: &mut State, node: Node, row: Fence, recipient: Recipient) -> bool {
    if !may_pass(rules, state, node, row, recipient) {
        return false;
    }
    let record = if rules.keep(Broken::BeginAfterTerminator) { Record::Begun } else { Record::Unwritten };
    let tip = state.log.tip();
    state.witness.passed_off_row |= !tip.is_claimed_in(row, recipient) && !tip.is_overtaken(recipient);
    state.witness.passed_after_answer |= state.answer.as_ref().is_some_and(|answer| answer.forbids(tip, recipient));
    state.witness.passed_too_late |= state.view(node).is_past_deadline();
    state.witness.passed_unaware |= state.log.tip().is_past_deadline();
    let by = state.process(node).name;
    state.begin(Attempt { row, recipient, by, record, wire: Wire::UnderWay });
    true
}

/// Gives a recipient back before its gate, for whatever reason: refused there, not begun in time,
/// lease lapsed, drain. Who has opted out is known to have, where the gate knows of it.
pub fn release(rules: Rules, state: &mut State, node: Node, fence: Fence, recipient: Recipient) -> bool {
    let process = state.process(node);
    let by = process.name;
    let is_held =
        state.view(node).row(fence).is_some_and(|row| row.open.has(recipient) && is_mine(rules, state, node, row));
    if !process.alive || !is_held || state.attempt(fence, recipient, by).is_some() {
        return false;
    }
    let record = Record::Released;
    state.begin(Attempt { row: fence, recipient, by, record, wire: Wire::Silent });
    let has_opted_out = state.view(node).opted_out.has(recipient);
    let outcome = if has_opted_out { Outcome::Suppressed } else { Outcome::Released };
    state.propose(Settle { row: fence, recipient, outcome });
    true
}

/// What becomes of an attempt that is past the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// The terminator arrives and the relay takes the mail, whether or not its sender still lives.
    RelayAccepts,
    /// The terminator arrives and the relay says no for good or for now.
    RelayRefuses,
    /// The answer reaches the lane.
    AnswerArrives,
    /// The lane loses the connection without an answer.
    ConnectionIsLost,
}

/// Lets `turn` happen to the attempt at `place`; false if it cannot.
pub fn turn(state: &mut State, place: usize, turn: Turn) -> bool {
    let Some(mut attempt) = state.attempts.get(place).copied() else { return false };
    let waits = matches!(attempt.record, Record::Begun | Record::Unwritten) && state.is_alive(attempt.by);
    let outcome = match (turn, attempt.wire) {
        (Turn::RelayAccepts, Wire::UnderWay) => {
            attempt.wire = Wire::Accepted;
            judge_against_answer(state, &attempt);
            None
        }
        (Turn::RelayRefuses, Wire::UnderWay) => {
            attempt.wire = Wire::Refused;
            None
        }
        (Turn::AnswerArrives, Wire::Accepted) if waits => {
            attempt.record = Record::Accepted;
            Some(Outcome::Accepted)
        }
        (Turn::AnswerArrives, Wire::Refused) if waits => {
            attempt.record = Record::Refused;
            Some(Outcome::Refused)
        }
        (Turn::ConnectionIsLost, _) if waits => {
            attempt.record = Record::Lost;
            Some(Outcome::InDoubt)
        }
        _ => return false,
    };
    state.attempts[place] = attempt;
    if let Some(outcome) = outcome {
        let Attempt { row, recipient, .. } = attempt;
        state.propose(Settle { row, recipient, outcome });
    }
    true
}

fn judge_against_answer(state: &mut State, attempt: &Attempt) {
    let Some(answer) = &state.answer else { return };
    state.witness.accepted_unnamed |= answer.missed.contains(&(attempt.row, attempt.recipient));
    state.witness.accepted_named |= answer.names(attempt);
}

/// The process on `node` has just applied its own `NodeUp`: the rows of its earlier lives are
/// complete, and it says what became of them, by their journals (P10, P11). What a decision has closed
/// meanwhile is settled too, where the journal is whole: assumed recipients, and those that the relay accepted.
pub fn settle_earlier_lives(rules: Rules, state: &mut State, node: Node) {
    if !rules.keep(Broken::NoIncarnation) {
        return;
    }
    let process = state.process(node);
    let mut settles = Vec::new();
    for row in &state.view(node).rows {
        if row.holder.node != node || row.holder.incarnation >= process.name.incarnation {
            continue;
        }
        let is_whole = process.has_journal_of(row.holder.incarnation);
        for recipient in row.granted.iter() {
            let record = state.attempt(row.fence, recipient, row.holder).map(|known| known.record);
            let is_news = is_whole && record == Some(Record::Accepted) && !row.sent.has(recipient);
            let is_open = row.open.has(recipient) || (is_whole && row.assumed.has(recipient));
            if !is_open && !is_news {
                continue;
            }
            let outcome = match (is_whole, rules.keep(Broken::TrustLostJournal)) {
                (true, _) => outcome_by_journal(record),
                (false, true) => Outcome::InDoubt,
                (false, false) => outcome_by_journal(None),
            };
            settles.push(Settle { row: row.fence, recipient, outcome });
        }
    }
    for settle in settles {
        state.propose(settle);
    }
}
