//! I4: each due recipient is terminal or in doubt within the deadline after healing, for a cause where it got nothing,
//! and every instant that was due opened or is explained. I13: with a quorum healed, the backlog drains, and no run is
//! paused that nothing pauses.
//!
//! What is due comes from the history's own [`Due`](crate::history::Due) lines, which no part of the product wrote.

use std::collections::BTreeMap;

use super::ends::{self, Cause};
use crate::book::{Book, Instant, Item};
use crate::history::{
    Answer, Call, Explained, Fate, Fault, FaultKind, Operation, Part, PassedOver, Run, RunCause, Target,
};
use crate::names::Name;
use crate::time::MS;
use crate::verdict::Inquiry;

/// I4.
pub fn nothing_lost(book: &Book, inquiry: &mut Inquiry) {
    let parts = [Part::Due, Part::Calls, Part::Runs, Part::Instants, Part::Standings];
    if !inquiry.needs(book, &parts) {
        return;
    }
    let by_instant = runs_by_instant(book);
    for (instant, audience) in &book.due {
        match by_instant.get(instant) {
            Some(runs) => runs.iter().for_each(|run| account(book, run, *audience, inquiry)),
            None if is_explained(book, instant) => {}
            None => inquiry.offends(|| format!("{} neither opened nor is it explained", describe(book, instant))),
        }
    }
    for (whose, told) in &book.explained {
        for told in told {
            let from = |due_unix_ms| Instant { tenant: whose.0, schedule: whose.1, due_unix_ms };
            let covered = book.due.range(from(told.first_unix_ms)..=from(told.last_unix_ms.max(told.first_unix_ms)));
            let unopened = covered.filter(|(instant, _)| !by_instant.contains_key(instant)).count() as u64;
            if unopened > told.count {
                let (first, count) = (describe(book, &from(told.first_unix_ms)), told.count);
                inquiry.offends(|| format!("from {first} on {unopened} did not open, and {count} are explained"));
            }
        }
    }
    for (run, audience) in triggered(book) {
        match book.runs.get(&run) {
            Some(run) => account(book, run, audience, inquiry),
            None => inquiry.offends(|| format!("{} was answered to a trigger and is no run", book.names.text(run))),
        }
    }
}

/// Each recipient of a run that was due has a final state.
fn account(book: &Book, run: &Run, audience: Name, inquiry: &mut Inquiry) {
    let Some(recipients) = book.audiences.get(&audience) else {
        return inquiry.lacks(format!("the audience {}", book.names.text(audience)));
    };
    let Some(name) = book.names.find(&run.run) else { return };
    let over = deadline_ns(book).is_some_and(|deadline| deadline <= book.ended_ns());
    for recipient in recipients {
        let item = Item { run: name, recipient: *recipient };
        match book.standing(item) {
            None => inquiry.offends(|| format!("{} was due and stands nowhere", book.describe(item))),
            Some(state @ (Fate::Pending | Fate::Claimed)) if over => {
                inquiry.offends(|| format!("{} is still {state:?} after the deadline", book.describe(item)));
            }
            Some(Fate::Pending | Fate::Claimed) => {
                inquiry.lacks("what becomes of those who were pending: the history ends before the deadline");
            }
            Some(state) => match ends::cause(book, item, state) {
                Cause::Seen => {}
                Cause::None => {
                    inquiry.offends(|| format!("{} is {state:?}, and nothing made it so", book.describe(item)))
                }
                Cause::Unknown(part) => {
                    inquiry.lacks(format!("{part:?}, for why a recipient without an email is {state:?}"))
                }
            },
        }
    }
}

/// Due items without an explanation: without an accept, and the ledger calls them neither in doubt nor
/// anything else that is an end without a mail and has a cause.
pub fn lost(book: &Book) -> u64 {
    let by_instant = runs_by_instant(book);
    let mut lost = 0;
    let mut count = |run: Option<Name>, recipients: &[Name]| {
        let item = |recipient| run.map(|run| Item { run, recipient });
        let gone = |recipient: &Name| item(*recipient).is_none_or(|item| is_lost(book, item));
        lost += recipients.iter().filter(|recipient| gone(recipient)).count() as u64;
    };
    for (instant, audience) in &book.due {
        let recipients = book.audiences.get(audience).map_or(&[][..], Vec::as_slice);
        match by_instant.get(instant).and_then(|runs| runs.first()) {
            Some(run) => count(book.names.find(&run.run), recipients),
            None if is_explained(book, instant) => {}
            None => count(None, recipients),
        }
    }
    for (run, audience) in triggered(book) {
        count(Some(run), book.audiences.get(&audience).map_or(&[][..], Vec::as_slice));
    }
    lost
}

fn is_lost(book: &Book, item: Item) -> bool {
    let ends = |state| {
        let is_end = !matches!(state, Fate::Pending | Fate::Claimed | Fate::Sent);
        is_end && ends::cause(book, item, state) != Cause::None
    };
    !book.arrived(item) && !book.standing(item).is_some_and(ends)
}

/// How many (run, recipient) there were to be: those of instants that opened, and those of triggers.
pub fn expected(book: &Book) -> u64 {
    let by_instant = runs_by_instant(book);
    let of = |audience: &Name| book.audiences.get(audience).map_or(0, |recipients| recipients.len() as u64);
    let not_explained = |instant: &Instant| by_instant.contains_key(instant) || !is_explained(book, instant);
    let due = book.due.iter().filter(|(instant, _)| not_explained(instant));
    due.map(|(_, audience)| of(audience)).sum::<u64>() + triggered(book).map(|(_, audience)| of(&audience)).sum::<u64>()
}

/// Runs of instants, so not triggered ones.
pub fn runs_by_instant(book: &Book) -> BTreeMap<Instant, Vec<&Run>> {
    let mut by_instant: BTreeMap<Instant, Vec<&Run>> = BTreeMap::new();
    let own = book.runs.values().filter(|run| !matches!(run.cause, RunCause::Trigger | RunCause::Test));
    for run in own {
        if let Some(instant) = book.instant_of(run) {
            by_instant.entry(instant).or_default().push(run);
        }
    }
    by_instant
}

/// Runs that were answered to triggers, each once, and their audiences.
pub fn triggered(book: &Book) -> impl Iterator<Item = (Name, Name)> {
    let mut runs = BTreeMap::new();
    for call in &book.calls {
        if let (Operation::Trigger { audience, .. }, Answer::Ok { run: Some(run), .. }) =
            (&call.operation, &call.answer)
            && let (Some(run), Some(audience)) = (book.names.find(run), book.names.find(audience))
        {
            runs.insert(run, audience);
        }
    }
    runs.into_iter()
}

/// Does the ledger say why this instant did not open?
pub fn is_explained(book: &Book, instant: &Instant) -> bool {
    explanation(book, instant).is_some_and(|told| told.outcome != PassedOver::Waiting)
}

/// What the ledger says of an instant that did not open.
pub fn explanation<'a>(book: &'a Book, instant: &Instant) -> Option<&'a Explained> {
    let told = book.explained.get(&(instant.tenant, instant.schedule))?;
    told.iter().find(|told| (told.first_unix_ms..=told.last_unix_ms).contains(&instant.due_unix_ms))
}

/// For people.
pub fn describe(book: &Book, instant: &Instant) -> String {
    let Instant { tenant, schedule, due_unix_ms } = *instant;
    format!("{}/{} of {due_unix_ms} ms", book.names.text(tenant), book.names.text(schedule))
}

/// When everything has to be done: so long after the last healing, or after the beginning where nothing was broken.
fn deadline_ns(book: &Book) -> Option<u64> {
    let from = if book.faults_from_ns.is_some() { book.healed_ns? } else { book.healed_ns.unwrap_or(0) };
    Some(from.saturating_add(book.header.drain_within_ms.saturating_mul(MS)))
}

/// I13.
pub fn drains(book: &Book, inquiry: &mut Inquiry) {
    match (deadline_ns(book), book.drained_ns) {
        _ if book.ended.is_none() => inquiry.lacks("the end of the history"),
        (None, _) => inquiry.lacks("a healing"),
        (Some(deadline), Some(drained)) if drained <= deadline => {}
        (Some(deadline), Some(drained)) => {
            let late = (drained - deadline) as f64 / 1e9;
            inquiry.offends(|| format!("the backlog drained {late:.3} s after the deadline"));
        }
        (Some(deadline), None) if deadline <= book.ended_ns() => {
            inquiry.offends(|| "the backlog never drained".to_owned());
        }
        (Some(_), None) => inquiry.lacks("the draining: the history ends before the deadline"),
    }
    for run in book.paused.iter().filter(|run| !may_be_paused(book, run)) {
        inquiry.offends(|| format!("{run} is paused, and nothing in the history pauses it"));
    }
}

/// A run is paused by an operator, whatever the answer was, or because relays refused: by a guard (P6).
fn may_be_paused(book: &Book, run: &str) -> bool {
    let asked = |call: &Call| matches!(&call.operation, Operation::Pause { target: Target::Run(of) } if of == run);
    let refused = |fault: &Fault| fault.kind == FaultKind::Relay && fault.may_have_struck();
    book.calls.iter().any(asked) || book.faults.iter().any(refused)
}
