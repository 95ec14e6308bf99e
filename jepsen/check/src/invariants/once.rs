//! I1: no recipient of a run is accepted twice. I3: each attempt has a fence of its own, and at most one fence gets
//! past the gate without a definite refusal.
//!
//! Duplicates by choice are none of these: between two of them lies a decision that the history shows, each with one of
//! its own. Under `hold` and `assume_sent` only an operator decides, so only their calls count and the ledger's own word
//! does not; under `resend` the ledger does. What was decided before the first or after the second excuses nothing, nor
//! does what came when the recipient was not in doubt: a dead letter that was requeued had no mail to be doubled.

use crate::book::{Book, Came, Dot, Item, rows_of};
use crate::history::{Answer, Answered, Call, InDoubt, Part, Step};
use crate::verdict::Inquiry;

/// I1.
pub fn accepted_once(book: &Book, inquiry: &mut Inquiry) {
    inquiry.needs(book, &[Part::Accepts]);
    needs_outcomes(book, inquiry);
    for (item, dots) in book.dots_by_item() {
        let accepts: Vec<&Dot> = dots.iter().filter(|dot| dot.answer.is_accepted()).collect();
        let times = accepts.len();
        if !were_decided(book, item, accepts) {
            inquiry.offends(|| format!("{} was accepted {times} times: {}", book.describe(item), fences(dots)));
        }
    }
}

/// I3.
pub fn one_fence_past_the_gate(book: &Book, inquiry: &mut Inquiry) {
    inquiry.needs(book, &[Part::Accepts, Part::Dots]);
    needs_outcomes(book, inquiry);
    for (item, dots) in book.dots_by_item() {
        let mut all: Vec<_> = dots.iter().filter_map(|dot| dot.fence).collect();
        all.sort_unstable();
        for twice in all.windows(2).filter(|pair| pair[0] == pair[1]) {
            inquiry.offends(|| format!("{} came twice under fence {}", book.describe(item), twice[0]));
        }
        let past =
            dots.iter().filter(|dot| !matches!(dot.answer, Answered::Refused | Answered::Cut | Answered::Malformed));
        let mut past: Vec<&Dot> = past.filter(|dot| dot.fence.is_some()).collect();
        past.sort_by_key(|dot| (dot.fence, dot.at_ns));
        past.dedup_by_key(|dot| dot.fence);
        if !were_decided(book, item, past) {
            inquiry.offends(|| format!("{} passed the gate again: {}", book.describe(item), fences(dots)));
        }
    }
}

/// Emails beyond the first of their items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// Under `hold` and `assume_sent` those without a decision: they break the promise. Under `resend` all of them:
    /// which of them an operator wanted and which the policy did, the ledger's word does not say.
    pub undecided: u64,
    /// Those that an operator decided for, under any other policy than `resend`.
    pub decided: u64,
}

/// Over all items.
pub fn duplicates(book: &Book) -> Duplicates {
    let by_policy = book.header.in_doubt == InDoubt::Resend;
    let mut all = Duplicates::default();
    for (item, dots) in book.dots_by_item() {
        let accepts: Vec<&Dot> = dots.iter().filter(|dot| dot.answer.is_accepted()).collect();
        let beyond = accepts.len().saturating_sub(1);
        let undecided = if by_policy { beyond } else { undecided(book, item, accepts) };
        all.undecided += undecided as u64;
        all.decided += (beyond - undecided) as u64;
    }
    all
}

fn fences(dots: &[Dot]) -> String {
    let told = dots.iter().map(|dot| {
        let fence = dot.fence.map_or_else(|| "no fence".to_owned(), |fence| fence.to_string());
        format!("{fence} {:?} at {:.3} s", dot.answer, dot.at_ns as f64 / 1e9)
    });
    told.collect::<Vec<_>>().join(", ")
}

fn needs_outcomes(book: &Book, inquiry: &mut Inquiry) {
    if book.header.in_doubt == InDoubt::Resend {
        inquiry.needs(book, &[Part::Outcomes]);
    }
}

/// A decision to send to a recipient again.
#[derive(Clone, Copy, Debug)]
struct Decision {
    /// Where it stands in the log, if that is known.
    index: Option<u64>,
    invoked_ns: u64,
    /// `u64::MAX`: it may have been done at any time since.
    answered_ns: u64,
    /// The ledger recorded that the recipient is sent again. The policy `resend` does so in the entry that puts the
    /// recipient in doubt, so no step before it says that it is.
    is_step: bool,
}

/// Does a decision of its own lie between each two of these, by their fences?
fn were_decided(book: &Book, item: Item, dots: Vec<&Dot>) -> bool {
    undecided(book, item, dots) == 0
}

/// Between how many of these and the next one, by their fences, lies no decision of its own?
fn undecided(book: &Book, item: Item, mut dots: Vec<&Dot>) -> usize {
    if dots.len() < 2 {
        return 0;
    }
    dots.sort_by_key(|dot| (dot.fence, dot.at_ns));
    let mut decisions = decisions(book, item);
    let is_undecided = |pair: &&[&Dot]| {
        let fitting = decisions.iter().enumerate().filter(|(_, decision)| decision.is_between(book, pair[0], pair[1]));
        // Prefer decisions with a known log index: they match only this pair.
        let best = fitting.min_by_key(|(_, decision)| (decision.index.is_none(), decision.answered_ns));
        let place = best.map(|(place, _)| place);
        place.map(|place| decisions.swap_remove(place)).is_none()
    };
    dots.windows(2).filter(is_undecided).count()
}

/// Those about this item.
fn decisions(book: &Book, item: Item) -> Vec<Decision> {
    if book.header.in_doubt == InDoubt::Resend {
        // Operators' decisions are steps too.
        let resent = rows_of(&book.outcomes, item).iter().filter(|came| came.step == Step::Resent);
        let decision =
            |came: &Came| Decision { index: Some(came.index), invoked_ns: 0, answered_ns: u64::MAX, is_step: true };
        return resent.map(decision).collect();
    }
    let (own_run, own_recipient) = (book.names.text(item.run), book.names.text(item.recipient));
    let decision = |call: &Call| {
        let index = match call.answer {
            Answer::Ok { index, .. } => index,
            Answer::Unknown => None,
            Answer::Failed { .. } | Answer::Found { .. } => return None,
        };
        let (invoked_ns, answered_ns) = (call.invoked_ns, call.answered_ns.unwrap_or(u64::MAX));
        call.resends(own_run, own_recipient).then_some(Decision { index, invoked_ns, answered_ns, is_step: false })
    };
    book.calls.iter().filter_map(decision).collect()
}

impl Decision {
    /// By the log. Where its place there is not known, by time: who is decided about has had its DATA before, since
    /// that comes before the gate, and gets the next one after an operator asked.
    fn is_between(&self, book: &Book, first: &Dot, second: &Dot) -> bool {
        let in_time = match (first.fence, second.fence) {
            (Some(first), Some(second)) if first == second => false,
            (Some(first), Some(second)) if self.index.is_some() => {
                self.index.is_some_and(|index| first.index < index && index < second.index)
            }
            _ => first.data_ns < self.answered_ns && self.invoked_ns < second.data_ns,
        };
        // Who is not in doubt is not sent again, whatever is asked for. (A dead letter had no mail.)
        let until = self.index.or(second.fence.map(|fence| fence.index));
        in_time && (self.is_step || was_in_doubt(book, first, until))
    }
}

/// Was it in doubt after this hand-off, and before this entry? Where steps were not read it may have been.
fn was_in_doubt(book: &Book, dot: &Dot, until: Option<u64>) -> bool {
    let from = dot.fence.map_or(0, |fence| fence.index);
    let mut steps = rows_of(&book.outcomes, dot.item).iter().filter(|came| came.step == Step::InDoubt);
    !book.is_whole(Part::Outcomes)
        || steps.any(|came| came.index > from && until.is_none_or(|until| came.index < until))
}
