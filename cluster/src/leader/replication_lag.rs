//! Refuses work and leases to nodes that request leases but do not apply the log (P12).
//!
//! A node whose peer port is closed, or whose log disk hangs, sends its lease requests but learns of no claim. Each
//! request reports the applied index; the age of the node's state is the age of the first entry that it lacks. Refusing
//! a lease is safe: the node's claims are revoked when its last lease has ended, and its next lease is valid only for
//! states that include the revocation (P9).
//! - Age above [`FRESH`]: no claims.
//! - Age above [`SESSION_WITHIN`], and the node owns a claim that it has not applied and so cannot have begun: no
//!   lease.
//! - Age above [`SILENT`], and the node owns any claim: no lease. It may not receive the leader's answers, and settles
//!   nothing.

use std::collections::VecDeque;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::ids::ClaimOwner;

use crate::process::limits::SESSION_WITHIN;

/// A node whose state is older gets no claims. A healthy follower learns of a commit with the next heartbeat and
/// applies it. A node that was only busy gets claims again with its next request.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// A node whose state is older keeps no claims. By then each email that it had begun has passed its gate or was given
/// up.
const SILENT: Duration = Duration::from_secs(60);
/// Minimum time between two remembered indices.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// The leader's own applied index over time, for the last [`SILENT`].
#[derive(Debug, Default)]
pub(crate) struct AppliedHistory(VecDeque<(Duration, u64)>);

impl AppliedHistory {
    /// Records that the leader has applied the log up to `applied` at `now`.
    pub fn record(&mut self, now: Duration, applied: u64) {
        if self.0.back().is_none_or(|(at, height)| applied > *height && now.saturating_sub(*at) >= NOTE_EVERY) {
            self.0.push_back((now, applied));
        }
        while self.0.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) > SILENT) {
            self.0.pop_front();
        }
    }

    /// Returns the age of a state with the index `applied`: the time since this leader has known a later entry. The
    /// result is rather too low than too high, and never more than the age of this leadership.
    pub fn age(&self, applied: u64, now: Duration) -> Duration {
        let more = self.0.iter().find(|(_, height)| *height > applied);
        more.map_or(Duration::ZERO, |(at, _)| now.saturating_sub(*at))
    }
}

/// Returns true if an owner with this applied index and age of state must not get a lease.
pub(crate) fn must_lose_lease(ledger: &Ledger, owner: ClaimOwner, applied: u64, age: Duration) -> bool {
    let mut held = ledger.claims().iter().filter(|(_, claim)| claim.owner == owner && !claim.claimed.is_empty());
    age > SESSION_WITHIN && held.any(|(fence, _)| fence.index > applied || age > SILENT)
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
            heights.record(at(now), applied);
        }
        assert_eq!(heights.age(9, at(5_000)), at(0));
        assert_eq!(heights.age(20, at(5_000)), at(0), "it may be ahead of what was recorded");
        assert_eq!(heights.age(8, at(5_000)), at(1_000));
        assert_eq!(heights.age(6, at(5_000)), at(1_000));
        assert_eq!(heights.age(5, at(5_000)), at(2_000));
        assert_eq!(heights.age(4, at(5_000)), at(4_000), "not older than what the leader remembers");
    }

    #[test]
    fn quiet_cluster_has_no_old_states_and_busy_one_few_heights() {
        let mut heights = AppliedHistory::default();
        heights.record(at(0), 7);
        heights.record(at(600_000), 7);
        assert_eq!(heights.age(7, at(600_000)), at(0));
        for now in 600_000..700_000 {
            heights.record(at(now), now);
        }
        assert!(heights.0.len() < 610, "{}", heights.0.len());
        let age = heights.age(7, at(700_000));
        assert!(age >= SILENT && age < SILENT + at(200), "{age:?}");
    }
}
