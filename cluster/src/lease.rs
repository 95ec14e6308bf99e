//! The node lease (P9): who may pass a gate, and for how long.
//!
//! Two sides. A node keeps a [`NodeLease`]: the instant up to which it may pass gates, counted from when it
//! *sent* the question that was granted. The leader keeps [`Grants`]: what it has granted, and from when on
//! it may regard a holder's lease as over. The leader's instant is never before the node's, whatever the
//! network did to the answer, because it counts from when it answered and adds a margin.
//!
//! All instants are CLOCK_BOOTTIME, which goes on while a machine sleeps. Applying an entry starts or
//! prolongs nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reveille_ledger::ids::Holder;

/// How long a lease lasts from when the question was sent.
pub const LEASE: Duration = Duration::from_secs(4);
/// What the leader waits beyond a lease before it regards it as over: what two clocks may differ in
/// speed, and what a gate needs between its look and its write.
pub const MARGIN: Duration = Duration::from_secs(1);
/// How often a node asks: a lease survives two lost questions.
pub const ASK_EVERY: Duration = Duration::from_secs(1);
/// A node that has been behind an open barrier for this long gets no lease, so that every barrier ends (P15).
pub const BEHIND_MAX: Duration = Duration::from_secs(1);

// A node must be able to lose two questions in a row, and its answer may take as long as one.
const _: () = assert!(LEASE.as_millis() > 3 * ASK_EVERY.as_millis());

/// A node's own lease. Zero: none.
#[derive(Debug, Default)]
pub struct NodeLease {
    ends_at_ms: AtomicU64,
}

impl NodeLease {
    /// Takes a grant of `length`, for a question that was sent at `sent_at`. An older answer that comes
    /// late does not shorten a newer one.
    pub fn prolong(&self, sent_at: Duration, length: Duration) {
        self.ends_at_ms.fetch_max((sent_at + length).as_millis() as u64, Ordering::SeqCst);
    }

    /// Gives the lease up, as a stopping node does.
    pub fn end(&self) {
        self.ends_at_ms.store(0, Ordering::SeqCst);
    }

    /// Does it run at `now`?
    pub fn runs(&self, now: Duration) -> bool {
        (now.as_millis() as u64) < self.ends_at_ms.load(Ordering::SeqCst)
    }
}

/// Why the leader grants no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// No quorum has answered the leader lately: it may be deposed and not know it.
    #[error("the leader has not heard from a quorum within the length of a lease")]
    NoQuorum,
    /// The node does not know an entry that forbids hand-offs (P15).
    #[error("this node has been behind an open barrier for a second: its gates do not know entry {0}")]
    Behind(u64),
}

/// What the leader of one epoch has granted. Dropped with its term.
#[derive(Debug)]
pub struct Grants {
    since: Duration,
    ends: BTreeMap<Holder, Duration>,
    barriers: BTreeMap<u64, Duration>,
}

impl Grants {
    /// For an epoch whose `EpochStart` was applied at `since`. What former leaders granted is over a lease
    /// and a margin after that.
    pub fn new(since: Duration) -> Grants {
        Grants { since, ends: BTreeMap::new(), barriers: BTreeMap::new() }
    }

    /// Grants a lease at `now`, never beyond what the quorum's last acknowledgement covers; answers its
    /// length.
    pub fn grant(
        &mut self,
        holder: Holder,
        applied: u64,
        now: Duration,
        last_quorum_ack: Option<Duration>,
    ) -> Result<Duration, NotGranted> {
        let behind = self.barriers.iter().find(|(index, opened)| {
            applied < **index && now.saturating_sub(**opened) >= BEHIND_MAX
        });
        if let Some((index, _)) = behind {
            return Err(NotGranted::Behind(*index));
        }
        let covered_until = last_quorum_ack.ok_or(NotGranted::NoQuorum)? + LEASE;
        let end = covered_until.min(now + LEASE);
        if end <= now {
            return Err(NotGranted::NoQuorum);
        }
        let known = self.ends.entry(holder).or_default();
        *known = (*known).max(end);
        Ok(end - now)
    }

    /// From when on may the leader regard the holder's lease as over?
    pub fn over_at(&self, holder: Holder) -> Duration {
        let inherited = self.since + LEASE;
        self.ends.get(&holder).copied().unwrap_or_default().max(inherited) + MARGIN
    }

    /// May the leader regard the holder's lease as over at `now`? Only then are its rows revoked.
    pub fn is_over(&self, holder: Holder, now: Duration) -> bool {
        now > self.over_at(holder)
    }

    /// Does the holder have a lease of this leader that runs at `now`? Only such a one gets claims.
    pub fn runs(&self, holder: Holder, now: Duration) -> bool {
        self.ends.get(&holder).is_some_and(|end| now < *end)
    }

    /// A barrier at this index is open from `now` on.
    pub fn open_barrier(&mut self, index: u64, now: Duration) {
        self.barriers.entry(index).or_insert(now);
    }

    /// The barrier at this index has ended.
    pub fn close_barrier(&mut self, index: u64) {
        self.barriers.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_ledger::ids::{Incarnation, NodeId};

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn holder(incarnation: u64) -> Holder {
        Holder { node: NodeId(1), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn the_leader_never_regards_a_lease_as_over_before_its_node_does() {
        for (sent, received, quorum) in [(1_000, 1_000, 1_000), (1_000, 2_500, 2_400), (1_000, 1_900, 500), (0, 3_999, 10)] {
            let (node, mut grants) = (NodeLease::default(), Grants::new(at(0)));
            let Ok(length) = grants.grant(holder(1), 0, at(received), Some(at(quorum))) else { continue };
            node.prolong(at(sent), length);
            for now in (0..20_000).map(at) {
                assert!(!(node.runs(now) && grants.is_over(holder(1), now)), "P9 at {now:?}");
            }
        }
    }

    #[test]
    fn a_leader_without_a_quorum_grants_nothing() {
        let mut grants = Grants::new(at(0));
        assert_eq!(grants.grant(holder(1), 0, at(5_000), None), Err(NotGranted::NoQuorum));
        assert_eq!(grants.grant(holder(1), 0, at(5_000), Some(at(1_000))), Err(NotGranted::NoQuorum));
        assert_eq!(grants.grant(holder(1), 0, at(5_000), Some(at(1_500))), Ok(at(500)));
    }

    #[test]
    fn what_a_former_leader_granted_is_waited_out() {
        let grants = Grants::new(at(10_000));
        assert!(!grants.is_over(holder(1), at(15_000)));
        assert!(grants.is_over(holder(1), at(15_001)));
    }

    #[test]
    fn a_new_life_does_not_end_the_lease_of_the_old_one() {
        let mut grants = Grants::new(at(0));
        grants.grant(holder(1), 0, at(20_000), Some(at(20_000))).expect("granted");
        grants.grant(holder(2), 0, at(21_000), Some(at(21_000))).expect("granted");
        assert!(!grants.is_over(holder(1), at(25_000)));
        assert!(grants.is_over(holder(1), at(25_001)));
    }

    #[test]
    fn a_node_behind_a_barrier_loses_its_lease_and_so_the_barrier_ends() {
        let mut grants = Grants::new(at(0));
        grants.open_barrier(100, at(1_000));
        assert!(grants.grant(holder(1), 99, at(1_900), Some(at(1_900))).is_ok(), "a second of patience");
        assert_eq!(grants.grant(holder(1), 99, at(2_000), Some(at(2_000))), Err(NotGranted::Behind(100)));
        assert!(grants.grant(holder(1), 100, at(2_000), Some(at(2_000))).is_ok(), "it has caught up");
        grants.close_barrier(100);
        assert!(grants.grant(holder(1), 99, at(2_100), Some(at(2_100))).is_ok());
    }

    #[test]
    fn a_late_answer_does_not_shorten_a_newer_lease() {
        let lease = NodeLease::default();
        lease.prolong(at(2_000), at(4_000));
        lease.prolong(at(1_000), at(4_000));
        assert!(lease.runs(at(5_999)));
        assert!(!lease.runs(at(6_000)));
    }
}
