//! I9: ledger and sink agree, item by item. Who is sent was accepted; who was accepted and is not sent is in doubt or
//! assumed. (A recipient that is still pending or claimed because the run did not drain belongs to I4 and I13, unless
//! no row holds it: then it would be sent again.) Each email says which item it is of (`identity.rs`).
//! Under `hold` and `assume_sent` no recipient is to be sent to again unless an operator asked for it; under any other
//! policy than `assume_sent` no recipient is closed as assumed unless an operator asked for that.

use super::identity;
use crate::book::{Book, Item, rows_of};
use crate::history::{Call, Fate, InDoubt, Part, Step};
use crate::verdict::Inquiry;

/// I9.
pub fn agree(book: &Book, inquiry: &mut Inquiry) {
    let accepts_whole = inquiry.needs(book, &[Part::Accepts]);
    let standings_whole = inquiry.needs(book, &[Part::Standings]);
    if accepts_whole {
        let sent = book.standings.iter().filter(|stands| stands.state == Fate::Sent);
        for stands in sent.filter(|stands| !book.arrived(stands.item)) {
            inquiry.offends(|| format!("{} is sent, says the ledger, and never arrived", book.describe(stands.item)));
        }
    }
    for (item, dots) in book.dots_by_item().filter(|(_, dots)| dots.iter().any(|dot| dot.answer.is_accepted())) {
        // By decision it goes round again, and what came of that round is what counts.
        let decided = rows_of(&book.outcomes, item).iter().filter(|came| came.step == Step::Resent);
        let decided = decided.map(|came| came.index).max();
        let accepts = dots.iter().filter(|dot| dot.answer.is_accepted());
        let last = accepts.filter_map(|dot| dot.fence).map(|fence| fence.index).max();
        match book.standing(item) {
            Some(Fate::Sent | Fate::InDoubt | Fate::Assumed | Fate::Claimed) => {}
            None if !standings_whole => {}
            Some(_) if decided > last => {}
            state => {
                let state = state.map_or("unknown".to_owned(), |state| format!("{state:?}"));
                let times = dots.len();
                inquiry
                    .offends(|| format!("{} arrived ({times}), and is {state}, says the ledger", book.describe(item)));
            }
        }
    }
    identity::of_emails(book, inquiry);
    if book.header.in_doubt != InDoubt::Resend {
        by_itself(book, inquiry);
    }
    if book.header.in_doubt != InDoubt::AssumeSent {
        closed_by_itself(book, inquiry);
    }
}

/// Resend steps beyond those that operators asked for.
fn by_itself(book: &Book, inquiry: &mut Inquiry) {
    for outcomes in book.outcomes.chunk_by(|left, right| left.item == right.item) {
        let resent = outcomes.iter().filter(|came| came.step == Step::Resent).count();
        let Some(item) = outcomes.first().map(|came| came.item).filter(|_| resent > 0) else { continue };
        let asked = asked_for(book, item, Call::resends);
        if resent > asked && inquiry.needs(book, &[Part::Calls]) {
            let item = book.describe(item);
            inquiry.offends(|| format!("{item} was to be sent again {resent} times, and {asked} were asked for"));
        }
    }
}

/// Who was closed as assumed though no operator asked for it.
fn closed_by_itself(book: &Book, inquiry: &mut Inquiry) {
    for stands in book.standings.iter().filter(|stands| stands.state == Fate::Assumed) {
        if asked_for(book, stands.item, Call::assumes) == 0 && inquiry.needs(book, &[Part::Calls]) {
            inquiry.offends(|| format!("{} was closed as assumed without a request", book.describe(stands.item)));
        }
    }
}

/// How often operators asked for it in a call that may have succeeded.
fn asked_for(book: &Book, item: Item, asks: fn(&Call, &str, &str) -> bool) -> usize {
    let (run, recipient) = (book.names.text(item.run), book.names.text(item.recipient));
    book.calls.iter().filter(|call| call.may_be_done() && asks(call, run, recipient)).count()
}
