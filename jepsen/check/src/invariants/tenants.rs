//! I12: one tenant's overload does not delay the start of another tenant's run beyond a bound. A run starts with its
//! first claim, if that has a time, or its first handoff at the sink.

use std::collections::HashMap;

use super::{limits, occurrences};
use crate::events::{Call, Operation, RecipientState, Run, RunCause, Target};
use crate::history::{History, of_run};
use crate::names::Name;
use crate::time::seconds;
use crate::verdict::Findings;

/// I12: tenants do not delay each other.
pub fn apart(history: &History, findings: &mut Findings) {
    let Some(bound) = history.header.start_bound_ms else {
        findings.missing("a bound");
        return;
    };
    let first = starts(history);
    let mut judged = 0_u32;
    for (name, run) in history.runs.iter().filter(|(_, run)| run.cause == RunCause::Due) {
        let beside = history.overloads.iter().any(|overload| {
            let during = history.civil_ms(overload.from_ns)..=history.civil_ms(overload.until_ns);
            run.tenant != overload.tenant && during.contains(&run.due_unix_ms)
        });
        let overloaded_itself = history.overloads.iter().any(|overload| run.tenant == overload.tenant);
        let waits = limits::holds_back(history, run);
        if !beside || overloaded_itself || waits || wants_no_mail(history, *name) || may_be_paused(history, run) {
            continue;
        }
        // A run without a claim is late by the whole time until the end.
        let first_ns = first.get(name).copied();
        if first_ns.is_none() && !of_run(&history.claims, *name).is_empty() {
            // The claims of the run have no times, and their owners ended before the first handoff.
            continue;
        }
        judged += 1;
        let (due, outcome) = (run.due_unix_ms, history.civil_ms(first_ns.unwrap_or(history.ended_ns())));
        let (late, bound) = (outcome.saturating_sub(due), i64::try_from(bound).unwrap_or(i64::MAX));
        if late > bound && history.unhindered_ms(due, outcome) > bound {
            let (run, tenant, late) = (&run.run, &run.tenant, seconds(late));
            let how = if first_ns.is_some() { "began" } else { "had not begun" };
            findings.violation(|| format!("{run} of {tenant} {how} {late} after its instant"));
        }
    }
    if judged == 0 {
        findings.missing("a run of one tenant beside the overload of another");
    }
}

fn starts(history: &History) -> HashMap<Name, u64> {
    let by_handoffs = history.handoffs.iter().map(|handoff| (handoff.run, handoff.at_ns));
    let by_claims = history.claims.iter().filter_map(|claim| Some((claim.run, claim.committed_ns?)));
    let mut first: HashMap<Name, u64> = HashMap::new();
    for (run, at_ns) in by_handoffs.chain(by_claims) {
        first.entry(run).and_modify(|first_ns| *first_ns = at_ns.min(*first_ns)).or_insert(at_ns);
    }
    first
}

/// Returns true if the run, or its schedule at its instant, was or may have been paused. Then the run starts when it is
/// resumed.
fn may_be_paused(history: &History, run: &Run) -> bool {
    let pauses =
        |call: &Call| matches!(&call.operation, Operation::Pause { target: Target::Run(name) } if run.run == *name);
    occurrences::was_stopped(history, &run.tenant, &run.schedule, run.due_unix_ms, run.opened_unix_ms)
        || history.possible_calls().any(pauses)
}

/// Returns true if no recipient of the run was to get an email: all opted out, or the run was cancelled.
fn wants_no_mail(history: &History, run: Name) -> bool {
    let own = of_run(&history.final_states, run);
    !own.is_empty()
        && own
            .iter()
            .all(|item_state| matches!(item_state.state, RecipientState::Suppressed | RecipientState::Cancelled))
}
