//! I9: ledger and sink agree, item by item. Who is sent was accepted; who was accepted and is not sent is in doubt or
//! assumed. (Who is still pending or claimed because the run did not drain is I4's and I13's affair, unless nobody holds
//! it: then it would be sent again.) Each mail says which item it is of, always in the same way (`identity.rs`). Under `hold` and `assume_sent` nobody is to be sent again unless somebody asked for it.

use super::identity;
use crate::book::{Book, Item, rows_of};
use crate::history::{Answer, Fate, InDoubt, Operation, Part, Step};
use crate::verdict::{Inquiry, Verdict};

/// I9.
pub fn agree(book: &Book) -> Verdict {
    let mut inquiry = Inquiry::default();
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
    identity::of_mails(book, &mut inquiry);
    if book.header.in_doubt != InDoubt::Resend {
        by_itself(book, &mut inquiry);
    }
    inquiry.verdict()
}

/// Steps that send somebody again, more than operators asked for.
fn by_itself(book: &Book, inquiry: &mut Inquiry) {
    for outcomes in book.outcomes.chunk_by(|left, right| left.item == right.item) {
        let resent = outcomes.iter().filter(|came| came.step == Step::Resent).count();
        let Some(item) = outcomes.first().map(|came| came.item).filter(|_| resent > 0) else { continue };
        let asked = asked_for(book, item);
        if resent > asked && inquiry.needs(book, &[Part::Calls]) {
            let item = book.describe(item);
            inquiry.offends(|| format!("{item} was to be sent again {resent} times, and {asked} were asked for"));
        }
    }
}

fn asked_for(book: &Book, item: Item) -> usize {
    let (of, whom) = (book.names.text(item.run), book.names.text(item.recipient));
    let may_be_so = book.calls.iter().filter(|call| !matches!(call.answer, Answer::Failed { .. }));
    let own = may_be_so.filter(|call| {
        matches!(&call.operation, Operation::Resend { run, recipient }
            if run == of && recipient.as_ref().is_none_or(|recipient| recipient == whom))
    });
    own.count()
}
