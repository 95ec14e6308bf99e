//! I9: ledger and sink agree about each item. A recipient in state sent was accepted, and an accepted recipient is
//! sent, in doubt or assumed. (I4 and I13 judge recipients that are still claimed because the run did not drain. An
//! accepted recipient that is pending would be sent to again, which is a violation here.) Each email names its item
//! (`identity.rs`). Under another policy than `resend` no recipient is sent to again unless an operator asked for it, and
//! under another policy than `assume_sent` none is closed as assumed.

use super::identity;
use crate::events::{Answer, Call, Decider, InDoubt, OutcomeKind, RecipientState};
use crate::history::{HasItem, History, of_item};
use crate::verdict::Findings;

/// I9: ledger and sink agree.
pub fn agree(history: &History, findings: &mut Findings) {
    if history.is_whole() {
        let sent = history.final_states.iter().filter(|item_state| item_state.state == RecipientState::Sent);
        for item_state in sent.filter(|item_state| !history.arrived(item_state.item())) {
            findings.violation(|| format!("{} is sent, says the ledger, and never arrived", item_state.item()));
        }
    }
    for (item, handoffs) in
        history.handoffs_by_item().filter(|(_, handoffs)| handoffs.iter().any(|handoff| handoff.answer.is_accepted()))
    {
        // After a decision to send again, the outcome of the later attempt counts.
        let outcomes = of_item(&history.outcomes, item).iter();
        let decided = outcomes.filter(|outcome| matches!(outcome.kind, OutcomeKind::Resent(_)));
        let decided = decided.map(|outcome| outcome.index).max();
        let accepts = handoffs.iter().filter(|handoff| handoff.answer.is_accepted());
        let last = accepts.filter_map(|handoff| handoff.fence).map(|fence| fence.index).max();
        match history.final_state(item) {
            Some(
                RecipientState::Sent | RecipientState::InDoubt | RecipientState::Assumed | RecipientState::Claimed,
            ) => {}
            None if !history.is_whole() => {}
            Some(_) if decided > last => {}
            state => {
                let state = state.map_or("unknown".to_owned(), |state| format!("{state:?}"));
                let times = handoffs.len();
                findings.violation(|| format!("{item} arrived ({times}), and is {state}, says the ledger"));
            }
        }
    }
    for pair in history.final_states.windows(2).filter(|pair| pair[0].item() == pair[1].item() && pair[0] != pair[1]) {
        let (item, states) = (pair[0].item(), (pair[0].state, pair[1].state));
        findings.violation(|| format!("{item} has two final states: {states:?}"));
    }
    identity::report_emails(history, findings);
    report_unrequested_resends(history, findings);
    if history.header.in_doubt != InDoubt::AssumeSent {
        report_unrequested_assumptions(history, findings);
    }
}

/// Reports recipients that the ledger sent again by another policy than `resend`, or by an operator more often than was
/// asked for.
fn report_unrequested_resends(history: &History, findings: &mut Findings) {
    for outcomes in history.outcomes.chunk_by(|left, right| left.item() == right.item()) {
        let Some(item) = outcomes.first().map(HasItem::item) else { continue };
        let count = |by| outcomes.iter().filter(|outcome| outcome.kind == OutcomeKind::Resent(by)).count();
        let (resent, policy) = (count(Decider::Operator), history.header.in_doubt);
        if policy != InDoubt::Resend && count(Decider::Policy) > 0 {
            findings.violation(|| format!("{item} was to be sent again by its policy, which is {policy:?}"));
        }
        if resent == 0 {
            continue;
        }
        let asked = history.requests_about(item, Call::resends);
        if resent > asked && history.is_whole() {
            findings.violation(|| format!("{item} was to be sent again {resent} times, and {asked} were asked for"));
        }
    }
}

/// Reports recipients that were closed as assumed without an operator's request. A request closes only recipients that
/// are in doubt already.
fn report_unrequested_assumptions(history: &History, findings: &mut Findings) {
    for item_state in history.final_states.iter().filter(|item_state| item_state.state == RecipientState::Assumed) {
        let item = item_state.item();
        let is_later = |call: &Call| match call.answer {
            Answer::Ok { index: Some(index), .. } => history.was_in_doubt(item, 0, index),
            _ => true,
        };
        let asks = |call: &Call| call.assumes(&item.run, &item.recipient) && is_later(call);
        if history.is_whole() && !history.possible_calls().any(asks) {
            findings.violation(|| format!("{item} was closed as assumed without a request"));
        }
    }
}
