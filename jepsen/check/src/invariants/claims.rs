//! I2: every handoff is covered by a committed claim that precedes its DATA. I14: there are at most as many handoffs as
//! gate passes, and equally many in a run without faults. A handoff counts whatever the sink answered, because only a
//! gate pass lets a node write a final dot (P3). Messages without a known final dot do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::identity::is_whole;
use crate::events::{Claim, GateReading, Handoff, Lifetime};
use crate::history::{HasItem, History, of_item};
use crate::names::Name;
use crate::time::MS;
use crate::verdict::Findings;

/// I2: every handoff is covered by a committed claim.
pub fn covered(history: &History, findings: &mut Findings) {
    for handoff in history.handoffs.iter().filter(|handoff| is_whole(handoff)) {
        let what = || format!("{} at {:.3} s", handoff.item(), handoff.at_ns as f64 / 1e9);
        let Some(fence) = handoff.fence else {
            findings.violation(|| format!("{}: an email without a fence", what()));
            continue;
        };
        match claim_of(history, handoff) {
            None if history.is_whole() => findings.violation(|| format!("{}: no claim {fence} grants it", what())),
            None => {}
            Some(claim) if claim.node != handoff.node => findings.violation(|| {
                let (owner, sender) = (claim.node, handoff.node);
                format!("{}: {fence} is {owner}'s, and {sender} sent it", what())
            }),
            Some(claim) if committed_from_ns(history, claim) > handoff.data_ns => {
                findings.violation(|| format!("{}: its DATA came before claim {fence} was committed", what()));
            }
            Some(claim) if !ran_at(history, (claim.node, claim.incarnation), handoff.data_ns) => {
                let Claim { node, incarnation, .. } = claim;
                findings.violation(|| {
                    format!("{}: incarnation {incarnation} of {node}, which owns {fence}, did not run then", what())
                });
            }
            Some(_) => {}
        }
    }
}

/// Returns the earliest time at which the claim can have been committed. Without an observation it is the ledger time
/// of its proposal, which may be ahead by the clock error.
fn committed_from_ns(history: &History, claim: &Claim) -> u64 {
    let error_ns = history.header.clock_error_ms.saturating_mul(MS);
    claim.committed_ns.or_else(|| Some(claim.proposed_ns?.saturating_sub(error_ns))).unwrap_or(0)
}

/// Returns the claim of a handoff.
pub fn claim_of<'a>(history: &'a History, handoff: &Handoff) -> Option<&'a Claim> {
    of_item(&history.claims, handoff.item()).iter().find(|claim| Some(claim.fence) == handoff.fence)
}

/// A process: its node and its incarnation.
type ProcessKey = (Name, u64);

/// Returns true if the process ran at this instant, or if its lifetime was not observed. The gate of an email comes
/// after the sink's answer to its DATA, so the owner of its claim still runs when the sink reads DATA.
fn ran_at(history: &History, (node, incarnation): ProcessKey, at_ns: u64) -> bool {
    let is_own = |lifetime: &&Lifetime| node == lifetime.node && lifetime.incarnation == Some(incarnation);
    history
        .lifetimes
        .iter()
        .find(is_own)
        .is_none_or(|own| own.started_ns <= at_ns && own.ended_ns.is_none_or(|ended_ns| at_ns <= ended_ns))
}

/// I14: there are at most as many handoffs as gate passes.
pub fn passed_the_gate(history: &History, findings: &mut Findings) {
    if !history.is_whole() {
        return;
    }
    let handoffs = handoffs_by_process(history);
    let faultless = history.possible_faults().next().is_none();
    let mut read = BTreeSet::new();
    for GateReading { at_ns, node, incarnation, passes } in &history.readings {
        let arrived = handoffs.get(&(Name::from(node), *incarnation)).map_or(&[][..], Vec::as_slice);
        let by_then = arrived.partition_point(|arrived| at_ns.is_none_or(|at_ns| *arrived < at_ns)) as u64;
        if at_ns.is_none() {
            read.insert((Name::from(node), *incarnation));
        }
        if by_then > *passes || (faultless && at_ns.is_none() && by_then != *passes) {
            let then = at_ns.map_or("in all".to_owned(), |at_ns| format!("until {:.3} s", at_ns as f64 / 1e9));
            findings.violation(|| {
                format!("{node}, incarnation {incarnation}: {by_then} handoffs and {passes} gate passes {then}")
            });
        }
    }
    for (process, arrived) in &handoffs {
        if !read.contains(process) && !is_over(history, *process) {
            let ((node, incarnation), count) = (process, arrived.len());
            findings.violation(|| format!("{node}, incarnation {incarnation}: {count} handoffs and no gate pass"));
        }
    }
}

/// Returns the arrival times of the handoffs of each process, in order. (I2 reports handoffs without a claim.)
fn handoffs_by_process(history: &History) -> BTreeMap<ProcessKey, Vec<u64>> {
    let mut handoffs: BTreeMap<ProcessKey, Vec<u64>> = BTreeMap::new();
    for handoff in history.handoffs.iter().filter(|handoff| is_whole(handoff)) {
        if let Some(claim) = claim_of(history, handoff) {
            handoffs.entry((handoff.node, claim.incarnation)).or_default().push(handoff.at_ns);
        }
    }
    handoffs.values_mut().for_each(|arrived| arrived.sort_unstable());
    handoffs
}

/// Returns true if the process ended, so that its last counter may be lost.
fn is_over(history: &History, (node, incarnation): ProcessKey) -> bool {
    let mut lifetimes = history.lifetimes.iter().filter(|lifetime| node == lifetime.node);
    let lifetime = lifetimes.find(|lifetime| lifetime.incarnation == Some(incarnation));
    lifetime.is_some_and(|lifetime| lifetime.ended_ns.is_some())
}
