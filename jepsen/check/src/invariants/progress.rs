//! The second half of I17: while a majority of the nodes is up and undisturbed and recipients wait, an email arrives at
//! the sink within the bound, and each claimed recipient is handed off or released.
//!
//! The bound is the sum of the times that the rules allow after a disturbance: a leader within ten seconds
//! (`availability.rs`), a lease and a margin until the claims of an ended process are revoked (P9), and
//! [`CLAIM_TO_EMAIL_NS`]. A crash back-off (P12) adds nothing: one of the nodes always keeps an eighth of its cap. The
//! time restarts when a process starts or ends, a leadership begins, or a fault begins or ends. It does not count
//! during a fault, and after a fault of the relay until the first accepted email or until its circuits must have
//! closed.
//!
//! A recipient counts as waiting if nothing but the product can have delayed it: its run opened, was not paused, and
//! has no warm-up cap or `min_gap`; the recipient was claimed once, and was sent to at the first attempt or not at all.
//!
//! Every claim is judged: whatever keeps a recipient from its relay (a pause, a rate, a circuit, too few sessions), its
//! node releases it within ten seconds (P12). Only a faulty relay may delay a dialogue, for a minute.

use super::limits;
use super::majority::{Interval, in_force, rest_of};
use crate::events::{Answered, Call, Claim, Fault, FaultKind, Operation, OutcomeKind, RecipientState, Run};
use crate::history::{HasItem, History, Item, of_item, of_run};
use crate::time::{LEASE_MS, MS};
use crate::verdict::Findings;

/// Time from a leader that may claim to an email, on a busy machine: lease request (each second), claim, commit,
/// session and dialogue.
const CLAIM_TO_EMAIL_NS: u64 = 5_000 * MS;
/// Maximum time, in addition to the length of the relay's failure, after which an open circuit is tried again.
const CIRCUIT_NS: u64 = 10_000 * MS;
/// Time after its claim at which a recipient without a session is released (P12).
const SESSION_WITHIN_NS: u64 = 10_000 * MS;
/// Time after which a dialogue that the relay delays before DATA ends.
const PREPARED_WITHIN_NS: u64 = 60_000 * MS;

/// Reports violations within these intervals with a majority, in which a leader must exist within `led_within_ns`.
pub fn report_silence(history: &History, majorities: &[Interval], led_within_ns: u64, findings: &mut Findings) {
    let bound_ns = led_within_ns + LEASE_MS * MS + CLAIM_TO_EMAIL_NS;
    let mut emails: Vec<u64> = history.accepts().map(|handoff| handoff.at_ns).collect();
    emails.sort_unstable();
    let waiting = waiting(history);
    let quiet = quiet(history, majorities, &emails);
    report_unbegun_claims(history, &quiet, bound_ns + SESSION_WITHIN_NS, findings);
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

/// Reports recipients that stay claimed for more than `within_ns` of a quiet interval, without a handoff and without an
/// entry that releases them.
fn report_unbegun_claims(history: &History, quiet: &[Interval], within_ns: u64, findings: &mut Findings) {
    let over_ns = |fault: &Fault| fault.over_ns().saturating_add(PREPARED_WITHIN_NS);
    // The faults are sorted by their beginnings.
    let relay_faults: Vec<Interval> =
        history.possible_faults_of(FaultKind::Relay).map(|fault| (fault.from_ns, over_ns(fault))).collect();
    let quiet: Vec<Interval> = quiet.iter().flat_map(|interval| rest_of(*interval, &relay_faults)).collect();
    let quiet: Vec<Interval> = quiet.into_iter().filter(|(first, last)| last - first > within_ns).collect();
    for claim in &history.claims {
        let Some((from_ns, until_ns)) = unbegun(history, claim) else { continue };
        let held = quiet.iter().map(|(first, last)| (*last).min(until_ns).saturating_sub((*first).max(from_ns)));
        let held_ns = held.max().unwrap_or(0);
        if held_ns > within_ns {
            let (recipient, held) = (claim.item(), held_ns as f64 / 1e9);
            let (node, fence) = (claim.node, claim.fence);
            findings.violation(|| {
                format!("{recipient} was claimed by {node} under {fence}, and not begun for {held:.3} s in which nothing was broken")
            });
        }
    }
}

/// Returns the interval from a claim to the DATA of its email, or to the entry that ended the claim. `None`: one of
/// these has no time.
fn unbegun(history: &History, claim: &Claim) -> Option<Interval> {
    let (item, fence) = (claim.item(), claim.fence);
    let error_ns = history.header.clock_error_ms.saturating_mul(MS);
    let claimed = |claim: &Claim| claim.committed_ns.or(claim.proposed_ns.map(|at_ns| at_ns + error_ns));
    let begun = of_item(&history.handoffs, item)
        .iter()
        .filter(|handoff| handoff.fence == Some(fence))
        .map(|handoff| handoff.data_ns);
    // Claims are sorted by fence, and outcomes by log index.
    let next = of_item(&history.claims, item).iter().find(|next| next.fence > fence);
    let over_ns = match history.outcome_of(item, fence) {
        Some(outcome) => outcome.proposed_ns.map(|at_ns| at_ns.saturating_sub(error_ns)),
        None => (history.final_state(item) == Some(RecipientState::Claimed)).then(|| history.ended_ns()),
    };
    let next_ns = next.map(|next| claimed(next).unwrap_or(0));
    Some((claimed(claim)?, begun.chain(next_ns).chain([over_ns?]).min()?))
}

/// Returns the intervals with a majority in which no process, leadership or fault begins or ends, and no fault is in
/// force.
fn quiet(history: &History, majorities: &[Interval], emails: &[u64]) -> Vec<Interval> {
    let mut breaks: Vec<Interval> = Vec::new();
    let starts = history.lifetimes.iter().flat_map(|lifetime| [Some(lifetime.started_ns), lifetime.ended_ns]).flatten();
    let epochs = history.epochs.iter().map(|epoch| epoch.at_ns);
    breaks.extend(starts.chain(epochs).map(|at_ns| (at_ns, at_ns)));
    for fault in history.possible_faults() {
        if matches!(fault.kind, FaultKind::Relay | FaultKind::Operator | FaultKind::Rotation | FaultKind::Backup) {
            continue;
        }
        let (from_ns, until_ns) = in_force(history, fault);
        // Other nodes take over the work of a node that never restarts.
        breaks.push((from_ns, if until_ns == u64::MAX { from_ns } else { until_ns }));
    }
    breaks.extend(relay_disturbed(history, emails));
    breaks.sort_unstable();
    let until_end = majorities.iter().map(|(from_ns, until_ns)| (*from_ns, (*until_ns).min(history.ended_ns())));
    until_end.flat_map(|majority| rest_of(majority, &breaks)).collect()
}

/// Returns the intervals in which the relay has a fault, until its circuits are closed again.
fn relay_disturbed(history: &History, emails: &[u64]) -> Vec<Interval> {
    let mut disturbed: Vec<Interval> = Vec::new();
    let faults = history.possible_faults_of(FaultKind::Relay);
    let mut faulty: Vec<Interval> = faults.map(|fault| (fault.from_ns, fault.over_ns())).collect();
    faulty.sort_unstable();
    for (from_ns, until_ns) in faulty {
        // Without an email between two faults, the circuits treat them as one fault.
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

/// Returns the intervals in which recipients waited that only the product can have delayed, sorted and disjoint.
fn waiting(history: &History) -> Vec<Interval> {
    let interval = |run: &Run| {
        let own = of_run(&history.final_states, run.run).iter();
        let last_ns = own.filter_map(|item_state| waited_until(history, item_state.item(), item_state.state)).max()?;
        // A message opens before its send time.
        let from_ms = run.opened_unix_ms.max(run.due_unix_ms);
        let opened_ns = history.ns_of(from_ms.saturating_add_unsigned(history.header.clock_error_ms));
        (opened_ns < last_ns).then_some((opened_ns, last_ns))
    };
    let mut each: Vec<Interval> =
        history.runs.values().filter(|run| may_go_on(history, run)).filter_map(interval).collect();
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

/// Returns the time at which a recipient stopped waiting: at its email or at the end. `None`: a refusal, a doubt or a
/// release came between.
fn waited_until(history: &History, item: Item, state: RecipientState) -> Option<u64> {
    let handoffs = of_item(&history.handoffs, item);
    let is_plain = of_item(&history.outcomes, item).iter().all(|outcome| outcome.kind == OutcomeKind::Sent);
    match (state, of_item(&history.claims, item).len(), handoffs) {
        (RecipientState::Sent, 1, [handoff]) if is_plain && handoff.answer == Answered::Accepted => Some(handoff.at_ns),
        (RecipientState::Pending, 0, []) if is_plain => Some(history.ended_ns()),
        _ => None,
    }
}

/// Returns true if no pause, guard or limit can have delayed the run.
fn may_go_on(history: &History, run: &Run) -> bool {
    let pauses = |call: &Call| matches!(&call.operation, Operation::Pause { target } if run.is_in(target));
    !history.paused.contains(&run.run) && !limits::holds_back(history, run) && !history.possible_calls().any(pauses)
}
