//! A holder that asks for its lease and does not apply what is granted to it (P12).
//!
//! Asking and applying go different ways: a node whose own port is shut, or whose log's disk hangs, asks its leader
//! every second and learns of no claim. What it is granted then nobody begins and nobody gives back, and while its
//! lease runs nobody takes it away. So each question says what the node has applied, and the leader knows by that how
//! old the node's state is: since when it itself has known an entry that the node has not applied.
//!
//! - A node whose state is older than [`FRESH`] gets no claims.
//! - One whose state is older than [`BEGIN_WITHIN`], and which holds a row that it has not applied, gets no lease: in
//!   all that time it cannot have begun the row nor given it back. Without such a row it keeps its lease: what it holds
//!   it knows, and a state that comes in a snapshot may take its time.
//! - One whose state is older than [`SILENT`], and which holds any row, gets no lease either. Its questions arrive, but
//!   what keeps its state old may keep back the leader's answers too: then it would settle nothing, and the row would
//!   be its own for ever (I13; seed 3 of the simulation).
//!
//! A refusal only leaves out grants, as a leader that is not heard does: what was granted runs to its own end, and
//! rows are revoked when that is over (P9). By the floor of that revocation no gate of the node passes before it has
//! applied it; then it gives back by its own word what it has never begun (P14).

use std::collections::VecDeque;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::ids::ClaimOwner;

use crate::worker::claim::BEGIN_WITHIN;

/// A node whose state is older gets no claims. A follower learns of a commit by the next heartbeat, and then it
/// applies it; a node that is merely busy gets claims again with its next question.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// A node whose state is older holds no rows: longer than it takes to prepare what it had begun.
const SILENT: Duration = Duration::from_secs(60);
/// Between two heights that are remembered.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// Up to where the leader's own state went, and when: as far back as somebody is asked about.
#[derive(Debug, Default)]
pub(crate) struct Heights(VecDeque<(Duration, u64)>);

impl Heights {
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

/// Must a holder that has applied so much, and whose state is so old, do without a lease?
pub(crate) fn is_lost(ledger: &Ledger, holder: ClaimOwner, applied: u64, age: Duration) -> bool {
    let mut held = ledger.claims().iter().filter(|(_, row)| row.owner == holder && !row.claimed.is_empty());
    age > BEGIN_WITHIN && held.any(|(fence, _)| fence.index > applied || age > SILENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_state_is_as_old_as_the_first_entry_that_it_lacks() {
        let mut heights = Heights::default();
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
    fn a_quiet_cluster_has_no_old_states_and_a_busy_one_not_too_many_heights() {
        let mut heights = Heights::default();
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
