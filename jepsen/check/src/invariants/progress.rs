//! The second half of I17: while a majority of the nodes is up and nothing is disturbed, and recipients wait that could be
//! sent to, an email arrives at the sink within the bound; and each recipient that is claimed is begun, or given back.
//!
//! The bound is the sum of what the rules allow after the last strike: a leader within ten seconds (`availability.rs`), a
//! lease and a margin until the claims of a dead node are given up (P9), and [`CLAIM_TO_EMAIL_NS`]. A crash back-off (P12)
//! needs no more: of nodes that all rest one keeps an eighth of its cap, so something is claimed. The clock starts again
//! where a process starts or ends, a leadership begins, or a fault begins or ends. It stands while a fault lasts, and after
//! a fault of the relay until the first accepted email, but no longer than the circuits may stay open.
//!
//! Recipients count as waiting where nothing else can have held them back: of a run that opened and that no operator and
//! no guard paused, which is not under a warm-up cap or a `min_gap`, they were claimed once, and were sent at once or not
//! at all.
//!
//! A claim needs no such excuse. Whatever keeps a recipient from its relay (a pause, a rate, a circuit, a want of sessions),
//! its node gives it back within ten seconds (P12). Only a broken relay may hold up a dialogue, for a minute.

use super::limits;
use super::majority::{Interval, in_force, rest_of};
use crate::history::{Answered, Fault, FaultKind, Operation, RecipientState, Run, Step, Target};
use crate::history_index::{Grant, HistoryIndex, Item, entries_of_item, entries_of_run};
use crate::time::MS;
use crate::verdict::Findings;

/// From a leader that may claim to the email: the question for a lease (each second), the claim, its commit, a session, the
/// dialogue; on a busy machine.
const CLAIM_TO_EMAIL_NS: u64 = 5_000 * MS;
/// An open circuit is tried again after as long as the relay failed, at most, and this.
const CIRCUIT_NS: u64 = 10_000 * MS;
/// A recipient that has no session so long after its claim is given back (P12).
const SESSION_WITHIN_NS: u64 = 10_000 * MS;
/// A dialogue that a relay holds up before DATA ends after this.
const PREPARED_WITHIN_NS: u64 = 60_000 * MS;

/// Judges it over these intervals with a majority; a leader has to be there within the first bound.
pub fn sends(history: &HistoryIndex, majorities: &[Interval], led_within_ns: u64, findings: &mut Findings) {
    let bound_ns = led_within_ns + (history.header.lease_ms + history.header.margin_ms) * MS + CLAIM_TO_EMAIL_NS;
    let mut emails: Vec<u64> = history.accepts().map(|handoff| handoff.at_ns).collect();
    emails.sort_unstable();
    let waiting = waiting(history);
    let quiet = quiet(history, majorities, &emails);
    begins(history, &quiet, bound_ns + SESSION_WITHIN_NS, findings);
    for (from_ns, until_ns) in quiet {
        for (first, last) in &waiting {
            let (first, last) = (from_ns.max(*first), until_ns.min(*last));
            let own = emails.partition_point(|at_ns| *at_ns < first)..emails.partition_point(|at_ns| *at_ns < last);
            let ends = emails.get(own).unwrap_or_default().iter().copied().chain([last]);
            let mut since = first;
            for at_ns in ends {
                let silent = at_ns.saturating_sub(since);
                if silent > bound_ns {
                    let (since, silent) = (since as f64 / 1e9, silent as f64 / 1e9);
                    findings.violation(|| {
                        format!("from {since:.3} s on nothing was broken, recipients waited, and no email came for {silent:.3} s")
                    });
                }
                since = at_ns;
            }
        }
    }
}

/// No recipient stays claimed for longer than this without a hand-off, or an entry that gives it back.
fn begins(history: &HistoryIndex, quiet: &[Interval], within_ns: u64, findings: &mut Findings) {
    let relay = history.faults.iter().filter(|fault| fault.kind == FaultKind::Relay && fault.may_have_struck());
    let over_ns = |fault: &Fault| fault.over_ns().saturating_add(PREPARED_WITHIN_NS);
    // Sorted by their beginnings.
    let held_up: Vec<Interval> = relay.map(|fault| (fault.from_ns, over_ns(fault))).collect();
    let quiet: Vec<Interval> = quiet.iter().flat_map(|interval| rest_of(*interval, &held_up)).collect();
    let quiet: Vec<Interval> = quiet.into_iter().filter(|(first, last)| last - first > within_ns).collect();
    for grant in &history.grants {
        let Some((from_ns, until_ns)) = unbegun(history, grant) else { continue };
        let held = quiet.iter().map(|(first, last)| (*last).min(until_ns).saturating_sub((*first).max(from_ns)));
        let held_ns = held.max().unwrap_or(0);
        if held_ns > within_ns {
            let (who, held) = (history.describe(grant.item), held_ns as f64 / 1e9);
            let (node, fence) = (history.names.text(grant.node), grant.fence);
            findings.violation(|| {
                format!("{who} was claimed by {node} under {fence}, and not begun for {held:.3} s in which nothing was broken")
            });
        }
    }
}

/// From a claim to the DATA of its email, or the entry that ended it; None where one of these has no instant.
fn unbegun(history: &HistoryIndex, grant: &Grant) -> Option<Interval> {
    let Grant { item, fence, .. } = *grant;
    let error_ns = history.header.clock_error_ms.saturating_mul(MS);
    let claimed = |grant: &Grant| grant.committed_ns.or(grant.proposed_ns.map(|at_ns| at_ns + error_ns));
    let begun = entries_of_item(&history.handoffs, item)
        .iter()
        .filter(|handoff| handoff.fence == Some(fence))
        .map(|handoff| handoff.data_ns);
    // Sorted by fence and by log index.
    let next = entries_of_item(&history.grants, item).iter().find(|next| next.fence > fence);
    let over_ns = match entries_of_item(&history.outcomes, item).iter().find(|outcome| outcome.index > fence.index) {
        Some(outcome) => outcome.proposed_ns.map(|at_ns| at_ns.saturating_sub(error_ns)),
        None => (history.final_state(item) == Some(RecipientState::Claimed)).then(|| history.ended_ns()),
    };
    let next_ns = next.map(|next| claimed(next).unwrap_or(0));
    Some((claimed(grant)?, begun.chain(next_ns).chain([over_ns?]).min()?))
}

/// Intervals with a majority in which no process, leadership or fault begins or ends, and no fault lasts.
fn quiet(history: &HistoryIndex, majorities: &[Interval], emails: &[u64]) -> Vec<Interval> {
    let mut breaks: Vec<Interval> = Vec::new();
    let starts = history.lifetimes.iter().flat_map(|lifetime| [Some(lifetime.started_ns), lifetime.ended_ns]).flatten();
    let epochs = history.epochs.iter().map(|epoch| epoch.at_ns);
    breaks.extend(starts.chain(epochs).map(|at_ns| (at_ns, at_ns)));
    let faults = history.faults.iter().filter(|fault| fault.may_have_struck());
    for fault in faults.clone().filter(|fault| !matches!(fault.kind, FaultKind::Relay | FaultKind::Operator)) {
        let (from_ns, until_ns) = in_force(history, fault);
        // What a node that never comes back leaves undone others do.
        breaks.push((from_ns, if until_ns == u64::MAX { from_ns } else { until_ns }));
    }
    breaks.extend(relay_disturbed(faults.filter(|fault| fault.kind == FaultKind::Relay), emails));
    breaks.sort_unstable();
    let mut quiet = Vec::new();
    for (mut from_ns, until_ns) in majorities.iter().map(|(from, until)| (*from, (*until).min(history.ended_ns()))) {
        for (first, last) in &breaks {
            if from_ns < *first && *first < until_ns {
                quiet.push((from_ns, *first));
            }
            if *first < until_ns {
                from_ns = from_ns.max(*last);
            }
        }
        if from_ns < until_ns {
            quiet.push((from_ns, until_ns));
        }
    }
    quiet
}

/// While the relay is broken, and until its circuits are closed again.
fn relay_disturbed<'a>(faults: impl Iterator<Item = &'a Fault>, emails: &[u64]) -> Vec<Interval> {
    let mut disturbed: Vec<Interval> = Vec::new();
    let mut struck: Vec<Interval> = faults.map(|fault| (fault.from_ns, fault.over_ns())).collect();
    struck.sort_unstable();
    for (from_ns, until_ns) in struck {
        // Where no email came between two faults, the circuits know of no end of the first.
        let from_ns = match disturbed.last() {
            Some((former, over)) if from_ns <= *over => *former,
            _ => from_ns,
        };
        let first_email = emails.get(emails.partition_point(|at_ns| *at_ns <= until_ns)).copied();
        let closed = until_ns.saturating_add(until_ns - from_ns).saturating_add(CIRCUIT_NS);
        disturbed.push((from_ns, first_email.map_or(closed, |at_ns| at_ns.min(closed))));
    }
    disturbed
}

/// When there were recipients that nothing but the product kept waiting; sorted, and none touches the next.
fn waiting(history: &HistoryIndex) -> Vec<Interval> {
    let of_run = |run: &Run| {
        let name = history.names.find(&run.run)?;
        let own = entries_of_run(&history.final_states, name).iter();
        let last_ns = own.filter_map(|item_state| waited_until(history, item_state.item, item_state.state)).max()?;
        let opened_ns = history.ns_of(run.opened_unix_ms.saturating_add_unsigned(history.header.clock_error_ms));
        (opened_ns < last_ns).then_some((opened_ns, last_ns))
    };
    let mut each: Vec<Interval> =
        history.runs.values().filter(|run| may_go_on(history, run)).filter_map(of_run).collect();
    each.sort_unstable();
    let mut waiting: Vec<Interval> = Vec::new();
    for (first, last) in each {
        match waiting.last_mut() {
            Some((_, until)) if first <= *until => *until = last.max(*until),
            _ => waiting.push((first, last)),
        }
    }
    waiting
}

/// Until when a recipient waited: for its email, or to the end. None where a refusal, a doubt or a loss came between.
fn waited_until(history: &HistoryIndex, item: Item, state: RecipientState) -> Option<u64> {
    let handoffs = entries_of_item(&history.handoffs, item);
    let is_plain = entries_of_item(&history.outcomes, item).iter().all(|outcome| outcome.step == Step::Sent);
    match (state, entries_of_item(&history.grants, item).len(), handoffs) {
        (RecipientState::Sent, 1, [handoff]) if is_plain && handoff.answer == Answered::Accepted => Some(handoff.at_ns),
        (RecipientState::Pending, 0, []) if is_plain => Some(history.ended_ns()),
        _ => None,
    }
}

/// Nothing that was asked for can have kept the run back.
fn may_go_on(history: &HistoryIndex, run: &Run) -> bool {
    let pauses = |operation: &Operation| match operation {
        Operation::Pause { target: Target::Run(of) } => *of == run.run,
        Operation::Pause { target: Target::Schedule { tenant, schedule } } => {
            (tenant, schedule) == (&run.tenant, &run.schedule)
        }
        _ => false,
    };
    let mut asked = history.calls.iter().filter(|call| call.may_be_done());
    !history.paused.contains(&run.run)
        && !limits::holds_back(history, run)
        && !asked.any(|call| pauses(&call.operation))
}
