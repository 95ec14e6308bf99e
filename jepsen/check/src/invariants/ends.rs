//! Final states without an email, for which I4 requires a cause that was observed outside of the ledger: an opt-out or
//! cancel that was requested, a run within the `min_gap`, a passed deadline, or a refusal by the relay. (The sink's
//! record has no refusal and no broken dialogue before the final dot. For these the ledger's step is enough.) A
//! temporary refusal is no cause: it never counts as an attempt (P6).

use super::barriers::may_follow;
use super::limits;
use crate::events::{
    Answer, Answered, Call, Claim, Decider, Handoff, LifetimeEnd, Operation, Outcome, OutcomeKind, RecipientState, Run,
};
use crate::history::{History, Item, of_item};

/// Returns true if the final state of a recipient without an email has a cause.
pub fn has_cause(history: &History, item: Item, state: RecipientState) -> bool {
    // I9 judges the state of an accepted item.
    if history.arrived(item) {
        return true;
    }
    let Some(run) = history.run_of(item) else { return false };
    match state {
        RecipientState::Suppressed => opted_out(history, item, run) || limits::another_is_near(history, item, run),
        RecipientState::Cancelled => was_cancelled(history, run),
        RecipientState::Expired => is_over(history, run),
        RecipientState::Dead => was_refused(history, item) || killed_its_owners(history, item),
        RecipientState::Pending
        | RecipientState::Claimed
        | RecipientState::Sent
        | RecipientState::Assumed
        | RecipientState::InDoubt => true,
    }
}

/// Returns true if the recipient had opted out of this tenant's emails and not withdrawn the opt-out before the run
/// opened.
fn opted_out(history: &History, item: Item, run: &Run) -> bool {
    let (tenant, recipient) = (run.tenant.to_string(), item.recipient.to_string());
    let opt_out = Operation::OptOut { tenant: tenant.clone(), recipient: recipient.clone() };
    let take_back = Operation::TakeBack { tenant, recipient };
    let is_done_before = |call: &Call| {
        let is_before = call.answered_ns.is_some_and(|at_ns| history.civil_ms(at_ns) < run.opened_unix_ms);
        is_before && matches!(call.answer, Answer::Ok { .. })
    };
    let take_backs = history.calls.iter().filter(|call| call.operation == take_back && is_done_before(call));
    let take_backs: Vec<&Call> = take_backs.collect();
    let mut opt_outs = history.possible_calls().filter(|call| call.operation == opt_out);
    opt_outs.any(|opt_out| take_backs.iter().all(|take_back| may_follow(opt_out, take_back)))
}

/// Returns true if the run was cancelled, or its schedule deleted.
fn was_cancelled(history: &History, run: &Run) -> bool {
    history.possible_calls().any(|call| match &call.operation {
        Operation::Cancel { target } => run.is_in(target),
        Operation::Write { tenant, name, value: None, .. } => run.tenant == *tenant && run.schedule == *name,
        _ => false,
    })
}

/// Returns true if the run's deadline or its schedule's next instant was before the end of the history, and the run had
/// been open for the minimum time.
fn is_over(history: &History, run: &Run) -> bool {
    let end_ms = history.civil_ms(history.ended_ns()).saturating_add_unsigned(history.header.clock_error_ms);
    let within = history.header.policies.finish_within_ms;
    let deadline_ms = within.map(|within| run.due_unix_ms.saturating_add_unsigned(within));
    let own = run.instant();
    let mut later = history.due.range(own..).map(|(instant, _)| *instant);
    let next = later.find(|instant| instant.due_unix_ms > own.due_unix_ms);
    let next = next.filter(|next| (next.tenant, next.schedule) == (own.tenant, own.schedule));
    let next_ms = next.map(|next| next.due_unix_ms);
    let at_least = history.header.policies.finish_at_least_ms;
    let had_time_ms =
        run.opened_unix_ms.saturating_add_unsigned(within.map_or(at_least, |within| at_least.min(within)));
    deadline_ms.into_iter().chain(next_ms).any(|over_ms| over_ms.max(had_time_ms) <= end_ms)
}

/// Returns true if the relay refused the email for good or broke the dialogue, by a step in the ledger, or if it
/// refused the email after the policy sent it again, which counts as an attempt. Without a step the sink's record
/// counts.
fn was_refused(history: &History, item: Item) -> bool {
    let outcomes = of_item(&history.outcomes, item);
    let mut refusals = outcomes.iter().filter(|outcome| outcome.kind == OutcomeKind::Refused).peekable();
    if refusals.peek().is_none() {
        let is_refused = |handoff: &Handoff| matches!(handoff.answer, Answered::Refused | Answered::Malformed);
        return of_item(&history.handoffs, item).iter().any(is_refused);
    }
    refusals.any(|refusal| refusal.code.is_none_or(|code| code >= 500))
        || outcomes.iter().any(|outcome| outcome.kind == OutcomeKind::Resent(Decider::Policy))
}

/// Returns true if at least two processes crashed while they owned a claim of this recipient, and each of these claims
/// was released. Composing the email may have killed the processes (P12).
fn killed_its_owners(history: &History, item: Item) -> bool {
    let claims = of_item(&history.claims, item);
    let mut crashes = 0_u32;
    for (position, claim) in claims.iter().enumerate() {
        let next_index = claims.get(position + 1).map_or(u64::MAX, |next| next.fence.index);
        // The ledger may report releases of one claim as one, at an index above the next claim.
        let is_of = |outcome: &Outcome| match outcome.fence {
            Some(fence) => fence == claim.fence,
            None => (claim.fence.index..next_index).contains(&outcome.index),
        };
        let mut outcomes = of_item(&history.outcomes, item).iter();
        let is_released = outcomes.any(|outcome| outcome.kind == OutcomeKind::Released && is_of(outcome));
        crashes += u32::from(is_released && owner_crashed(history, claim));
    }
    crashes > 1
}

/// Returns true if the process that owned this claim crashed. A process that was stopped in order released its claims.
fn owner_crashed(history: &History, claim: &Claim) -> bool {
    history.lifetimes.iter().filter(|lifetime| claim.node == lifetime.node).any(|lifetime| {
        lifetime.incarnation == Some(claim.incarnation)
            && lifetime.ended_ns.is_some()
            && lifetime.end != Some(LifetimeEnd::Stopped)
    })
}
