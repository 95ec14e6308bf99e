//! I7: what was answered to an administrator is so at the end, whatever died meanwhile, and what was removed is not
//! there again. Also: the same request id has one answer.
//!
//! Each object is a register. At its end it may hold what a write put there that was answered, or may have happened,
//! unless another write that was answered began only after it was over.

use std::collections::{BTreeMap, HashMap};

use crate::book::Book;
use crate::history::{Answer, Call, Noun, Operation, Part};
use crate::verdict::{Inquiry, Verdict};

/// What an opt-out holds as an object.
pub const OPTED_OUT: &str = "opted_out";

type Key<'a> = (Noun, &'a str, &'a str);

struct Write<'a> {
    invoked_ns: u64,
    /// `None`: it may have happened, at any time since.
    answered_ns: Option<u64>,
    value: Option<&'a str>,
}

/// I7.
pub fn survive(book: &Book) -> Verdict {
    let mut inquiry = Inquiry::default();
    same_answer(book, &mut inquiry);
    if !inquiry.needs(book, &[Part::Calls, Part::Objects]) {
        return inquiry.verdict();
    }
    let found = book.found.iter();
    let found = found.map(|found| ((found.noun, found.tenant.as_str(), found.name.as_str()), found.value.as_str()));
    let found: HashMap<Key, &str> = found.collect();
    for (key, writes) in writes(book) {
        let held = found.get(&key).copied();
        if !may_hold(&writes, held) {
            let (noun, tenant, name) = key;
            let told = writes.iter().rev().find(|write| write.answered_ns.is_some()).and_then(|write| write.value);
            let words = |value: Option<&str>| value.map_or("nothing".to_owned(), |value| format!("'{value}'"));
            let (held, told) = (words(held), words(told));
            inquiry.offends(|| format!("{noun:?} {tenant}/{name} holds {held}; the last answered write: {told}"));
        }
    }
    inquiry.verdict()
}

fn writes(book: &Book) -> BTreeMap<Key<'_>, Vec<Write<'_>>> {
    let mut writes: BTreeMap<Key, Vec<Write>> = BTreeMap::new();
    for call in &book.calls {
        let (key, value): (Key, Option<&str>) = match &call.operation {
            Operation::Write { noun, tenant, name, value } => ((*noun, tenant, name), value.as_deref()),
            Operation::OptOut { tenant, recipient } => ((Noun::OptOut, tenant, recipient), Some(OPTED_OUT)),
            Operation::TakeBack { tenant, recipient } => ((Noun::OptOut, tenant, recipient), None),
            _ => continue,
        };
        let answered_ns = match call.answer {
            Answer::Ok { .. } => call.answered_ns,
            Answer::Unknown => None,
            Answer::Failed { .. } => continue,
        };
        writes.entry(key).or_default().push(Write { invoked_ns: call.invoked_ns, answered_ns, value });
    }
    writes
}

fn may_hold(writes: &[Write], held: Option<&str>) -> bool {
    let is_over = |over_ns: u64| writes.iter().any(|other| other.answered_ns.is_some() && other.invoked_ns > over_ns);
    let untouched = held.is_none() && !writes.iter().any(|write| write.answered_ns.is_some());
    let by = |write: &Write| write.value == held && !write.answered_ns.is_some_and(is_over);
    untouched || writes.iter().any(by)
}

/// Answers to one request id are equal, and to another body there is none.
fn same_answer(book: &Book, inquiry: &mut Inquiry) {
    let mut first: HashMap<&str, &Call> = HashMap::new();
    for call in book.calls.iter().filter(|call| matches!(call.answer, Answer::Ok { .. })) {
        let Some(id) = call.request_id.as_deref() else { continue };
        let before = *first.entry(id).or_insert(call);
        if before.operation != call.operation {
            inquiry.offends(|| format!("request {id} was answered to two different bodies"));
        } else if !is_same(&before.answer, &call.answer) {
            inquiry.offends(|| format!("request {id} was answered twice, and differently"));
        }
    }
}

fn is_same(left: &Answer, right: &Answer) -> bool {
    match (left, right) {
        (Answer::Ok { index, run, .. }, Answer::Ok { index: other_index, run: other_run, .. }) => {
            (index, run) == (other_index, other_run)
        }
        _ => false,
    }
}
