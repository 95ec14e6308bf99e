//! I1: no recipient of a run is accepted twice. I3: each attempt has a fence of its own, and at most one fence gets
//! past the gate without a definite refusal.
//!
//! Duplicates by choice are none of these: between two of them lies a decision that the history shows, each with one of
//! its own. Under `verdict` and `assume_sent` only an operator decides, so only their calls count and the ledger's own word
//! does not; under `resend` the ledger does. What was decided before the first or after the second excuses nothing, nor
//! does what came when the recipient was not in doubt: a dead letter that was requeued had no mail to be doubled.

use crate::history::{Answer, Answered, Call, InDoubt, Part, Step};
use crate::history_index::{Handoff, HistoryIndex, Item, ItemOutcome, entries_of_item};
use crate::verdict::Findings;

/// I1.
pub fn accepted_once(history: &HistoryIndex, findings: &mut Findings) {
    findings.requires(history, &[Part::Accepts]);
    needs_outcomes(history, findings);
    for (item, handoffs) in history.handoffs_by_item() {
        let accepts: Vec<&Handoff> = handoffs.iter().filter(|handoff| handoff.answer.is_accepted()).collect();
        let times = accepts.len();
        if !were_decided(history, item, accepts) {
            findings
                .violation(|| format!("{} was accepted {times} times: {}", history.describe(item), fences(handoffs)));
        }
    }
}

/// I3.
pub fn one_fence_past_the_gate(history: &HistoryIndex, findings: &mut Findings) {
    findings.requires(history, &[Part::Accepts, Part::Handoffs]);
    needs_outcomes(history, findings);
    for (item, handoffs) in history.handoffs_by_item() {
        let mut all: Vec<_> = handoffs.iter().filter_map(|handoff| handoff.fence).collect();
        all.sort_unstable();
        for twice in all.windows(2).filter(|pair| pair[0] == pair[1]) {
            findings.violation(|| format!("{} came twice under fence {}", history.describe(item), twice[0]));
        }
        let past = handoffs
            .iter()
            .filter(|handoff| !matches!(handoff.answer, Answered::Refused | Answered::Cut | Answered::Malformed));
        let mut past: Vec<&Handoff> = past.filter(|handoff| handoff.fence.is_some()).collect();
        past.sort_by_key(|handoff| (handoff.fence, handoff.at_ns));
        past.dedup_by_key(|handoff| handoff.fence);
        if !were_decided(history, item, past) {
            findings.violation(|| format!("{} passed the gate again: {}", history.describe(item), fences(handoffs)));
        }
    }
}

/// Emails beyond the first of their items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// Under `verdict` and `assume_sent` those without a decision: they break the promise. Under `resend` all of them:
    /// which of them an operator wanted and which the policy did, the ledger's word does not say.
    pub undecided: u64,
    /// Those that an operator decided for, under any other policy than `resend`.
    pub decided: u64,
}

/// Over all items.
pub fn duplicates(history: &HistoryIndex) -> Duplicates {
    let by_policy = history.header.in_doubt == InDoubt::Resend;
    let mut all = Duplicates::default();
    for (item, handoffs) in history.handoffs_by_item() {
        let accepts: Vec<&Handoff> = handoffs.iter().filter(|handoff| handoff.answer.is_accepted()).collect();
        let beyond = accepts.len().saturating_sub(1);
        let undecided = if by_policy { beyond } else { undecided(history, item, accepts) };
        all.undecided += undecided as u64;
        all.decided += (beyond - undecided) as u64;
    }
    all
}

fn fences(handoffs: &[Handoff]) -> String {
    let told = handoffs.iter().map(|handoff| {
        let fence = handoff.fence.map_or_else(|| "no fence".to_owned(), |fence| fence.to_string());
        format!("{fence} {:?} at {:.3} s", handoff.answer, handoff.at_ns as f64 / 1e9)
    });
    told.collect::<Vec<_>>().join(", ")
}

fn needs_outcomes(history: &HistoryIndex, findings: &mut Findings) {
    if history.header.in_doubt == InDoubt::Resend {
        findings.requires(history, &[Part::Outcomes]);
    }
}

/// A decision to send to a recipient again.
#[derive(Clone, Copy, Debug)]
struct Decision {
    /// Where it stands in the log, if that is known.
    index: Option<u64>,
    invoked_ns: u64,
    /// `u64::MAX`: it may have been done at any time since.
    answered_ns: u64,
    /// The ledger recorded that the recipient is sent again. The policy `resend` does so in the entry that puts the
    /// recipient in doubt, so no step before it says that it is.
    is_step: bool,
}

/// Does a decision of its own lie between each two of these, by their fences?
fn were_decided(history: &HistoryIndex, item: Item, handoffs: Vec<&Handoff>) -> bool {
    undecided(history, item, handoffs) == 0
}

/// Between how many of these and the next one, by their fences, lies no decision of its own?
fn undecided(history: &HistoryIndex, item: Item, mut handoffs: Vec<&Handoff>) -> usize {
    if handoffs.len() < 2 {
        return 0;
    }
    handoffs.sort_by_key(|handoff| (handoff.fence, handoff.at_ns));
    let mut decisions = decisions(history, item);
    let is_undecided = |pair: &&[&Handoff]| {
        let fitting =
            decisions.iter().enumerate().filter(|(_, decision)| decision.is_between(history, pair[0], pair[1]));
        // Prefer decisions with a known log index: they match only this pair.
        let best = fitting.min_by_key(|(_, decision)| (decision.index.is_none(), decision.answered_ns));
        let place = best.map(|(place, _)| place);
        place.map(|place| decisions.swap_remove(place)).is_none()
    };
    handoffs.windows(2).filter(is_undecided).count()
}

/// Those about this item.
fn decisions(history: &HistoryIndex, item: Item) -> Vec<Decision> {
    if history.header.in_doubt == InDoubt::Resend {
        // Operators' decisions are steps too.
        let resent = entries_of_item(&history.outcomes, item).iter().filter(|outcome| outcome.step == Step::Resent);
        let decision = |outcome: &ItemOutcome| Decision {
            index: Some(outcome.index),
            invoked_ns: 0,
            answered_ns: u64::MAX,
            is_step: true,
        };
        return resent.map(decision).collect();
    }
    let (own_run, own_recipient) = (history.names.text(item.run), history.names.text(item.recipient));
    let decision = |call: &Call| {
        let index = match call.answer {
            Answer::Ok { index, .. } => index,
            Answer::Unknown => None,
            Answer::Failed { .. } | Answer::Found { .. } => return None,
        };
        let (invoked_ns, answered_ns) = (call.invoked_ns, call.answered_ns.unwrap_or(u64::MAX));
        call.resends(own_run, own_recipient).then_some(Decision { index, invoked_ns, answered_ns, is_step: false })
    };
    history.calls.iter().filter_map(decision).collect()
}

impl Decision {
    /// By the log. Where its place there is not known, by time: who is decided about has had its DATA before, since
    /// that comes before the gate, and gets the next one after an operator asked.
    fn is_between(&self, history: &HistoryIndex, first: &Handoff, second: &Handoff) -> bool {
        let in_time = match (first.fence, second.fence) {
            (Some(first), Some(second)) if first == second => false,
            (Some(first), Some(second)) if self.index.is_some() => {
                self.index.is_some_and(|index| first.index < index && index < second.index)
            }
            _ => first.data_ns < self.answered_ns && self.invoked_ns < second.data_ns,
        };
        // Who is not in doubt is not sent again, whatever is asked for. (A dead letter had no mail.)
        let until = self.index.or(second.fence.map(|fence| fence.index));
        in_time && (self.is_step || was_in_doubt(history, first, until))
    }
}

/// Was it in doubt after this hand-off, and before this entry? Where steps were not read it may have been.
fn was_in_doubt(history: &HistoryIndex, handoff: &Handoff, until: Option<u64>) -> bool {
    let from = handoff.fence.map_or(0, |fence| fence.index);
    let mut steps =
        entries_of_item(&history.outcomes, handoff.item).iter().filter(|outcome| outcome.step == Step::InDoubt);
    !history.is_whole(Part::Outcomes)
        || steps.any(|outcome| outcome.index > from && until.is_none_or(|until| outcome.index < until))
}
