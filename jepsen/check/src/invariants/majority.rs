//! Finds the intervals in which a majority of the nodes was up and undisturbed.
//!
//! A node counts from the start of its process to its end, except while a fault affects it. While any link is cut or
//! bad, no majority counts. A node whose disk failed or lost data may have a torn log, and must catch up with a leader
//! before it votes. It counts again when one of its processes has had a leader and all links for five seconds, or when
//! its processes together have waited a minute in one outage.
//!
//! A majority is one of the largest number of voters that may be in force. While a lost node is replaced, this number
//! stays.

use crate::events::{Fault, FaultKind};
use crate::history::History;
use crate::time::MS;

/// Time for which a node with a torn log waits for a leader.
const WITHOUT_LEADER_NS: u64 = 60_000 * MS;
/// A node records its wait in whole seconds: each of its processes may lose as much.
const LOST_AT_END_NS: u64 = 1_000 * MS;
/// Maximum time from the start of a process until it answers: it first waits for the vote promises of its predecessor.
pub(super) const ANSWERS_AFTER_NS: u64 = 3_000 * MS;
/// Time within which a process catches up with a leader, from its start.
const CATCHES_UP_NS: u64 = ANSWERS_AFTER_NS + 2_000 * MS;

/// An interval, its end excluded.
pub(super) type Interval = (u64, u64);

/// Returns the intervals in which a majority was up and undisturbed, sorted and disjoint.
pub fn majorities(history: &History) -> Vec<Interval> {
    let mut up: Vec<Interval> = Vec::new();
    let of_all: Vec<Interval> =
        history.faults.iter().filter(|fault| is_network(fault)).map(|fault| in_force(history, fault)).collect();
    for node in &history.header.nodes {
        let own = history.faults.iter().filter(|fault| fault.nodes.contains(node) && disturbs(fault));
        let mut without: Vec<Interval> =
            own.map(|fault| in_force(history, fault)).chain(of_all.iter().copied()).collect();
        without.sort_unstable();
        for lifetime in history.lifetimes.iter().filter(|lifetime| lifetime.node == *node) {
            up.extend(rest_of((lifetime.started_ns, lifetime.ended_ns.unwrap_or(u64::MAX)), &without));
        }
    }
    with_majority(history, up)
}

/// Returns the intervals in which a majority of the nodes is up. `up` are the intervals of the single nodes.
pub(super) fn with_majority(history: &History, up: Vec<Interval>) -> Vec<Interval> {
    // Instant, change of the number of nodes that are up, and change of the number of voters.
    let mut changes: Vec<(u64, i32, i32)> =
        up.into_iter().flat_map(|(from_ns, until_ns)| [(from_ns, 1, 0), (until_ns, -1, 0)]).collect();
    changes.extend(history.faults.iter().filter_map(change_of_voters));
    // At the same instant an end counts before a start.
    changes.sort_unstable();
    let mut voters = history.header.voters.map_or(history.header.nodes.len() as i32, |voters| voters as i32);
    let (mut up, mut since, mut found) = (0, None, Vec::new());
    for (at_ns, change, of_voters) in changes {
        up += change;
        voters += of_voters;
        let needed = voters / 2 + 1;
        match since {
            None if up >= needed => since = Some(at_ns),
            Some(from_ns) if up < needed => {
                found.push((from_ns, at_ns));
                since = None;
            }
            _ => {}
        }
    }
    found.extend(since.map(|from_ns| (from_ns, u64::MAX)));
    found
}

/// Returns the parts of an interval outside of these sorted intervals.
pub(super) fn rest_of((mut from_ns, until_ns): Interval, without: &[Interval]) -> Vec<Interval> {
    let mut left = Vec::new();
    for (first, last) in without {
        if *first > from_ns && *last > from_ns && from_ns < until_ns {
            left.push((from_ns, (*first).min(until_ns)));
        }
        from_ns = from_ns.max(*last);
    }
    if from_ns < until_ns {
        left.push((from_ns, until_ns));
    }
    left
}

fn change_of_voters(fault: &Fault) -> Option<(u64, i32, i32)> {
    match fault.kind {
        FaultKind::Grow if fault.may_be_installed() => Some((fault.from_ns, 0, 1)),
        FaultKind::Shrink if fault.observed == Some(true) => Some((fault.until_ns?, 0, -1)),
        _ => None,
    }
}

fn is_network(fault: &Fault) -> bool {
    fault.may_be_installed() && matches!(fault.kind, FaultKind::Partition | FaultKind::Link)
}

/// Returns true if the fault can keep the affected nodes from leading and voting.
fn disturbs(fault: &Fault) -> bool {
    let not_the_node = matches!(
        fault.kind,
        FaultKind::Relay | FaultKind::Operator | FaultKind::Rotation | FaultKind::Backup | FaultKind::Transfer
    );
    fault.may_be_installed() && !not_the_node
}

/// Returns the interval from the fault until the affected nodes can vote again.
pub(super) fn in_force(history: &History, fault: &Fault) -> Interval {
    let until_ns = fault.until_ns.unwrap_or(match fault.kind {
        // The lifetime of the process has its end.
        FaultKind::Kill | FaultKind::Upgrade | FaultKind::CrashPoint => fault.from_ns,
        FaultKind::PowerCut => starts_again(history, fault),
        _ => u64::MAX,
    });
    let may_be_torn =
        matches!(fault.kind, FaultKind::PowerCut | FaultKind::Damage | FaultKind::Disk | FaultKind::CrashPoint);
    if !may_be_torn {
        return (fault.from_ns, until_ns);
    }
    let votes = |node: &String| caught_up(history, node, until_ns).min(has_waited(history, node, until_ns));
    (fault.from_ns, fault.nodes.iter().map(votes).max().unwrap_or(until_ns))
}

/// Returns the first instant at which this node has had a leader and all links for long enough to catch up.
fn caught_up(history: &History, node: &str, since_ns: u64) -> u64 {
    let outages = history.outages.iter().map(|outage| (outage.from_ns, outage.until_ns));
    let cuts = history.faults.iter().filter(|fault| is_network(fault));
    let cuts = cuts.map(|fault| (fault.from_ns, fault.until_ns.unwrap_or(u64::MAX)));
    let mut without: Vec<Interval> = outages.chain(cuts).collect();
    without.sort_unstable();
    let own = history.lifetimes.iter().filter(|lifetime| lifetime.node == node);
    let led = own.flat_map(|lifetime| {
        rest_of((lifetime.started_ns.max(since_ns), lifetime.ended_ns.unwrap_or(u64::MAX)), &without)
    });
    let caught_up = led.map(|(from_ns, until_ns)| (from_ns.saturating_add(CATCHES_UP_NS), until_ns));
    caught_up.filter(|(at_ns, until_ns)| at_ns <= until_ns).map(|(at_ns, _)| at_ns).min().unwrap_or(u64::MAX)
}

/// Returns the time at which the processes of this node have waited for a leader as long as a node with a torn log does.
/// A leader restarts the wait, so each outage counts by itself.
fn has_waited(history: &History, node: &str, since_ns: u64) -> u64 {
    let mut own: Vec<_> = history.lifetimes.iter().filter(|lifetime| lifetime.node == node).collect();
    own.sort_by_key(|lifetime| lifetime.started_ns);
    for outage in &history.outages {
        let mut left_ns = WITHOUT_LEADER_NS;
        for lifetime in &own {
            let from_ns = lifetime.started_ns.saturating_add(ANSWERS_AFTER_NS).max(since_ns).max(outage.from_ns);
            let until_ns = lifetime.ended_ns.unwrap_or(u64::MAX).min(outage.until_ns);
            let waited_ns = until_ns.saturating_sub(from_ns);
            if waited_ns >= left_ns {
                return from_ns + left_ns;
            }
            left_ns -= waited_ns.saturating_sub(LOST_AT_END_NS);
        }
    }
    u64::MAX
}

/// Returns the time at which the last of the affected nodes was restarted, or the start of the fault if none was
/// restarted.
fn starts_again(history: &History, fault: &Fault) -> u64 {
    let starts = fault.nodes.iter().filter_map(|node| history.next_start(node, fault.from_ns));
    starts.max().unwrap_or(fault.from_ns)
}
