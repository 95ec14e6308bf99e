//! I4: at the deadline after healing, each due recipient is in a final state or in doubt, with a cause if it got no
//! email, and every due instant opened a run or is explained. I13: when a quorum is healed, the backlog drains, and no
//! run stays paused without a reason.
//!
//! Due instants are the [`Due`](crate::events::Due) events, which no part of the product writes.

use std::collections::BTreeMap;

use super::ends;
use crate::events::{Answer, Call, Explained, Operation, OutcomeKind, PassedOver, RecipientState, Run, Target};
use crate::history::{History, Instant, Item, of_run};
use crate::names::Name;
use crate::time::MS;
use crate::verdict::Findings;

/// I4: nothing due is lost.
pub fn nothing_lost(history: &History, findings: &mut Findings) {
    if !history.is_whole() {
        return;
    }
    let by_instant = runs_by_instant(history);
    for (instant, audience) in &history.due {
        match by_instant.get(instant) {
            Some(runs) => runs.iter().for_each(|run| report_recipients(history, run, *audience, findings)),
            None if is_explained(history, instant) => {}
            None => findings.violation(|| format!("{instant} neither opened nor is it explained")),
        }
    }
    for ((tenant, schedule), ranges) in &history.explained {
        let instant = |due_unix_ms| Instant { tenant: *tenant, schedule: *schedule, due_unix_ms };
        for Explained { first_unix_ms, last_unix_ms, count, .. } in ranges {
            let first = instant(*first_unix_ms);
            let covered = history.due.range(first..=instant(*last_unix_ms.max(first_unix_ms)));
            let unopened = covered.filter(|(instant, _)| !by_instant.contains_key(instant)).count() as u64;
            if unopened > *count {
                findings.violation(|| format!("from {first} on {unopened} did not open, and {count} are explained"));
            }
        }
    }
    for (run, audience) in triggered(history) {
        match history.runs.get(&run) {
            Some(run) => report_recipients(history, run, audience, findings),
            None => findings.violation(|| format!("a trigger returned {run}, and there is no such run")),
        }
    }
}

/// Checks that each recipient of a due run has a final state with a cause.
fn report_recipients(history: &History, run: &Run, audience: Name, findings: &mut Findings) {
    let Some(recipients) = history.audiences.get(&audience) else {
        return findings.missing(format!("the audience {audience}"));
    };
    let over = deadline_ns(history).is_some_and(|deadline| deadline <= history.ended_ns());
    for recipient in recipients {
        let item = Item { run: run.run, recipient: *recipient };
        match history.final_state(item) {
            None => findings.violation(|| format!("{item} was due and has no final state")),
            Some(state @ (RecipientState::Pending | RecipientState::Claimed)) if over => {
                findings.violation(|| format!("{item} is still {state:?} after the deadline"));
            }
            Some(RecipientState::Pending | RecipientState::Claimed) => {
                findings.missing("the final states of pending recipients: the history ends before the deadline");
            }
            Some(state) if ends::has_cause(history, item, state) => {}
            Some(state) => findings.violation(|| format!("{item} is {state:?}, and nothing made it so")),
        }
    }
}

/// Returns the number of lost items: items that are due, not accepted, not in doubt, and in no final state with a
/// cause.
pub fn lost(history: &History) -> u64 {
    let mut lost = 0;
    for (run, recipients) in due_runs(history) {
        let is_gone = |recipient: Name| run.is_none_or(|run| is_lost(history, Item { run, recipient }));
        lost += recipients.iter().filter(|recipient| is_gone(**recipient)).count() as u64;
    }
    lost
}

fn is_lost(history: &History, item: Item) -> bool {
    let ends = |state| {
        let is_end = !matches!(state, RecipientState::Pending | RecipientState::Claimed | RecipientState::Sent);
        is_end && ends::has_cause(history, item, state)
    };
    !history.arrived(item) && !history.final_state(item).is_some_and(ends)
}

/// Returns the number of due items.
pub fn expected(history: &History) -> u64 {
    due_runs(history).iter().map(|(_, recipients)| recipients.len() as u64).sum()
}

/// Returns the recipients of each instant that opened or is not explained, and of each trigger, with the run if there
/// is one.
fn due_runs(history: &History) -> Vec<(Option<Name>, &[Name])> {
    let by_instant = runs_by_instant(history);
    let mut due = Vec::new();
    for (instant, audience) in &history.due {
        match by_instant.get(instant).and_then(|runs| runs.first()) {
            Some(run) => due.push((Some(run.run), recipients(history, *audience))),
            None if is_explained(history, instant) => {}
            None => due.push((None, recipients(history, *audience))),
        }
    }
    due.extend(triggered(history).map(|(run, audience)| (Some(run), recipients(history, audience))));
    due
}

/// Returns the recipients of an audience. Empty: the audience was not recorded.
fn recipients(history: &History, audience: Name) -> &[Name] {
    history.audiences.get(&audience).map_or(&[][..], Vec::as_slice)
}

/// Returns the runs by instant, without triggered runs.
pub fn runs_by_instant(history: &History) -> BTreeMap<Instant, Vec<&Run>> {
    let mut by_instant: BTreeMap<Instant, Vec<&Run>> = BTreeMap::new();
    let own = history.runs.values().filter(|run| !run.cause.is_asked_for());
    for run in own {
        by_instant.entry(run.instant()).or_default().push(run);
    }
    by_instant
}

/// What a trigger or message is named by: it opens one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("trigger {} of {tenant}/{schedule}", request_id.unwrap_or_default())]
pub struct TriggerName {
    tenant: Name,
    /// The schedule, or the key of a message.
    schedule: Name,
    request_id: Option<Name>,
}

impl TriggerName {
    /// Returns the name of the trigger that opened a run.
    pub fn of(run: &Run) -> TriggerName {
        TriggerName { tenant: run.tenant, schedule: run.schedule, request_id: run.request_id }
    }
}

/// Returns the audience of each trigger that was, or may have been, executed.
pub fn asked_audiences(history: &History) -> BTreeMap<TriggerName, Name> {
    let asked = history.possible_calls().filter_map(|call| {
        let Operation::Trigger { tenant, schedule, audience } = &call.operation else { return None };
        let request_id = call.request_id.as_ref().map(Name::from);
        Some((TriggerName { tenant: tenant.into(), schedule: schedule.into(), request_id }, audience.into()))
    });
    asked.collect()
}

/// Returns the runs of triggers, also of those without an answer, and the runs that answers to triggers name, with
/// their audiences.
pub fn triggered(history: &History) -> impl Iterator<Item = (Name, Name)> {
    let audiences = asked_audiences(history);
    let asked_for = history.runs.values().filter(|run| run.cause.is_asked_for());
    let mut runs: BTreeMap<Name, Name> =
        asked_for.filter_map(|run| Some((run.run, *audiences.get(&TriggerName::of(run))?))).collect();
    for call in &history.calls {
        if let (Operation::Trigger { audience, .. }, Answer::Ok { run: Some(run), .. }) =
            (&call.operation, &call.answer)
        {
            runs.insert(run.into(), audience.into());
        }
    }
    runs.into_iter()
}

/// Returns true if the ledger explains why this instant did not open.
pub fn is_explained(history: &History, instant: &Instant) -> bool {
    explanation(history, instant).is_some_and(|explained| explained.outcome != PassedOver::Waiting)
}

/// Returns the ledger's explanation of an instant that did not open.
pub fn explanation<'a>(history: &'a History, instant: &Instant) -> Option<&'a Explained> {
    let ranges = history.explained.get(&(instant.tenant, instant.schedule))?;
    ranges.iter().find(|range| (range.first_unix_ms..=range.last_unix_ms).contains(&instant.due_unix_ms))
}

/// Returns the deadline for draining: after the last healing, or after the beginning if there were no faults.
fn deadline_ns(history: &History) -> Option<u64> {
    let from = if history.faults_from_ns.is_some() { history.healed_ns? } else { history.healed_ns.unwrap_or(0) };
    Some(from.saturating_add(history.header.drain_within_ms.saturating_mul(MS)))
}

/// I13: the backlog drains after healing.
pub fn drains(history: &History, findings: &mut Findings) {
    match (deadline_ns(history), history.drained_ns) {
        _ if history.ended.is_none() => findings.missing("the end of the history"),
        (None, _) => findings.missing("a healing"),
        (Some(deadline), Some(drained)) if drained <= deadline => {}
        (Some(deadline), Some(drained)) => {
            let late = (drained - deadline) as f64 / 1e9;
            findings.violation(|| format!("the backlog drained {late:.3} s after the deadline"));
        }
        (Some(deadline), None) if deadline <= history.ended_ns() => {
            findings.violation(|| "the backlog never drained".to_owned());
        }
        (Some(_), None) => findings.missing("the draining: the history ends before the deadline"),
    }
    // Whether a guard had a reason is in the outcomes.
    let is_whole = history.is_whole();
    for run in history.paused.iter().filter(|run| is_whole && !may_be_paused(history, **run)) {
        findings.violation(|| format!("{run} is paused, and nothing in the history pauses it"));
    }
}

/// Time in which no try of a call ends without an answer. A call that took longer may have a former try that is executed
/// after its answer.
const ONE_TRY_NS: u64 = 5_000 * MS;

/// Returns true if an operator may have paused the run, and no later resumption was answered before the run was seen
/// paused, or if a guard may have paused it because relays refused its emails (P6).
fn may_be_paused(history: &History, run: Name) -> bool {
    let is_own = |target: &Target| matches!(target, Target::Run(name) if run == *name);
    let was_resumed = |pause: &Call| {
        let is_one_try = pause.answered_ns.is_some_and(|at_ns| at_ns - pause.invoked_ns < ONE_TRY_NS);
        let mut calls = history.calls.iter();
        is_one_try
            && calls.any(|call| {
                matches!(&call.operation, Operation::Resume { target } if is_own(target))
                    && call.answered_ns < history.healed_ns
                    && is_after(call, pause)
            })
    };
    let mut calls = history.possible_calls();
    calls.any(|call| matches!(&call.operation, Operation::Pause { target } if is_own(target)) && !was_resumed(call))
        || of_run(&history.outcomes, run).iter().any(|outcome| outcome.kind == OutcomeKind::Refused)
}

/// Returns true if `call` was executed after `earlier`, by their log indices, or by their times if one is unknown.
fn is_after(call: &Call, earlier: &Call) -> bool {
    match (&call.answer, &earlier.answer) {
        (Answer::Ok { index: Some(own), .. }, Answer::Ok { index: Some(at), .. }) => own > at,
        (Answer::Ok { .. }, Answer::Ok { .. }) => earlier.answered_ns.is_some_and(|at_ns| at_ns < call.invoked_ns),
        _ => false,
    }
}
