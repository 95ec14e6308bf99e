//! Ends without an email, for which I4 wants a cause that the ledger is not the only witness of: an opt-out or a cancel that
//! was asked for, a run within the `min_gap`, a deadline that has passed, a refusal by the relay. (A refusal before the
//! final dot leaves no trace at the sink: there the ledger's step is enough.)

use super::barriers::may_follow;
use super::limits;
use crate::book::{Book, Grant, Item, rows_of};
use crate::history::{Answer, Answered, Call, Fate, Life, LifeEnd, Operation, Part, Run, Step, Target};

/// Is there a cause?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Yes, or it is no end that needs one.
    Seen,
    /// No.
    None,
    /// Nobody knows, for want of these.
    Unknown(Part),
}

/// Why somebody who got nothing stands there for good.
pub fn cause(book: &Book, item: Item, state: Fate) -> Cause {
    let Some(run) = book.run_of(item) else { return Cause::None };
    let (is_seen, rests_on) = match state {
        Fate::Suppressed => (opted_out(book, item, run) || limits::another_is_near(book, item, run), Part::Calls),
        Fate::Cancelled => (was_cancelled(book, run), Part::Calls),
        Fate::Expired => (is_over(book, run), Part::Due),
        Fate::Dead => (was_refused(book, item) || killed_its_holders(book, item), Part::Outcomes),
        Fate::Pending | Fate::Claimed | Fate::Sent | Fate::Assumed | Fate::InDoubt => return Cause::Seen,
    };
    match is_seen {
        _ if book.arrived(item) => Cause::Seen, // Whether it may stand there all the same is I9's affair.
        true => Cause::Seen,
        false if !book.is_whole(Part::Accepts) => Cause::Unknown(Part::Accepts),
        false if book.is_whole(rests_on) => Cause::None,
        false => Cause::Unknown(rests_on),
    }
}

/// It asked for no more mail of this tenant, and nothing took that back before the run opened.
fn opted_out(book: &Book, item: Item, run: &Run) -> bool {
    let recipient = book.names.text(item.recipient);
    let is_own = |tenant: &str, of: &str| (tenant, of) == (run.tenant.as_str(), recipient);
    let opts_out = |call: &Call| {
        let own = matches!(&call.operation, Operation::OptOut { tenant, recipient } if is_own(tenant, recipient));
        own && !matches!(call.answer, Answer::Failed { .. })
    };
    let takes_back = |call: &Call| {
        let own = matches!(&call.operation, Operation::TakeBack { tenant, recipient } if is_own(tenant, recipient));
        let before = call.answered_ns.is_some_and(|at_ns| book.civil_ms(at_ns) < run.opened_unix_ms);
        own && before && matches!(call.answer, Answer::Ok { .. })
    };
    let backs: Vec<&Call> = book.calls.iter().filter(|call| takes_back(call)).collect();
    let mut opt_outs = book.calls.iter().filter(|call| opts_out(call));
    opt_outs.any(|opt_out| backs.iter().all(|back| may_follow(opt_out, back)))
}

/// Somebody cancelled the run, or took its schedule away.
fn was_cancelled(book: &Book, run: &Run) -> bool {
    let may_be_so = book.calls.iter().filter(|call| !matches!(call.answer, Answer::Failed { .. }));
    may_be_so.map(|call| &call.operation).any(|operation| match operation {
        Operation::Cancel { target: Target::Run(of) } => *of == run.run,
        Operation::Cancel { target: Target::Schedule { tenant, schedule } } => {
            (tenant, schedule) == (&run.tenant, &run.schedule)
        }
        Operation::Write { tenant, name, value: None, .. } => (tenant, name) == (&run.tenant, &run.schedule),
        _ => false,
    })
}

/// Its deadline passed before the history ended, or its schedule's next instant came, and it had been open for as long as
/// any run is.
fn is_over(book: &Book, run: &Run) -> bool {
    let end_ms = book.civil_ms(book.ended_ns()).saturating_add_unsigned(book.header.clock_error_ms);
    let within = book.header.policies.finish_within_ms;
    let deadline_ms = within.map(|within| run.due_unix_ms.saturating_add_unsigned(within));
    let next_ms = book.instant_of(run).and_then(|own| {
        let mut later = book.due.range(own..).map(|(instant, _)| *instant);
        let next = later.find(|instant| instant.due_unix_ms > own.due_unix_ms)?;
        ((next.tenant, next.schedule) == (own.tenant, own.schedule)).then_some(next.due_unix_ms)
    });
    let at_least = book.header.policies.finish_at_least_ms;
    let had_time_ms =
        run.opened_unix_ms.saturating_add_unsigned(within.map_or(at_least, |within| at_least.min(within)));
    deadline_ms.into_iter().chain(next_ms).any(|over_ms| over_ms.max(had_time_ms) <= end_ms)
}

/// The relay refused it: the sink says so, or else a step of its story.
fn was_refused(book: &Book, item: Item) -> bool {
    rows_of(&book.dots, item).iter().any(|dot| matches!(dot.answer, Answered::Refused | Answered::Malformed))
        || rows_of(&book.outcomes, item).iter().any(|came| came.step == Step::Refused)
}

/// It was given back more than once, and its holders were dead by then: whoever prepares it might die of it. Of a holder
/// whose life nobody read, any life of its node may be meant.
fn killed_its_holders(book: &Book, item: Item) -> bool {
    let given_back = rows_of(&book.outcomes, item).iter().filter(|came| came.step == Step::Released).count();
    let is_dead = |grant: &&Grant| {
        let node = book.names.text(grant.node);
        let is_it = |life: &&Life| grant.incarnation.is_none() || life.incarnation == grant.incarnation;
        // One that was stopped in order gave back what it held, and died of nothing.
        let died = |life: &Life| life.ended_ns.is_some() && life.end != Some(LifeEnd::Stopped);
        book.lives.iter().filter(|life| life.node == node).filter(is_it).any(died)
    };
    let died = rows_of(&book.grants, item).iter().filter(is_dead).count();
    given_back > 1 && died > 1
}
