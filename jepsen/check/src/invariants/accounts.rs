//! I9: ledger and sink agree, item by item. Who is sent was accepted; who was accepted and is not sent is in doubt or
//! assumed. (Who is still pending or claimed because the run did not drain is I4's and I13's affair, unless nobody holds
//! it: then it would be sent again.)

use crate::book::{Book, rows_of};
use crate::history::{Fate, Part, Step};
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
    inquiry.verdict()
}
