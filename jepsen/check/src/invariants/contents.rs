//! I16: the content is the recipient's own. Each body of the workload names its schedule, its recipient and the value of a
//! variable of that recipient; the envelope, the run and the audience say what they have to be.

use std::collections::BTreeMap;

use crate::book::{Book, Dot, Says};
use crate::history::Part;
use crate::names::Name;
use crate::verdict::Inquiry;

use super::identity::{is_whole, told};
use super::loss::triggered;

/// I16.
pub fn own(book: &Book, inquiry: &mut Inquiry) {
    inquiry.needs(book, &[Part::Accepts, Part::Runs]);
    let all_read = inquiry.needs(book, &[Part::Contents]);
    let audiences = audiences(book);
    // An email that the relay refused had its content too.
    for dot in book.dots.iter().filter(|dot| is_whole(dot)) {
        match dot.says {
            Some(says) => compare(book, &audiences, (dot, says), inquiry),
            None if all_read => {
                inquiry.offends(|| {
                    format!("{} came with a body that names nothing: {}", item(book, dot), told(book, dot))
                });
            }
            None => {}
        }
    }
}

/// The audience of each run: by its instant, or by the call that triggered it.
fn audiences(book: &Book) -> BTreeMap<Name, Name> {
    let by_instant = book.runs.iter().filter_map(|(run, told)| {
        let audience = book.due.get(&book.instant_of(told)?)?;
        Some((*run, *audience))
    });
    by_instant.chain(triggered(book)).collect()
}

fn compare(book: &Book, audiences: &BTreeMap<Name, Name>, (dot, says): (&Dot, Says), inquiry: &mut Inquiry) {
    let text = |name| book.names.text(name);
    if says.recipient != dot.item.recipient {
        inquiry
            .offends(|| format!("{} got what is for {}: {}", item(book, dot), text(says.recipient), told(book, dot)));
        return;
    }
    // What has no run is judged by I2 and I10.
    let Some(run) = book.run_of(dot.item) else { return };
    if run.schedule != text(says.schedule) {
        inquiry.offends(|| {
            format!("{} got the content of {}, not of {}", item(book, dot), text(says.schedule), run.schedule)
        });
        return;
    }
    let audience = audiences.get(&dot.item.run);
    let code = audience.and_then(|audience| book.codes.get(&(*audience, says.recipient)));
    if let Some(code) = code.filter(|code| **code != says.code) {
        inquiry.offends(|| format!("{} got the code {}, not {}", item(book, dot), text(says.code), text(*code)));
    }
}

fn item(book: &Book, dot: &Dot) -> String {
    book.describe(dot.item)
}
