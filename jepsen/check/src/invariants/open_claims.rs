//! I15: no claim stays open longer than lease + margin + 1 s after its owner ended.
//!
//! A leader must be able to revoke the claim. So the time counts from the latest of these instants:
//!
//! - the owner's process ended;
//! - a leader began to act, which first waits for the leases of its predecessor;
//! - a quorum could act again, as the nodes report;
//! - a majority of the processes answered again, since nodes notice a short outage only at its end;
//! - links were cut, after which the nodes of a new quorum may first have to catch up.
//!
//! Of the time with lost or late messages the first ten seconds do not count, and each later second counts half: a lost
//! append is sent again after two seconds, and may be lost again. While a clock is wrong, lease and margin may last a
//! ninth longer (P9). A claim is not judged while no majority answers.

use super::majority::{ANSWERS_AFTER_NS, Interval, rest_of, with_majority};
use crate::events::{FaultKind, OpenClaim};
use crate::history::History;
use crate::time::{LEASE_MS, MS};
use crate::verdict::Findings;

/// Maximum time for the commit of the revocation, in addition to lease and margin.
const REVOKED_WITHIN_MS: u64 = 1_000;

/// Time with lost messages that does not count: five losses one after the other, each with a probability of 24 %.
const RESENT_WITHIN_MS: u64 = 10_000;

/// I15: no claim stays open after its owner ended.
pub fn revoked(history: &History, findings: &mut Findings) {
    if !history.is_whole() {
        return;
    }
    let lease_ns = LEASE_MS * MS;
    let majorities = majorities(history);
    for claim in history.open_claims.iter().filter(|claim| claim.claimed > 0) {
        let Some(owner_ended_ns) = owner_ended_ns(history, claim) else { continue };
        let majority = majorities.iter().rev().find(|(began_ns, _)| *began_ns <= claim.at_ns);
        // Without a majority no node can revoke the claim. It is reported again when a majority answers.
        let Some((majority_ns, _)) = majority.filter(|(_, until_ns)| *until_ns > claim.at_ns) else { continue };
        let from_ns = owner_ended_ns.max(able_since(history, claim.at_ns)).max(*majority_ns);
        let disturbed = disturbed(history, from_ns, claim.at_ns);
        let excused = disturbed.min(RESENT_WITHIN_MS * MS) + disturbed.saturating_sub(RESENT_WITHIN_MS * MS) / 2;
        let stayed = claim.at_ns.saturating_sub(from_ns).saturating_sub(excused);
        let slow_clock_ns = if history.has_wrong_clock(from_ns, claim.at_ns) { lease_ns / 9 } else { 0 };
        if stayed > lease_ns + slow_clock_ns + REVOKED_WITHIN_MS * MS {
            let OpenClaim { fence, node, incarnation, claimed, .. } = claim;
            let stayed = stayed as f64 / 1e9;
            findings.violation(|| {
                format!("claim {fence} of {node}, incarnation {incarnation}, has {claimed} claimed {stayed:.3} s after its owner ended")
            });
        }
    }
}

/// Returns the length of the part of an interval in which links were slow or lost messages.
fn disturbed(history: &History, from_ns: u64, to_ns: u64) -> u64 {
    // The faults are sorted by their beginnings.
    let faults = history.possible_faults_of(FaultKind::Link).map(|fault| (fault.from_ns, fault.over_ns()));
    let rest = rest_of((from_ns, to_ns), &faults.collect::<Vec<_>>());
    to_ns.saturating_sub(from_ns) - rest.iter().map(|(first, last)| last - first).sum::<u64>()
}

/// Returns the time at which the owner's process ended. `None`: it may still run.
fn owner_ended_ns(history: &History, claim: &OpenClaim) -> Option<u64> {
    let own = history
        .lifetimes
        .iter()
        .filter(|lifetime| (&lifetime.node, lifetime.incarnation) == (&claim.node, Some(claim.incarnation)));
    own.filter_map(|lifetime| lifetime.ended_ns).max().filter(|ended| *ended < claim.at_ns)
}

/// Returns the intervals in which a majority of the processes answered, in order.
fn majorities(history: &History) -> Vec<Interval> {
    let answered = history
        .lifetimes
        .iter()
        .map(|lifetime| (lifetime.started_ns.saturating_add(ANSWERS_AFTER_NS), lifetime.ended_ns.unwrap_or(u64::MAX)));
    with_majority(history, answered.filter(|(from_ns, until_ns)| from_ns < until_ns).collect())
}

/// Returns the time since which one leader could act without interruption.
fn able_since(history: &History, at_ns: u64) -> u64 {
    let epochs = history.epochs.iter().map(|epoch| epoch.at_ns).filter(|began| *began <= at_ns);
    let outages = history.outages.iter().filter(|outage| outage.from_ns <= at_ns).map(|outage| outage.until_ns);
    let cuts = history.possible_faults_of(FaultKind::Partition).map(|cut| cut.from_ns).filter(|began| *began <= at_ns);
    epochs.chain(outages).chain(cuts).max().unwrap_or(0).min(at_ns)
}
