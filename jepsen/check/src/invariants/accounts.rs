//! I9: ledger and sink agree, item by item. Who is sent was accepted; who was accepted and is not sent is in doubt or
//! assumed. (A recipient that is still pending or claimed because the run did not drain belongs to I4 and I13, unless
//! no row holds it: then it would be sent again.) Each email says which item it is of (`identity.rs`).
//! Under `verdict` and `assume_sent` no recipient is to be sent to again unless an operator asked for it; under any other
//! policy than `assume_sent` no recipient is closed as assumed unless an operator asked for that.

use super::identity;
use crate::history::{Call, InDoubt, Part, RecipientState, Step};
use crate::history_index::{HistoryIndex, Item, entries_of_item};
use crate::verdict::Findings;

/// I9.
pub fn agree(history: &HistoryIndex, findings: &mut Findings) {
    let accepts_whole = findings.requires(history, &[Part::Accepts]);
    let states_whole = findings.requires(history, &[Part::FinalStates]);
    if accepts_whole {
        let sent = history.final_states.iter().filter(|item_state| item_state.state == RecipientState::Sent);
        for item_state in sent.filter(|item_state| !history.arrived(item_state.item)) {
            findings.violation(|| {
                format!("{} is sent, says the ledger, and never arrived", history.describe(item_state.item))
            });
        }
    }
    for (item, handoffs) in
        history.handoffs_by_item().filter(|(_, handoffs)| handoffs.iter().any(|handoff| handoff.answer.is_accepted()))
    {
        // By decision it goes round again, and what came of that round is what counts.
        let decided = entries_of_item(&history.outcomes, item).iter().filter(|outcome| outcome.step == Step::Resent);
        let decided = decided.map(|outcome| outcome.index).max();
        let accepts = handoffs.iter().filter(|handoff| handoff.answer.is_accepted());
        let last = accepts.filter_map(|handoff| handoff.fence).map(|fence| fence.index).max();
        match history.final_state(item) {
            Some(
                RecipientState::Sent | RecipientState::InDoubt | RecipientState::Assumed | RecipientState::Claimed,
            ) => {}
            None if !states_whole => {}
            Some(_) if decided > last => {}
            state => {
                let state = state.map_or("unknown".to_owned(), |state| format!("{state:?}"));
                let times = handoffs.len();
                findings.violation(|| {
                    format!("{} arrived ({times}), and is {state}, says the ledger", history.describe(item))
                });
            }
        }
    }
    identity::of_emails(history, findings);
    if history.header.in_doubt != InDoubt::Resend {
        by_itself(history, findings);
    }
    if history.header.in_doubt != InDoubt::AssumeSent {
        closed_by_itself(history, findings);
    }
}

/// Resend steps beyond those that operators asked for.
fn by_itself(history: &HistoryIndex, findings: &mut Findings) {
    for outcomes in history.outcomes.chunk_by(|left, right| left.item == right.item) {
        let resent = outcomes.iter().filter(|outcome| outcome.step == Step::Resent).count();
        let Some(item) = outcomes.first().map(|outcome| outcome.item).filter(|_| resent > 0) else { continue };
        let asked = asked_for(history, item, Call::resends);
        if resent > asked && findings.requires(history, &[Part::Calls]) {
            let item = history.describe(item);
            findings.violation(|| format!("{item} was to be sent again {resent} times, and {asked} were asked for"));
        }
    }
}

/// Who was closed as assumed though no operator asked for it.
fn closed_by_itself(history: &HistoryIndex, findings: &mut Findings) {
    for item_state in history.final_states.iter().filter(|item_state| item_state.state == RecipientState::Assumed) {
        if asked_for(history, item_state.item, Call::assumes) == 0 && findings.requires(history, &[Part::Calls]) {
            findings
                .violation(|| format!("{} was closed as assumed without a request", history.describe(item_state.item)));
        }
    }
}

/// How often operators asked for it in a call that may have succeeded.
fn asked_for(history: &HistoryIndex, item: Item, asks: fn(&Call, &str, &str) -> bool) -> usize {
    let (run, recipient) = (history.names.text(item.run), history.names.text(item.recipient));
    history.calls.iter().filter(|call| call.may_be_done() && asks(call, run, recipient)).count()
}
