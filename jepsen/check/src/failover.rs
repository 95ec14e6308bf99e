//! Fail-over: how long there was no leader, and no email, after one was unseated.
//!
//! Times count from when a majority of the nodes was up and undisturbed ([`majorities`]), not from the fault: a fault
//! that takes the majority away, and the next one that strikes before a leader can be elected, say nothing about the
//! product. Each leadership that a fault ended is counted once, whatever else struck meanwhile; a leader that was struck
//! and went on is not counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::book::Book;
use crate::history::FaultStatus;
use crate::invariants::majority::majorities;

/// All fail-overs of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Failovers {
    /// From a majority to the next leader.
    pub leader_ms: Times,
    /// From a majority to the first email that the sink accepted under a later leadership.
    pub email_ms: Times,
    /// Each of them.
    pub each: Vec<Failover>,
}

/// One leadership that a fault ended. Instants are milliseconds since the beginning of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failover {
    /// The epoch that ended.
    pub epoch: u64,
    /// The last fault that struck its leader before there was another one.
    pub struck_ms: f64,
    /// Since then a majority was up and undisturbed when the next leader began. Null: there was none.
    pub majority_ms: Option<f64>,
    /// The next leader was seen.
    pub leader_ms: f64,
    /// The first claim of a later leadership was committed, or proposed where its commit was not observed. Null: none is
    /// known, or ledger time says nothing.
    pub claim_ms: Option<f64>,
    /// The first email under a later leadership. Null: none, or the majority was gone by then.
    pub email_ms: Option<f64>,
}

/// Times in milliseconds; null where there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// How many.
    pub count: usize,
    /// Half of them took at most this.
    pub p50: Option<f64>,
    /// 99 of a hundred did.
    pub p99: Option<f64>,
    /// All of them did.
    pub max: Option<f64>,
}

impl Times {
    /// Of these times, in any order.
    pub fn of(mut each: Vec<f64>) -> Times {
        each.sort_unstable_by(f64::total_cmp);
        // The nearest rank: the smallest one that so many of a hundred do not exceed.
        let at = |percent: usize| each.get((each.len() * percent).div_ceil(100).max(1) - 1).copied();
        Times { count: each.len(), p50: at(50), p99: at(99), max: at(100) }
    }
}

impl Failovers {
    /// Of one or of several runs.
    pub fn of(each: Vec<Failover>) -> Failovers {
        let since = |one: &Failover, at_ms: Option<f64>| Some(tenth(at_ms? - one.majority_ms?));
        let leader = each.iter().filter_map(|one| since(one, Some(one.leader_ms))).collect();
        let email = each.iter().filter_map(|one| since(one, one.email_ms)).collect();
        Failovers { leader_ms: Times::of(leader), email_ms: Times::of(email), each }
    }
}

/// Measures them.
pub fn failovers(book: &Book) -> Failovers {
    let majorities = majorities(book);
    // The last fault of each epoch that had a successor, and the successor.
    let mut ended: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let struck = book.faults.iter().filter(|fault| fault.status == FaultStatus::Installed);
    for (epoch, struck_ns) in struck.filter_map(|fault| Some((fault.led_epoch?, fault.from_ns))) {
        let next = book.epochs.iter().filter(|next| next.epoch > epoch).map(|next| next.at_ns).min();
        if let Some(leader_ns) = next.filter(|leader_ns| *leader_ns >= struck_ns) {
            let last = ended.entry(epoch).or_insert((struck_ns, leader_ns));
            last.0 = last.0.max(struck_ns);
        }
    }
    let each = ended.into_iter().map(|(epoch, (struck_ns, leader_ns))| {
        let majority = majorities.iter().find(|(from_ns, until_ns)| *from_ns <= leader_ns && leader_ns < *until_ns);
        let emails = book.accepts().filter(|dot| dot.fence.is_some_and(|fence| fence.epoch > epoch));
        let email_ns = emails.map(|dot| dot.at_ns).filter(|at_ns| *at_ns >= struck_ns).min();
        let claims = book.grants.iter().filter(|grant| grant.fence.epoch > epoch);
        let claim_ns = claims.filter_map(|grant| grant.committed_ns.or(grant.proposed_ns));
        let claim_ns = claim_ns.filter(|at_ns| *at_ns >= struck_ns).min();
        let is_whole = |at_ns: &u64| majority.is_some_and(|(_, until_ns)| at_ns < until_ns);
        Failover {
            epoch,
            struck_ms: ms(struck_ns),
            majority_ms: majority.map(|(from_ns, _)| ms((*from_ns).max(struck_ns))),
            leader_ms: ms(leader_ns),
            claim_ms: claim_ns.map(ms),
            email_ms: email_ns.filter(is_whole).map(ms),
        }
    });
    Failovers::of(each.collect())
}

fn ms(ns: u64) -> f64 {
    tenth(ns as f64 / 1e6)
}

/// To a tenth of a millisecond: a leader is looked for ten times a second.
fn tenth(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}
