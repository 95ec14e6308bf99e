//! Measures the claim cap by the sink's record: the maximum number of recipients that a node can have claimed (P12).
//!
//! A tenant may have claimed the emails that the relays accept while a claim is committed, sent and settled, which
//! takes at most one second. The throughput is measured in the fastest tenth of a second, since a short queue lasts no
//! whole second. A relay without measurements allows four recipients for each session. The ledger's own cap is not
//! used, because a product that claims too much would report a cap that is too large.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::{Answered, Fault};
use crate::history::History;
use crate::names::Name;
use crate::time::MS;

/// P12: maximum number of claimed and unsettled recipients of a node, whatever its relays accept.
pub const CLAIM_CAP_MAX: u64 = 4_096;
/// P12: number of recipients for each session of a relay without measurements.
const PER_SESSION: u64 = 4;
/// Length of the intervals in which the throughput is measured. [`FLOWS`] of them make the second of P12.
const FLOW_NS: u64 = 100 * MS;
const FLOWS: u64 = 10;
/// Time with a leader after which a process has settled the claims of earlier processes of its node.
const SETTLED_WITHIN_NS: u64 = 10_000 * MS;

/// Returns the maximum number of recipients that a node can have claimed.
pub fn claim_cap(history: &History) -> u64 {
    let mut began: BTreeMap<Name, Vec<u64>> = BTreeMap::new();
    for handoff in history.handoffs.iter().filter(|handoff| handoff.answer != Answered::Malformed) {
        began.entry(handoff.node).or_default().push(handoff.data_ns);
    }
    let most = began.into_values().map(|mut began| {
        began.sort_unstable();
        most_within(&began, FLOW_NS)
    });
    let sessions = u64::from(history.header.sessions);
    let of_a_tenant = (FLOWS * most.max().unwrap_or(0) + sessions).max(PER_SESSION * sessions);
    let tenants: BTreeSet<Name> = history.runs.values().map(|run| run.tenant).collect();
    (of_a_tenant * tenants.len().max(1) as u64).min(CLAIM_CAP_MAX)
}

/// Returns the maximum number of these sorted instants in any interval of this length.
pub fn most_within(instants: &[u64], length_ns: u64) -> u64 {
    let mut first = 0;
    let most = instants.iter().enumerate().map(|(last, at_ns)| {
        while instants.get(first).is_some_and(|from_ns| from_ns.saturating_add(length_ns) <= *at_ns) {
            first += 1;
        }
        last + 1 - first
    });
    most.max().unwrap_or(0) as u64
}

/// Returns the number of processes of a node whose claims may be open when a fault begins, at least 1: the affected
/// process, and earlier processes whose claims no later process had time to settle.
pub fn unsettled_processes(history: &History, fault: &Fault, node: &str) -> u64 {
    let begun =
        history.lifetimes.iter().filter(|lifetime| lifetime.node == node && lifetime.started_ns <= fault.from_ns);
    let mut lifetimes: Vec<(u64, u64)> =
        begun.map(|lifetime| (lifetime.started_ns, lifetime.ended_ns.unwrap_or(u64::MAX).min(fault.from_ns))).collect();
    lifetimes.sort_unstable();
    let is_short = |(from_ns, until_ns): &(u64, u64)| {
        let out = history
            .outages
            .iter()
            .map(|outage| outage.until_ns.min(*until_ns).saturating_sub(outage.from_ns.max(*from_ns)));
        until_ns.saturating_sub(*from_ns).saturating_sub(out.sum()) < SETTLED_WITHIN_NS
    };
    let short = lifetimes.iter().rev().take_while(|lifetime| is_short(lifetime)).count();
    (short + 1).min(lifetimes.len()).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_within_counts_half_open_interval() {
        assert_eq!(most_within(&[], 10), 0);
        assert_eq!(most_within(&[0, 5, 9, 10, 30], 10), 3);
        assert_eq!(most_within(&[0, 0, 0], 1), 3);
    }
}
