//! Converts between the clock of the history and civil time, and finds intervals in which the cluster could not act.

use crate::events::FaultKind;
use crate::history::History;

/// A lease, and the margin that a leader waits after it before it revokes claims (P9).
pub const LEASE_MS: u64 = 4_000 + 1_000;

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

impl History {
    /// Returns the civil time of the cluster at an instant of the history.
    pub fn civil_ms(&self, at_ns: u64) -> i64 {
        let moves = self.clock_moves.partition_point(|(moved_ns, _)| *moved_ns <= at_ns);
        let offset = moves.checked_sub(1).and_then(|last| self.clock_moves.get(last)).map_or(0, |(_, offset)| *offset);
        let passed = i64::try_from(at_ns / MS).unwrap_or(i64::MAX);
        self.header.began_unix_ms.saturating_add(passed).saturating_add(offset)
    }

    /// Returns the first instant of the history at which civil time has reached `civil_ms`.
    pub fn ns_of(&self, civil_ms: i64) -> u64 {
        let stretches = std::iter::once((0, 0)).chain(self.clock_moves.iter().copied());
        let ends = self.clock_moves.iter().map(|(at_ns, _)| *at_ns).chain([u64::MAX]);
        let reached = stretches.zip(ends).map(|((from_ns, offset_ms), until_ns)| {
            let passed_ms = civil_ms.saturating_sub(self.header.began_unix_ms).saturating_sub(offset_ms);
            (u64::try_from(passed_ms).unwrap_or(0).saturating_mul(MS).max(from_ns), until_ns)
        });
        reached.into_iter().find(|(at_ns, until_ns)| at_ns < until_ns).map_or(u64::MAX, |(at_ns, _)| at_ns)
    }

    /// Returns true if between these civil times some interval had no acting quorum, or the clock was moved by hand.
    pub fn was_hindered(&self, from_ms: i64, to_ms: i64) -> bool {
        self.hindrances(from_ms, to_ms, 0).next().is_some()
    }

    /// Returns the civil intervals that had no acting quorum, or in which the clock was moved by hand, if they overlap
    /// this interval when each is longer by `wait_ms`.
    fn hindrances(&self, from_ms: i64, to_ms: i64, wait_ms: u64) -> impl Iterator<Item = (i64, i64)> {
        let outages = self.outages.iter().map(|outage| (outage.from_ns, outage.until_ns));
        let moves = self.clock_moves.iter().map(|(at_ns, _)| (at_ns.saturating_sub(1), *at_ns));
        let civil =
            outages.chain(moves).map(move |(from_ns, until_ns)| (self.civil_ms(from_ns), self.civil_ms(until_ns)));
        civil.filter(move |(first, last)| *first <= to_ms && last.saturating_add_unsigned(wait_ms) >= from_ms)
    }

    /// Returns true if a clock was wrong at some time of an interval.
    pub fn has_wrong_clock(&self, from_ns: u64, to_ns: u64) -> bool {
        self.possible_faults_of(FaultKind::Clock).any(|fault| fault.from_ns <= to_ns && fault.over_ns() >= from_ns)
    }

    /// Returns the start of the next process of a node after this instant.
    pub fn next_start(&self, node: &str, after_ns: u64) -> Option<u64> {
        let later = self.lifetimes.iter().filter(|lifetime| lifetime.node == node && lifetime.started_ns > after_ns);
        later.map(|lifetime| lifetime.started_ns).min()
    }

    /// Returns the length of a civil interval without outages and clock moves. Each of them counts until two leases and
    /// margins after its end: a new leader first waits one lease and margin until no other leader can act, and gets the
    /// same time again for the backlog.
    pub fn unhindered_ms(&self, from_ms: i64, to_ms: i64) -> i64 {
        let mut hindrances: Vec<(i64, i64)> = self.hindrances(from_ms, to_ms, 2 * LEASE_MS).collect();
        hindrances.sort_unstable();
        let (mut left, mut reached) = (to_ms.saturating_sub(from_ms).max(0), from_ms);
        for (first, last) in hindrances {
            let (first, last) = (first.max(reached), last.saturating_add_unsigned(2 * LEASE_MS).min(to_ms));
            left -= last.saturating_sub(first).max(0);
            reached = reached.max(last);
        }
        left
    }
}

/// Returns the milliseconds as text in seconds.
pub fn seconds(ms: i64) -> String {
    format!("{:.3} s", ms as f64 / 1_000.0)
}
