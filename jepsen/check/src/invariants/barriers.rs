//! I6: after the answer to an opt-out no handoff passes a gate. A later accept is allowed only if the answer named the
//! handoff as crossed, or if it has an earlier claim of a node that the answer named as unconfirmed. I8: after the
//! answer to a pause or cancel there is no later claim, and no later run of a paused schedule. Later accepts are judged
//! as for I6.
//!
//! The test measures the instants: the arrival of the answer, and the time at which the sink read the final dot.

use std::collections::HashMap;

use crate::events::{Answer, Answered, Call, Claim, Crossing, Handoff, Operation, Run, RunCause, Target};
use crate::history::{HasItem, History, Item, of_item, of_run};
use crate::names::Name;
use crate::verdict::Findings;

/// An answered opt-out, pause or cancel.
struct Barrier<'a> {
    /// Time at which the answer arrived.
    answered_ns: u64,
    /// Time at which a client first tried to undo the operation.
    lifted_ns: u64,
    /// Log index of the operation. `None`: unknown.
    index: Option<u64>,
    crossed: &'a [Crossing],
    unconfirmed: &'a [String],
}

impl<'a> Barrier<'a> {
    /// Returns the barrier of a call. `None`: the call failed, or its result is unknown.
    fn of(call: &'a Call, lifted_ns: Option<u64>) -> Option<Barrier<'a>> {
        let Answer::Ok { index, crossed, unconfirmed, .. } = &call.answer else { return None };
        let (answered_ns, lifted_ns) = (call.answered_ns?, lifted_ns.unwrap_or(u64::MAX));
        Some(Barrier { answered_ns, lifted_ns, index: *index, crossed, unconfirmed })
    }

    /// Returns true if the barrier forbids this handoff. `None`: it is unknown if the claim was earlier.
    fn forbids(&self, history: &History, handoff: &Handoff) -> Option<bool> {
        // A message without its final dot may not have passed the gate.
        let has_dot = !matches!(handoff.answer, Answered::Cut | Answered::Malformed);
        let within = handoff.at_ns > self.answered_ns && handoff.at_ns < self.lifted_ns && has_dot;
        if !within {
            return Some(false);
        }
        // The gate comes after the answer to DATA (P5), so this handoff had not passed its gate before the barrier's
        // answer.
        if handoff.data_ns > self.answered_ns {
            return Some(true);
        }
        if self.names(history, handoff) {
            return Some(false);
        }
        if !self.unconfirmed.iter().any(|node| handoff.node == *node) {
            return Some(true);
        }
        Some(handoff.fence?.index > self.index?)
    }

    fn names(&self, history: &History, handoff: &Handoff) -> bool {
        self.crossed.iter().any(|crossing| {
            Some(crossing.fence) == handoff.fence
                && handoff.run == crossing.run
                && is_number(history, handoff.item(), crossing.number)
        })
    }
}

/// Returns true if this is the recipient's number, or if the number was not read, because then the fence decides.
fn is_number(history: &History, item: Item, number: u32) -> bool {
    of_item(&history.final_states, item).last().and_then(|item_state| item_state.number).is_none_or(|own| own == number)
}

/// Returns the start of the first call that may have undone `barrier`.
fn lifted_by(history: &History, barrier: &Call, lifts: impl Fn(&Operation) -> bool) -> Option<u64> {
    let mut later = history.calls.iter().filter(|call| lifts(&call.operation) && may_follow(call, barrier));
    later.next().map(|call| call.invoked_ns)
}

/// Returns true if `call` may have taken effect after `earlier`. If both log indices are known, they decide. Otherwise
/// it may have, unless its answer arrived before `earlier` was invoked: calls need not take effect in the order of
/// their invocation, and a call without an answer may take effect later.
pub(super) fn may_follow(call: &Call, earlier: &Call) -> bool {
    match (&call.answer, &earlier.answer) {
        (Answer::Failed { .. }, _) => false,
        (Answer::Ok { index: Some(own), .. }, Answer::Ok { index: Some(at), .. }) => own > at,
        _ => call.answered_ns.is_none_or(|answered_ns| answered_ns > earlier.invoked_ns),
    }
}

/// I6: no gate pass after the answer to an opt-out.
pub fn opted_out(history: &History, findings: &mut Findings) {
    let mut barriers: HashMap<(Name, Name), Vec<Barrier>> = HashMap::new();
    for call in &history.calls {
        let Operation::OptOut { tenant, recipient } = &call.operation else { continue };
        let taken_back = Operation::TakeBack { tenant: tenant.clone(), recipient: recipient.clone() };
        let lifted_ns = lifted_by(history, call, |operation| *operation == taken_back);
        let barrier = Barrier::of(call, lifted_ns);
        barriers.entry((tenant.into(), recipient.into())).or_default().extend(barrier);
    }
    // An email that the relay refused had passed its gate too.
    for handoff in &history.handoffs {
        let Some(run) = history.run_of(handoff.item()) else { continue };
        let forbidding = barriers.get(&(run.tenant, handoff.recipient)).map_or(&[][..], Vec::as_slice);
        report_handoff(history, handoff, forbidding, "the opt-out", findings);
    }
}

/// I8: no claim after a pause or cancel.
pub fn paused_or_cancelled(history: &History, findings: &mut Findings) {
    let mut barriers: HashMap<Name, Vec<Barrier>> = HashMap::new();
    for call in &history.calls {
        let (target, for_good) = match &call.operation {
            Operation::Pause { target } => (target, false),
            Operation::Cancel { target } => (target, true),
            _ => continue,
        };
        let Answer::Ok { index, .. } = &call.answer else { continue };
        let lifted_ns = if for_good { None } else { lifted_by(history, call, |operation| resumes(operation, target)) };
        let Some(index) = *index else {
            findings.missing("the log index of an answer to pause or cancel");
            continue;
        };
        let until = if for_good { Until::default() } else { resumed(history, call, target) };
        let stops = Stop { index, until };
        match target {
            Target::Run(run) => {
                let run = run.into();
                report_claims(history, run, &stops, findings);
                barriers.entry(run).or_default().extend(Barrier::of(call, lifted_ns));
            }
            Target::Schedule { tenant, schedule } => report_runs(history, (tenant, schedule), &stops, findings),
        }
    }
    for handoff in &history.handoffs {
        let forbidding = barriers.get(&handoff.run).map_or(&[][..], Vec::as_slice);
        report_handoff(history, handoff, forbidding, "the pause or cancel", findings);
    }
}

/// The range of log indices in which no claim or run may begin.
struct Stop {
    index: u64,
    until: Until,
}

/// The end of that range.
#[derive(Default)]
struct Until {
    /// The log index of the first later resumption whose index is known.
    index: Option<u64>,
    /// The start of the first later resumption whose index is unknown.
    perhaps_ns: Option<u64>,
}

impl Stop {
    /// Returns true if the stop forbids the entry at this index. If a resumption has no known index, entries are
    /// forbidden until the resumption was requested. `was_there` says if the entry existed before an instant (`None`:
    /// unknown).
    fn holds_at(&self, index: u64, was_there: impl Fn(u64) -> Option<bool>) -> Option<bool> {
        let is_over = self.until.index.is_some_and(|until| until <= index);
        match self.until.perhaps_ns {
            _ if index <= self.index || is_over => Some(false),
            None => Some(true),
            Some(perhaps_ns) => was_there(perhaps_ns),
        }
    }
}

fn resumes(operation: &Operation, target: &Target) -> bool {
    matches!(operation, Operation::Resume { target: resumed } if resumed == target)
}

fn resumed(history: &History, pause: &Call, target: &Target) -> Until {
    let mut until = Until::default();
    for call in &history.calls {
        if !resumes(&call.operation, target) || !may_follow(call, pause) {
            continue;
        }
        match call.answer {
            // The log tells which of several resumptions was the first.
            Answer::Ok { index: Some(index), .. } => {
                until.index = Some(until.index.map_or(index, |first| first.min(index)));
            }
            _ => until.perhaps_ns = until.perhaps_ns.or(Some(call.invoked_ns)),
        }
    }
    // The ledger may record the index of the first resumption, even of a call without an answer. No earlier resumption
    // exists, or it would be recorded too.
    if let (Answer::Ok { index: Some(paused), .. }, Target::Run(run)) = (&pause.answer, target)
        && let run = run.into()
        && let Some((_, first)) = history.resumptions.range((run, paused + 1)..=(run, u64::MAX)).next()
    {
        until = Until { index: Some(until.index.map_or(*first, |index| index.min(*first))), perhaps_ns: None };
    }
    until
}

fn report_claims(history: &History, run: Name, stops: &Stop, findings: &mut Findings) {
    for claim in of_run(&history.claims, run) {
        let (item, fence) = (claim.item(), claim.fence);
        let there_by_ns = there_by(history, claim);
        match stops.holds_at(claim.fence.index, |at_ns| Some(there_by_ns? < at_ns)) {
            Some(false) => {}
            Some(true) => {
                findings.violation(|| format!("{item} was claimed by {fence} after it was stopped at {}", stops.index));
            }
            None => findings.missing("whether a claim was before a resumption of unknown log index"),
        }
    }
}

/// Returns a time at which the claim existed: the earlier of its commit and the first DATA under it. `None`: neither
/// was observed.
pub(super) fn there_by(history: &History, claim: &Claim) -> Option<u64> {
    let own = of_item(&history.handoffs, claim.item()).iter().filter(|handoff| handoff.fence == Some(claim.fence));
    claim.committed_ns.into_iter().chain(own.map(|handoff| handoff.data_ns)).min()
}

fn report_runs(history: &History, (tenant, schedule): (&String, &String), stops: &Stop, findings: &mut Findings) {
    let own = history.runs.values().filter(|run| run.tenant == *tenant && run.schedule == *schedule);
    // Openings are recorded in ledger time.
    let latest_ms = |run: &Run| run.opened_unix_ms.saturating_add_unsigned(history.header.clock_error_ms);
    for run in own.filter(|run| matches!(run.cause, RunCause::Due | RunCause::CatchUp)) {
        let (opened, stopped) = (run.opened_index, stops.index);
        match stops.holds_at(opened, |at_ns| Some(latest_ms(run) < history.civil_ms(at_ns))) {
            Some(false) => {}
            Some(true) => {
                findings
                    .violation(|| format!("{} opened at {opened}, and {schedule} was paused at {stopped}", run.run));
            }
            None => findings.missing("whether a run opened before a resumption of unknown log index"),
        }
    }
}

fn report_handoff(history: &History, handoff: &Handoff, barriers: &[Barrier], what: &str, findings: &mut Findings) {
    for barrier in barriers {
        match barrier.forbids(history, handoff) {
            Some(false) => {}
            Some(true) => return findings.violation(|| describe(handoff, barrier, what)),
            None => findings.missing(format!("whether an email of an unconfirmed node was claimed before {what}")),
        }
    }
}

fn describe(handoff: &Handoff, barrier: &Barrier, what: &str) -> String {
    let after_ms = (handoff.at_ns - barrier.answered_ns) as f64 / 1e6;
    let (item, node) = (handoff.item(), handoff.node);
    format!("{item} came from {node} {after_ms:.3} ms after the answer to {what}, which did not name it")
}
