//! I12: one tenant's overload does not move another's start beyond its bound. A run has started when one of its
//! recipients was granted, as far as that has an instant, or when the sink saw the first of its hand-offs, whatever it
//! answered.

use std::collections::HashMap;

use super::{limits, occurrences};
use crate::book::{Book, rows_of_run};
use crate::history::{Fate, Operation, Part, Run, RunCause, Target};
use crate::names::Name;
use crate::time::seconds;
use crate::verdict::Inquiry;

/// I12.
pub fn apart(book: &Book, inquiry: &mut Inquiry) {
    inquiry.needs(book, &[Part::Accepts, Part::Calls, Part::Runs, Part::Outages]);
    let Some(bound) = book.header.start_bound_ms else {
        inquiry.lacks("a bound");
        return;
    };
    let first = starts(book);
    let mut judged = 0_u32;
    for (name, run) in book.runs.iter().filter(|(_, run)| run.cause == RunCause::Due) {
        let beside = book.overloads.iter().any(|overload| {
            let during = book.civil_ms(overload.from_ns)..=book.civil_ms(overload.until_ns);
            overload.tenant != run.tenant && during.contains(&run.due_unix_ms)
        });
        let overloaded_itself = book.overloads.iter().any(|overload| overload.tenant == run.tenant);
        let waits = limits::holds_back(book, run);
        if !beside || overloaded_itself || waits || wants_no_mail(book, *name) || may_be_paused(book, run) {
            continue;
        }
        // If no recipient was tried until the end, it is as late as that.
        let first_ns = first.get(name).copied();
        if first_ns.is_none() && !rows_of_run(&book.grants, *name).is_empty() {
            // Its holders died before the sink saw anything of them, and when they were granted it is unknown.
            continue;
        }
        judged += 1;
        let (due, came) = (run.due_unix_ms, book.civil_ms(first_ns.unwrap_or(book.ended_ns())));
        let (late, bound) = (came.saturating_sub(due), i64::try_from(bound).unwrap_or(i64::MAX));
        if late > bound && book.unhindered_ms(due, came) > bound {
            let (run, tenant, late) = (&run.run, &run.tenant, seconds(late));
            let how = if first_ns.is_some() { "began" } else { "had not begun" };
            inquiry.offends(|| format!("{run} of {tenant} {how} {late} after its instant"));
        }
    }
    if judged == 0 {
        inquiry.lacks("a run of one tenant beside the overload of another");
    }
}

fn starts(book: &Book) -> HashMap<Name, u64> {
    let by_dots = book.dots.iter().map(|dot| (dot.item.run, dot.at_ns));
    let by_grants = book.grants.iter().filter_map(|grant| Some((grant.item.run, grant.committed_ns?)));
    let mut first: HashMap<Name, u64> = HashMap::new();
    for (run, at_ns) in by_dots.chain(by_grants) {
        first.entry(run).and_modify(|first_ns| *first_ns = at_ns.min(*first_ns)).or_insert(at_ns);
    }
    first
}

/// The run, or its schedule over its instant, was paused or may have been: then it starts when that is resumed.
fn may_be_paused(book: &Book, run: &Run) -> bool {
    if occurrences::was_stopped(book, &run.tenant, &run.schedule, run.due_unix_ms, run.opened_unix_ms) {
        return true;
    }
    let may_be_so = book.calls.iter().filter(|call| call.may_be_done());
    may_be_so
        .map(|call| &call.operation)
        .any(|operation| matches!(operation, Operation::Pause { target: Target::Run(of) } if *of == run.run))
}

/// No recipient of the run was to get a mail in the end: all have opted out, or it was cancelled.
fn wants_no_mail(book: &Book, run: Name) -> bool {
    let own = rows_of_run(&book.standings, run);
    !own.is_empty() && own.iter().all(|stands| matches!(stands.state, Fate::Suppressed | Fate::Cancelled))
}
