//! What I9 asks of the emails themselves, beside where they came. An email names its item by its Message-ID, so
//! that its recipient can recognize a duplicate: each attempt of an item bears the same one, and no two items share
//! one. Its body is the same at each attempt too. And what came was a message: a line end that two readers may take for
//! two different things (RFC 5321 2.3.8) was never written.
//!
//! An identity header that comes twice is an offence too: the sink reads the first, another reader may read the last.
//!
//! A message that was cut off is left out: how much of it is missing is unknown.

use crate::book::{Book, Dot};
use crate::history::Answered;
use crate::verdict::Inquiry;

/// The offences of the emails.
pub fn of_emails(book: &Book, inquiry: &mut Inquiry) {
    for dot in book.dots.iter().filter(|dot| dot.answer == Answered::Malformed) {
        inquiry.offends(|| format!("{} was no message: {}", book.describe(dot.item), told(book, dot)));
    }
    for dot in book.accepts().filter(|dot| dot.message_id.is_none()) {
        inquiry.offends(|| format!("{} came without a Message-ID: {}", book.describe(dot.item), told(book, dot)));
    }
    for (item, header) in &book.repeated_headers {
        inquiry.offends(|| format!("{} came with more than one {header}", book.describe(*item)));
    }
    for (item, dots) in book.dots_by_item() {
        let differ = |what: fn(&Dot) -> Option<_>| {
            let mut known = dots.iter().filter(|dot| is_whole(dot)).filter_map(what);
            let first = known.next();
            known.any(|other| Some(other) != first)
        };
        if differ(|dot| dot.message_id) {
            inquiry.offends(|| format!("{} came under two Message-IDs", book.describe(item)));
        }
        if differ(|dot| dot.body) {
            inquiry.offends(|| format!("{} came with two bodies", book.describe(item)));
        }
    }
    let named = book.dots.iter().filter(|dot| is_whole(dot));
    let mut named: Vec<_> = named.filter_map(|dot| Some((dot.message_id?, dot.item))).collect();
    named.sort_unstable();
    for pair in named.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        let (one, other) = (book.describe(pair[0].1), book.describe(pair[1].1));
        inquiry.offends(|| format!("{one} and {other} came under one Message-ID"));
    }
}

pub(super) fn is_whole(dot: &Dot) -> bool {
    !matches!(dot.answer, Answered::Cut | Answered::Malformed)
}

pub(super) fn told(book: &Book, dot: &Dot) -> String {
    format!("from {} at {:.3} s", book.names.text(dot.node), dot.at_ns as f64 / 1e9)
}
