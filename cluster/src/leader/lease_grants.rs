//! The leader's part of the node lease (P9): what it has granted, and when it may treat a lease as over.
//!
//! **Floors.** A grant carries a floor: the index of the last entry that took from the node a right to hand off. Such
//! entries are an opt-out, a cancel, the quarantine of a run, a pause by an operator, and a revocation of the node's
//! claims. Under that grant a gate passes only in a state that includes the entry. An older grant runs to its own end
//! and is not prolonged. So a node that was waited out cannot return with an old state, and every barrier ends with the
//! grants that were given before it. (Without floors the model finds a violation within eight steps.) A pause by a
//! guard of the run (P6) sets no floor: no barrier waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use reveille_ledger::ids::ClaimOwner;

use crate::process::lease::{LEASE, LeaseGrant, MARGIN, add_grant};

/// Reason why the leader grants no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefused {
    /// No quorum has answered the leader within the length of a lease. It may be deposed without knowing it.
    #[error("the leader has not heard from a quorum within the length of a lease")]
    NoQuorum,
    /// The leader's epoch is over.
    #[error("the leader's epoch is over")]
    EpochOver,
    /// The node was removed (P22).
    #[error("this node was removed from the cluster")]
    Removed,
    /// A revocation of this owner's claims is proposed and not known to be applied.
    #[error("claims of this node are being revoked")]
    Revoking,
    /// The node's state is too old for a lease while it owns claims (see `replication_lag`).
    #[error("this node does not apply what is granted to it: it is too far behind the leader")]
    Behind,
}

/// Leases that the leader of one epoch has granted. Dropped with its leadership.
#[derive(Debug)]
pub struct LeaseGrants {
    epoch_applied_at: Duration,
    grants: BTreeMap<ClaimOwner, Vec<LeaseGrant>>,
    /// Owners that get no lease, each with its latest revocation that is not known to be applied.
    revocations: BTreeMap<ClaimOwner, Revocation>,
    last_revocation: u64,
}

/// Number of a proposed revocation, for [`LeaseGrants::revoked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revocation(u64);

impl LeaseGrants {
    /// Creates the grants of an epoch whose `EpochStart` was applied at `epoch_applied_at`. All leases of former
    /// leaders are over a lease and a margin later.
    pub fn new(epoch_applied_at: Duration) -> LeaseGrants {
        LeaseGrants { epoch_applied_at, grants: BTreeMap::new(), revocations: BTreeMap::new(), last_revocation: 0 }
    }

    /// Grants a lease at `now` with this `floor`. It never ends later than a lease length after the quorum's last
    /// acknowledgement. Returns its length.
    ///
    /// # Errors
    /// [`LeaseRefused::Revoking`] or [`LeaseRefused::NoQuorum`].
    pub fn grant(
        &mut self,
        owner: ClaimOwner,
        floor: u64,
        now: Duration,
        last_quorum_ack: Option<Duration>,
    ) -> Result<Duration, LeaseRefused> {
        if self.revocations.contains_key(&owner) {
            return Err(LeaseRefused::Revoking);
        }
        let covered_until = last_quorum_ack.ok_or(LeaseRefused::NoQuorum)? + LEASE;
        let end = covered_until.min(now + LEASE);
        if end <= now {
            return Err(LeaseRefused::NoQuorum);
        }
        // Grants that ended more than a margin ago have no effect, so past incarnations are forgotten.
        let over_before = now.saturating_sub(MARGIN);
        self.grants.retain(|_, grants| grants.iter().any(|grant| grant.end >= over_before));
        add_grant(self.grants.entry(owner).or_default(), LeaseGrant { end, floor }, over_before);
        Ok(end - now)
    }

    /// Returns true if every grant to this owner with a floor below `index` is over at `now`, margin included.
    pub fn is_over_below(&self, owner: ClaimOwner, index: u64, now: Duration) -> bool {
        let inherited = self.epoch_applied_at + LEASE;
        let given = self.grants.get(&owner).into_iter().flatten().filter(|grant| grant.floor < index);
        let last = given.map(|grant| grant.end).max().unwrap_or_default().max(inherited);
        now > last + MARGIN
    }

    /// Returns true if all leases of the owner are over at `now`, margin included. Only then may its claims be revoked.
    pub fn is_over(&self, owner: ClaimOwner, now: Duration) -> bool {
        self.is_over_below(owner, u64::MAX, now)
    }

    /// Returns true if the owner has a lease of this leader at `now`. Only such an owner gets claims.
    pub fn has_lease(&self, owner: ClaimOwner, now: Duration) -> bool {
        self.grants.get(&owner).is_some_and(|grants| grants.iter().any(|grant| now < grant.end))
    }

    /// Blocks leases of these owners before a revocation of their claims is proposed. The block stays until the
    /// revocation is known to be applied; a timeout of the proposal does not remove it.
    pub fn revoke(&mut self, owners: impl IntoIterator<Item = ClaimOwner>) -> Revocation {
        self.last_revocation += 1;
        let revocation = Revocation(self.last_revocation);
        self.revocations.extend(owners.into_iter().map(|owner| (owner, revocation)));
        revocation
    }

    /// Removes the block of a revocation that was applied, and of all earlier ones: each of those was applied too, or
    /// never will be.
    pub fn revoked(&mut self, revocation: Revocation) {
        self.revocations.retain(|_, blocking| *blocking > revocation);
    }

    /// Returns true if any owner is blocked by a revocation.
    pub fn is_revoking(&self) -> bool {
        !self.revocations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::{Incarnation, NodeId, Time};

    use super::*;
    use crate::process::lease::{ClockJumps, NodeLease};

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn owner(incarnation: u64) -> ClaimOwner {
        ClaimOwner { node: NodeId(1), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn lease_ends_at_the_node_before_it_ends_at_the_leader() {
        let cases = [(1_000, 1_000, 1_000), (1_000, 2_500, 2_400), (1_000, 1_900, 500), (0, 3_999, 10)];
        for (sent, received, quorum) in cases {
            let (node, mut grants) = (NodeLease::default(), LeaseGrants::new(at(0)));
            let Ok(length) = grants.grant(owner(1), 0, at(received), Some(at(quorum))) else { continue };
            node.prolong(at(sent), length, 0);
            for now in (0..20_000).map(at) {
                assert!(!(node.is_valid(now, 0) && grants.is_over(owner(1), now)), "P9 at {now:?}");
            }
        }
    }

    #[test]
    fn leader_without_quorum_grants_no_lease() {
        let mut grants = LeaseGrants::new(at(0));
        assert_eq!(grants.grant(owner(1), 0, at(5_000), None), Err(LeaseRefused::NoQuorum));
        assert_eq!(grants.grant(owner(1), 0, at(5_000), Some(at(1_000))), Err(LeaseRefused::NoQuorum));
        assert_eq!(grants.grant(owner(1), 0, at(5_000), Some(at(1_500))), Ok(at(500)));
    }

    #[test]
    fn lease_of_former_leader_is_waited_out() {
        let grants = LeaseGrants::new(at(10_000));
        assert!(!grants.is_over(owner(1), at(15_000)));
        assert!(grants.is_over(owner(1), at(15_001)));
    }

    #[test]
    fn new_incarnation_does_not_end_lease_of_the_old_one() {
        let mut grants = LeaseGrants::new(at(0));
        grants.grant(owner(1), 0, at(20_000), Some(at(20_000))).expect("granted");
        grants.grant(owner(2), 0, at(21_000), Some(at(21_000))).expect("granted");
        assert!(!grants.is_over(owner(1), at(25_000)));
        assert!(grants.is_over(owner(1), at(25_001)));
    }

    #[test]
    fn grants_of_incarnations_that_are_over_are_forgotten() {
        let mut grants = LeaseGrants::new(at(0));
        for incarnation in 1..=100 {
            let now = at(20_000 * incarnation);
            grants.grant(owner(incarnation), 0, now, Some(now)).expect("granted");
            assert!(!grants.is_over(owner(incarnation), now));
        }
        assert_eq!(grants.grants.len(), 1);
        assert!((1..100).all(|incarnation| grants.is_over(owner(incarnation), at(2_000_000))));
    }

    #[test]
    fn waited_out_node_gets_no_lease_on_old_state() {
        let (node, mut grants) = (NodeLease::default(), LeaseGrants::new(at(0)));
        let length = grants.grant(owner(1), 7, at(10_000), Some(at(10_000))).expect("granted");
        node.prolong(at(10_000), length, 7);
        // Entry 8 raises the floor. The node renews its lease but has not applied the entry.
        let length = grants.grant(owner(1), 8, at(11_000), Some(at(11_000))).expect("granted");
        node.prolong(at(11_000), length, 8);
        assert!(node.is_valid(at(13_999), 7), "the older grant runs to its own end");
        assert!(!node.is_valid(at(14_000), 7), "P9: and is not prolonged");
        assert!(node.is_valid(at(14_999), 8), "with the entry applied, the newer one counts");
        assert!(!grants.is_over_below(owner(1), 8, at(15_000)));
        assert!(grants.is_over_below(owner(1), 8, at(15_001)), "P15: so the barrier at 8 ends");
        assert!(!grants.is_over(owner(1), at(16_000)));
    }

    #[test]
    fn owner_gets_no_lease_during_revocation() {
        let mut grants = LeaseGrants::new(at(0));
        let first = grants.revoke([owner(1)]);
        let second = grants.revoke([owner(2)]);
        assert_eq!(grants.grant(owner(1), 0, at(9_000), Some(at(9_000))), Err(LeaseRefused::Revoking));
        grants.revoked(first);
        assert!(grants.grant(owner(1), 0, at(9_000), Some(at(9_000))).is_ok());
        assert_eq!(grants.grant(owner(2), 0, at(9_000), Some(at(9_000))), Err(LeaseRefused::Revoking));
        grants.revoked(second);
        assert!(!grants.is_revoking());
    }

    #[test]
    fn late_answer_does_not_shorten_newer_lease() {
        let lease = NodeLease::default();
        lease.prolong(at(2_000), at(4_000), 0);
        lease.prolong(at(1_000), at(4_000), 0);
        assert!(lease.is_valid(at(5_999), 0));
        assert!(!lease.is_valid(at(6_000), 0));
    }

    #[test]
    fn jump_of_wall_clock_ends_lease_and_voids_answers_under_way() {
        let (lease, jumps) = (NodeLease::default(), ClockJumps::default());
        let wall = |boot_ms: i64, ahead_ms: i64| Time(1_700_000_000_000 + boot_ms + ahead_ms);
        assert!(!jumps.record(wall(1_000, 0), at(1_000)), "the first reading");
        lease.prolong(at(1_000), at(4_000), 0);
        assert!(!jumps.record(wall(2_000, 1_000), at(2_000)), "a second is not beyond a second");
        assert!(lease.is_valid(at(2_000), 0));
        assert!(jumps.record(wall(2_500, 61_000), at(2_500)), "the machine stood still for a minute");
        lease.end_before(at(2_500));
        assert_eq!(jumps.last(), at(2_500));
        assert!(!lease.is_valid(at(2_500), 0));
        lease.prolong(at(2_400), at(4_000), 0);
        assert!(!lease.is_valid(at(2_600), 0), "P9: asked before the machine stood still");
        lease.prolong(at(2_500), at(4_000), 0);
        assert!(lease.is_valid(at(2_600), 0));
        assert!(jumps.record(wall(3_000, -5_000), at(3_000)), "back counts as well");
        assert!(!jumps.record(wall(4_000, -5_000), at(4_000)));
    }
}
