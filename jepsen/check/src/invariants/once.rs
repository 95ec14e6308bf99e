//! I1: no recipient of a run is accepted twice. I3: each attempt has a fence of its own, and after a fence that passed
//! the gate without a definite refusal no other fence passes it.
//!
//! A second accept or gate pass is allowed if the history has a separate decision between the two handoffs. Under
//! `hold` and `assume_sent` only operators decide, so only their calls count, and not the ledger's record. Under
//! `resend` the ledger's record counts. A decision before the first or after the second handoff does not count. A
//! decision about a recipient that was not in doubt does not count either: a requeued dead letter had no email that
//! could be doubled.

use super::identity::is_whole;
use crate::events::{Answer, Answered, Decider, Fence, Handoff, InDoubt, OutcomeKind};
use crate::history::{HasItem, History, Item, of_item};
use crate::verdict::Findings;

/// I1: no recipient of a run is accepted twice.
pub fn accepted_once(history: &History, findings: &mut Findings) {
    for (item, handoffs) in history.handoffs_by_item() {
        let accepts: Vec<&Handoff> = handoffs.iter().filter(|handoff| handoff.answer.is_accepted()).collect();
        let times = accepts.len();
        if count_undecided_pairs(history, item, accepts, |_| true) > 0 {
            findings.violation(|| format!("{} was accepted {times} times: {}", item, fences(handoffs)));
        }
    }
}

/// I3: each attempt has its own fence, one passes the gate.
pub fn one_fence_past_the_gate(history: &History, findings: &mut Findings) {
    for (item, handoffs) in history.handoffs_by_item() {
        let mut all: Vec<_> = handoffs.iter().filter_map(|handoff| handoff.fence).collect();
        all.sort_unstable();
        for twice in all.windows(2).filter(|pair| pair[0] == pair[1]) {
            findings.violation(|| format!("{} came twice under fence {}", item, twice[0]));
        }
        let is_past_gate = |handoff: &&Handoff| is_whole(handoff) && handoff.fence.is_some();
        let mut past_gate: Vec<&Handoff> = handoffs.iter().filter(is_past_gate).collect();
        past_gate.sort_by_key(|handoff| (handoff.fence, handoff.at_ns));
        past_gate.dedup_by_key(|handoff| handoff.fence);
        if count_undecided_pairs(history, item, past_gate, |_| true) > 0 {
            findings.violation(|| format!("{} passed the gate again: {}", item, fences(handoffs)));
        }
    }
}

/// Numbers of emails after the first email of an item, over all items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// Duplicates without a decision of an operator. They break the promise, unless the policy `resend` decided.
    pub undecided: u64,
    /// Duplicates that an operator decided for.
    pub decided: u64,
}

/// Counts the duplicates of all items.
pub fn duplicates(history: &History) -> Duplicates {
    let mut totals = Duplicates::default();
    for (item, handoffs) in history.handoffs_by_item() {
        let accepts: Vec<&Handoff> = handoffs.iter().filter(|handoff| handoff.answer.is_accepted()).collect();
        let beyond = accepts.len().saturating_sub(1);
        let undecided = count_undecided_pairs(history, item, accepts, |by| by == Decider::Operator);
        totals.undecided += undecided as u64;
        totals.decided += (beyond - undecided) as u64;
    }
    totals
}

fn fences(handoffs: &[Handoff]) -> String {
    let texts = handoffs.iter().map(|handoff| {
        let fence = handoff.fence.map_or_else(|| "no fence".to_owned(), |fence| fence.to_string());
        format!("{fence} {:?} at {:.3} s", handoff.answer, handoff.at_ns as f64 / 1e9)
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// A decision to send to a recipient again.
#[derive(Clone, Copy, Debug)]
struct Decision {
    /// What decided.
    by: Decider,
    /// Log index of the decision. `None`: unknown.
    index: Option<u64>,
    /// The claim in whose history the ledger recorded the decision. `None`: not observed.
    claim: Option<Fence>,
    invoked_ns: u64,
    /// Time of the answer. `u64::MAX`: the decision may have been executed at any time after its call.
    answered_ns: u64,
    /// True if the ledger recorded the decision. The policy `resend` decides in the entry that puts the recipient in
    /// doubt, so no earlier outcome says that the recipient is in doubt.
    is_ledger_record: bool,
}

/// Returns the number of consecutive pairs of handoffs, in the order of their fences, without a separate decision
/// between them that counts, if the first was not refused.
fn count_undecided_pairs(
    history: &History,
    item: Item,
    mut handoffs: Vec<&Handoff>,
    counts: fn(Decider) -> bool,
) -> usize {
    if handoffs.len() < 2 {
        return 0;
    }
    handoffs.sort_by_key(|handoff| (handoff.fence, handoff.at_ns));
    let mut decisions = decisions(history, item);
    decisions.retain(|decision| counts(decision.by));
    let mut undecided = 0;
    for pair in handoffs.windows(2).filter(|pair| pair[0].answer != Answered::Refused) {
        let between =
            decisions.iter().enumerate().filter(|(_, decision)| decision.is_between(history, pair[0], pair[1]));
        // Prefer decisions with a known log index: they match only this pair.
        let best = between.min_by_key(|(_, decision)| (decision.index.is_none(), decision.answered_ns));
        match best.map(|(position, _)| position) {
            Some(position) => _ = decisions.swap_remove(position),
            None => undecided += 1,
        }
    }
    undecided
}

/// Returns the decisions about this item.
fn decisions(history: &History, item: Item) -> Vec<Decision> {
    let mut decisions = Vec::new();
    if history.header.in_doubt == InDoubt::Resend {
        // The outcomes include decisions of operators.
        for outcome in of_item(&history.outcomes, item) {
            let OutcomeKind::Resent(by) = outcome.kind else { continue };
            let index = Some(outcome.index);
            let (claim, answered_ns) = (outcome.fence, u64::MAX);
            decisions.push(Decision { by, index, claim, invoked_ns: 0, answered_ns, is_ledger_record: true });
        }
        return decisions;
    }
    for call in history.calls.iter().filter(|call| call.resends(&item.run, &item.recipient)) {
        let index = match call.answer {
            Answer::Ok { index, .. } => index,
            Answer::Unknown => None,
            Answer::Failed { .. } | Answer::Found { .. } => continue,
        };
        let (invoked_ns, answered_ns) = (call.invoked_ns, call.answered_ns.unwrap_or(u64::MAX));
        let by = Decider::Operator;
        decisions.push(Decision { by, index, claim: None, invoked_ns, answered_ns, is_ledger_record: false });
    }
    decisions
}

impl Decision {
    /// Returns true if this decision lies between two handoffs: by its claim, by the log, or by time if its index is
    /// unknown. A claim's history may give a decision the index of a later one, which is then above the next claim.
    /// DATA comes before the gate, so the DATA of the first handoff precedes the decision, and the DATA of the second
    /// follows the operator's call.
    fn is_between(&self, history: &History, first: &Handoff, second: &Handoff) -> bool {
        let in_time = match (first.fence, second.fence) {
            (Some(first), Some(second)) if first == second => false,
            (Some(first), Some(_)) if self.claim.is_some() => self.claim == Some(first),
            (Some(first), Some(second)) if self.index.is_some() => {
                self.index.is_some_and(|index| first.index < index && index < second.index)
            }
            _ => first.data_ns < self.answered_ns && self.invoked_ns < second.data_ns,
        };
        // Only a recipient in doubt is sent to again, whatever the call requested. (A dead letter had no accepted
        // email.)
        let until = self.index.or(second.fence.map(|fence| fence.index));
        in_time && (self.is_ledger_record || was_in_doubt(history, first, until))
    }
}

/// Returns true if the item was in doubt after this handoff and before this entry, or if outcomes were not observed.
fn was_in_doubt(history: &History, handoff: &Handoff, until: Option<u64>) -> bool {
    let from = handoff.fence.map_or(0, |fence| fence.index);
    !history.is_whole() || history.was_in_doubt(handoff.item(), from, until.unwrap_or(u64::MAX))
}
