//! How long nothing came: from the blow that struck a leader to the first mail under a later leadership.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::book::Book;
use crate::history::FaultStatus;

/// Fail-over times in milliseconds; null where no leader was struck.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Failover {
    /// Blows that were followed by such a mail.
    pub count: usize,
    /// Half of them took at most this.
    pub p50: Option<f64>,
    /// 99 of a hundred did.
    pub p99: Option<f64>,
    /// All of them did.
    pub max: Option<f64>,
    /// Each, sorted: so that several runs can be taken together.
    pub each: Vec<f64>,
}

impl Failover {
    /// Of these times, in any order.
    pub fn of(mut each: Vec<f64>) -> Failover {
        each.sort_unstable_by(f64::total_cmp);
        // The nearest rank: the smallest one that so many of a hundred do not exceed.
        let at = |percent: usize| each.get((each.len() * percent).div_ceil(100).max(1) - 1).copied();
        Failover { count: each.len(), p50: at(50), p99: at(99), max: at(100), each }
    }
}

/// Measures them.
pub fn failover(book: &Book) -> Failover {
    let mut first_of_epoch: BTreeMap<u64, u64> = BTreeMap::new();
    for dot in book.accepts() {
        if let Some(fence) = dot.fence {
            let at_ns = first_of_epoch.entry(fence.epoch).or_insert(dot.at_ns);
            *at_ns = dot.at_ns.min(*at_ns);
        }
    }
    let struck = book.faults.iter().filter(|fault| fault.status == FaultStatus::Installed);
    let took = struck.filter_map(|fault| {
        let later = first_of_epoch.range(fault.led_epoch?.checked_add(1)?..).map(|(_, at_ns)| *at_ns);
        later.filter(|at_ns| *at_ns >= fault.from_ns).min().map(|at_ns| at_ns - fault.from_ns)
    });
    Failover::of(took.map(|ns| (ns as f64 / 1e5).round() / 10.0).collect())
}
