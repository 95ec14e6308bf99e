//! I1: no recipient of a run is accepted twice. I3: each attempt has a fence of its own, and at most one fence gets past
//! the gate without a definite refusal.
//!
//! Duplicates by choice are none of these: each needs a decision that the history shows. Under `hold` and `assume_sent`
//! only an operator decides, so only his calls count and the ledger's own word does not; under `resend` the ledger does.

use std::collections::HashMap;

use crate::book::{Book, Dot, Item, rows_of};
use crate::history::{Answer, Answered, Call, InDoubt, Operation, Part, Step};
use crate::names::Name;
use crate::verdict::{Inquiry, Verdict};

/// I1.
pub fn accepted_once(book: &Book) -> Verdict {
    let mut inquiry = Inquiry::default();
    inquiry.needs(book, &[Part::Accepts]);
    let leave = Leave::of(book, &mut inquiry);
    for (item, dots) in book.dots_by_item() {
        let accepts = dots.iter().filter(|dot| dot.answer.is_accepted()).count();
        if accepts > 1 + leave.for_item(book, item) {
            inquiry.offends(|| format!("{} was accepted {accepts} times: {}", book.describe(item), fences(dots)));
        }
    }
    inquiry.verdict()
}

/// I3.
pub fn one_fence_past_the_gate(book: &Book) -> Verdict {
    let mut inquiry = Inquiry::default();
    inquiry.needs(book, &[Part::Accepts, Part::Dots]);
    let leave = Leave::of(book, &mut inquiry);
    for (item, dots) in book.dots_by_item() {
        let mut all: Vec<_> = dots.iter().filter_map(|dot| dot.fence).collect();
        all.sort_unstable();
        for twice in all.windows(2).filter(|pair| pair[0] == pair[1]) {
            inquiry.offends(|| format!("{} came twice under fence {}", book.describe(item), twice[0]));
        }
        let past = dots.iter().filter(|dot| !matches!(dot.answer, Answered::Refused | Answered::Cut));
        let mut past: Vec<_> = past.filter_map(|dot| dot.fence).collect();
        past.sort_unstable();
        past.dedup();
        if past.len() > 1 + leave.for_item(book, item) {
            inquiry.offends(|| format!("{} passed the gate again: {}", book.describe(item), fences(dots)));
        }
    }
    inquiry.verdict()
}

/// Mails beyond the first, over all items.
pub fn duplicates(book: &Book) -> u64 {
    let beyond = |dots: &[Dot]| dots.iter().filter(|dot| dot.answer.is_accepted()).count().saturating_sub(1);
    book.dots_by_item().map(|(_, dots)| beyond(dots) as u64).sum()
}

fn fences(dots: &[Dot]) -> String {
    let told = dots.iter().map(|dot| {
        let fence = dot.fence.map_or_else(|| "no fence".to_owned(), |fence| fence.to_string());
        format!("{fence} {:?} at {:.3} s", dot.answer, dot.at_ns as f64 / 1e9)
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Who was sent again by a decision.
#[derive(Debug)]
pub struct Leave {
    by_ledger: bool,
    of_item: HashMap<Item, usize>,
    of_run: HashMap<Name, usize>,
}

impl Leave {
    /// Reads the decisions.
    pub fn of(book: &Book, inquiry: &mut Inquiry) -> Leave {
        let by_ledger = book.header.in_doubt == InDoubt::Resend;
        if by_ledger {
            inquiry.needs(book, &[Part::Outcomes]);
        }
        let mut leave = Leave { by_ledger, of_item: HashMap::new(), of_run: HashMap::new() };
        for Call { operation, answer, .. } in &book.calls {
            let (Operation::Resend { run, recipient }, Answer::Ok { .. } | Answer::Unknown) = (operation, answer)
            else {
                continue;
            };
            let Some(run) = book.names.find(run) else { continue };
            match recipient.as_ref().map(|text| book.names.find(text)) {
                None => *leave.of_run.entry(run).or_default() += 1,
                Some(Some(recipient)) => *leave.of_item.entry(Item { run, recipient }).or_default() += 1,
                // Nobody that anything else in the history is about.
                Some(None) => {}
            }
        }
        leave
    }

    /// How often this item was.
    pub fn for_item(&self, book: &Book, item: Item) -> usize {
        let outcomes = || rows_of(&book.outcomes, item).iter();
        let by_ledger = if self.by_ledger { outcomes().filter(|came| came.step == Step::Resent).count() } else { 0 };
        let by_operators = self.of_item.get(&item).unwrap_or(&0) + self.of_run.get(&item.run).unwrap_or(&0);
        by_ledger.max(by_operators)
    }
}
