//! Nodes that ask for their lease but do not apply what is granted to them (P12).
//!
//! A node whose own port is closed, or whose log's disk hangs, asks its leader every second, and learns of no claim. Each
//! question says what the node has applied: its state is as old as the first entry that it lacks. A refused lease only
//! leaves out a grant, so it is safe: claims are revoked when the last grant is over (P9), and the floor of that
//! revocation keeps the node's gates closed until it has applied it (P14).
//!
//! - Older than [`FRESH`]: no claims.
//! - Older than [`BEGIN_WITHIN`] while it holds a claim that it has not applied: no lease. It cannot have begun it.
//! - Older than [`SILENT`] while it holds any claim: no lease. It may not hear the leader's answers, and settles nothing.

use std::collections::VecDeque;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::ids::ClaimOwner;

use crate::node::limits::BEGIN_WITHIN;

/// A node whose state is older gets no claims. A follower learns of a commit by the next heartbeat, and then it
/// applies it; a node that is merely busy gets claims again with its next question.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// A node whose state is older holds no claims: longer than it takes to prepare what it had begun.
const SILENT: Duration = Duration::from_secs(60);
/// Between two heights that are remembered.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// The applied index of the leader's own state over time, as far back as it is needed.
#[derive(Debug, Default)]
pub(crate) struct AppliedHistory(VecDeque<(Duration, u64)>);

impl AppliedHistory {
    /// At `now` the leader's state goes up to `applied`.
    pub fn note(&mut self, now: Duration, applied: u64) {
        if self.0.back().is_none_or(|(at, height)| applied > *height && now.saturating_sub(*at) >= NOTE_EVERY) {
            self.0.push_back((now, applied));
        }
        while self.0.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) > SILENT) {
            self.0.pop_front();
        }
    }

    /// How old a state is that goes up to `applied`: for how long the leader has known more than that. Rather too
    /// young than too old, and never older than this leadership.
    pub fn age(&self, applied: u64, now: Duration) -> Duration {
        let more = self.0.iter().find(|(_, height)| *height > applied);
        more.map_or(Duration::ZERO, |(at, _)| now.saturating_sub(*at))
    }
}

/// Must a owner that has applied so much, and whose state is so old, do without a lease?
pub(crate) fn is_lost(ledger: &Ledger, owner: ClaimOwner, applied: u64, age: Duration) -> bool {
    let mut held = ledger.claims().iter().filter(|(_, claim)| claim.owner == owner && !claim.claimed.is_empty());
    age > BEGIN_WITHIN && held.any(|(fence, _)| fence.index > applied || age > SILENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn state_age_is_that_of_first_lacking_entry() {
        let mut heights = AppliedHistory::default();
        for (now, applied) in [(1_000, 5), (2_000, 5), (3_000, 6), (4_000, 9)] {
            heights.note(at(now), applied);
        }
        assert_eq!(heights.age(9, at(5_000)), at(0));
        assert_eq!(heights.age(20, at(5_000)), at(0), "it may be ahead of what was noted");
        assert_eq!(heights.age(8, at(5_000)), at(1_000));
        assert_eq!(heights.age(6, at(5_000)), at(1_000));
        assert_eq!(heights.age(5, at(5_000)), at(2_000));
        assert_eq!(heights.age(4, at(5_000)), at(4_000), "not older than what the leader remembers");
    }

    #[test]
    fn quiet_cluster_has_no_old_states_and_busy_one_few_heights() {
        let mut heights = AppliedHistory::default();
        heights.note(at(0), 7);
        heights.note(at(600_000), 7);
        assert_eq!(heights.age(7, at(600_000)), at(0));
        for now in 600_000..700_000 {
            heights.note(at(now), now);
        }
        assert!(heights.0.len() < 610, "{}", heights.0.len());
        let age = heights.age(7, at(700_000));
        assert!(age >= SILENT && age < SILENT + at(200), "{age:?}");
    }
}
