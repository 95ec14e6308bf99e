//! I12: one tenant's overload does not move another's start beyond its bound.

use std::collections::HashMap;

use crate::book::Book;
use crate::history::{Fate, Part, RunCause};
use crate::names::Name;
use crate::time::seconds;
use crate::verdict::{Inquiry, Verdict};

/// I12.
pub fn apart(book: &Book) -> Verdict {
    let mut inquiry = Inquiry::default();
    inquiry.needs(book, &[Part::Accepts, Part::Runs, Part::Outages]);
    let Some(bound) = book.header.start_bound_ms else {
        inquiry.lacks("a bound");
        return inquiry.verdict();
    };
    let mut first: HashMap<Name, u64> = HashMap::new();
    for dot in book.accepts() {
        let at_ns = first.entry(dot.item.run).or_insert(dot.at_ns);
        *at_ns = dot.at_ns.min(*at_ns);
    }
    let mut judged = 0_u32;
    for (name, run) in book.runs.iter().filter(|(_, run)| run.cause == RunCause::Due) {
        let beside = book.overloads.iter().any(|overload| {
            let during = book.civil_ms(overload.from_ns)..=book.civil_ms(overload.until_ns);
            overload.tenant != run.tenant && during.contains(&run.due_unix_ms)
        });
        let overloaded_itself = book.overloads.iter().any(|overload| overload.tenant == run.tenant);
        if !beside || overloaded_itself || wants_no_mail(book, *name) {
            continue;
        }
        judged += 1;
        // Whoever got nothing until the end is as late as that.
        let first_ns = first.get(name).copied();
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
    inquiry.verdict()
}

/// Nobody of the run was to get a mail in the end: all have opted out, or it was cancelled.
fn wants_no_mail(book: &Book, run: Name) -> bool {
    let mut own = book.standings.iter().filter(|stands| stands.item.run == run).peekable();
    own.peek().is_some() && own.all(|stands| matches!(stands.state, Fate::Suppressed | Fate::Cancelled))
}
