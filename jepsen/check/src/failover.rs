//! Measures fail-overs: the time without a leader, and without an email, after a leader was lost.
//!
//! Times count from the instant at which a majority of the nodes was up and undisturbed ([`majorities`]), not from the
//! fault. While a majority is down, or if another fault begins before an election can end, the product cannot have a
//! leader. Each leadership that a fault ended is counted once. A leader that kept its leadership through a fault is not
//! counted.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::events::FaultStatus;
use crate::history::History;
use crate::invariants::majority::majorities;

/// The fail-overs of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Failovers {
    /// Times from a majority to the next leader.
    pub leader_ms: Times,
    /// Times from a majority to the first email that the sink accepted under a later leadership.
    pub email_ms: Times,
}

/// Summary of times in milliseconds. Null: there are no times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Number of measured times.
    pub count: usize,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
}

impl Times {
    /// Summarizes these times, in any order.
    pub fn of(mut each: Vec<f64>) -> Times {
        each.sort_unstable_by(f64::total_cmp);
        // The nearest rank: the smallest time that at least this percentage of the times does not exceed.
        let at = |percent: usize| each.get((each.len() * percent).div_ceil(100).max(1) - 1).copied();
        Times { count: each.len(), p50: at(50), p99: at(99), max: at(100) }
    }
}

/// Measures the fail-overs of a run.
pub fn failovers(history: &History) -> Failovers {
    let majorities = majorities(history);
    // For each epoch with a successor: its last fault, and the start of the successor.
    let mut ended: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let installed = history.faults.iter().filter(|fault| fault.status == FaultStatus::Installed);
    for (epoch, fault_ns) in installed.filter_map(|fault| Some((fault.led_epoch?, fault.from_ns))) {
        let next = history.epochs.iter().filter(|next| next.epoch > epoch).map(|next| next.at_ns).min();
        if let Some(leader_ns) = next.filter(|leader_ns| *leader_ns >= fault_ns) {
            let last = ended.entry(epoch).or_insert((fault_ns, leader_ns));
            last.0 = last.0.max(fault_ns);
        }
    }
    let (mut leader, mut email) = (Vec::new(), Vec::new());
    for (epoch, (fault_ns, leader_ns)) in ended {
        let majority = majorities.iter().find(|(from_ns, until_ns)| *from_ns <= leader_ns && leader_ns < *until_ns);
        let Some((from_ns, until_ns)) = majority else { continue };
        let from_ns = fault_ns.max(*from_ns);
        leader.push(ms(leader_ns - from_ns));
        let emails = history.accepts().filter(|handoff| handoff.fence.is_some_and(|fence| fence.epoch > epoch));
        let first_ns = emails.map(|handoff| handoff.at_ns).filter(|at_ns| *at_ns >= fault_ns).min();
        email.extend(first_ns.filter(|at_ns| at_ns < until_ns).map(|at_ns| ms(at_ns.saturating_sub(from_ns))));
    }
    Failovers { leader_ms: Times::of(leader), email_ms: Times::of(email) }
}

/// Converts nanoseconds to milliseconds, rounded to a tenth.
fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e5).round() / 10.0
}
