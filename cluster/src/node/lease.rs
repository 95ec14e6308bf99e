//! The node lease (P9): who may pass a gate, and for how long.
//!
//! Two sides. A node keeps a [`NodeLease`]: until when it may pass gates, counted from when it *sent* the
//! question that was granted. The leader keeps [`Grants`]: what it has granted, and from when on it may regard
//! a lease as over. The leader's instant is never before the node's, whatever the network did to the answer,
//! because it counts from when it answered and adds a margin.
//!
//! **Floors.** A grant carries the index of the last entry that forbids hand-offs which the node may have been
//! granted before (an opt-out, a pause, a cancel, a revocation of its rows). Under that grant a gate passes
//! only in a state that includes the entry; an older grant runs on to its own end and is not prolonged. So a
//! node that was waited out cannot come back on an old state, and every barrier ends with the grants that
//! were given before it. (The model falls within eight steps without this.)
//!
//! All instants are CLOCK_BOOTTIME, which goes on while a machine sleeps. It stands still in a guest that its
//! hypervisor stops, and [`ClockJumps`] notices when the wall clock of such a guest is put right. Applying an entry
//! starts or prolongs nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use reveille_ledger::ids::{ClaimOwner, Time};

/// How long a lease lasts from when the question was sent.
pub const LEASE: Duration = Duration::from_secs(4);
/// What the leader waits beyond a lease before it regards it as over: what two clocks may differ in
/// speed, and what a gate needs between its look and its write.
pub const MARGIN: Duration = Duration::from_secs(1);
/// How often a node asks: a lease survives two lost questions.
pub const ASK_EVERY: Duration = Duration::from_secs(1);

// A node must be able to lose two questions in a row, and its answer may take as long as one.
const _: () = assert!(LEASE.as_millis() > 3 * ASK_EVERY.as_millis());

/// One grant: until when, and from which state on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    end: Duration,
    floor: u64,
}

/// A list of grants in which each is of use: a later one has a later end or a lower floor.
fn keep(grants: &mut Vec<Grant>, grant: Grant, now: Duration) {
    grants.retain(|known| known.end > now && !(known.end <= grant.end && known.floor >= grant.floor));
    if !grants.iter().any(|known| known.end >= grant.end && known.floor <= grant.floor) {
        grants.push(grant);
    }
}

/// A jump of the wall clock against CLOCK_BOOTTIME beyond this, between two looks, ends the lease. Slewing and drift
/// stay far below it. Milliseconds.
const JUMP_MS_MAX: u64 = 1_000;

/// Notices that the wall clock has jumped against CLOCK_BOOTTIME: a hypervisor had stopped this machine, or its clock
/// was stepped. The two cannot be told apart, and a lease that ends too early costs one question.
#[derive(Debug, Default)]
pub struct ClockJumps(Mutex<Looks>);

#[derive(Debug, Default)]
struct Looks {
    /// Wall clock less CLOCK_BOOTTIME at the last look. Milliseconds.
    difference_ms: Option<i64>,
    last_jump: Duration,
}

impl ClockJumps {
    /// Takes in one reading of both clocks; true if the wall clock has jumped since the last one.
    pub fn look(&self, wall: Time, boot: Duration) -> bool {
        let boot_ms = i64::try_from(boot.as_millis()).unwrap_or(i64::MAX);
        let difference_ms = wall.0.saturating_sub(boot_ms);
        let mut looks = self.0.lock();
        let before = looks.difference_ms.replace(difference_ms);
        let jumped = before.is_some_and(|before| before.abs_diff(difference_ms) > JUMP_MS_MAX);
        if jumped {
            looks.last_jump = boot;
        }
        jumped
    }

    /// When the last jump was seen, on CLOCK_BOOTTIME: zero if there was none. What was measured before says nothing
    /// of how much time has passed since.
    pub fn last(&self) -> Duration {
        self.0.lock().last_jump
    }
}

/// A node's own lease: the grants that run. At most one for each question within the length of a lease.
#[derive(Debug, Default)]
pub struct NodeLease {
    state: Mutex<LeaseState>,
}

#[derive(Debug, Default)]
struct LeaseState {
    grants: Vec<Grant>,
    /// Questions that were sent before this are worth nothing.
    asked_since: Duration,
}

impl NodeLease {
    /// Takes a grant of `length` from `floor` on, for a question that was sent at `sent_at`. An older answer
    /// that comes late shortens nothing.
    pub fn prolong(&self, sent_at: Duration, length: Duration, floor: u64) {
        let mut state = self.state.lock();
        if sent_at >= state.asked_since {
            keep(&mut state.grants, Grant { end: sent_at + length, floor }, sent_at);
        }
    }

    /// Gives the lease up, as a stopping node does before it says so.
    pub fn end(&self) {
        self.state.lock().grants.clear();
    }

    /// The clock has jumped: what was granted, and whatever answers a question that was sent before `now`, is void.
    pub fn end_before(&self, now: Duration) {
        *self.state.lock() = LeaseState { grants: Vec::new(), asked_since: now };
    }

    /// May a gate that decides by a state at `applied` pass at `now`?
    pub fn runs(&self, now: Duration, applied: u64) -> bool {
        self.state.lock().grants.iter().any(|grant| now < grant.end && grant.floor <= applied)
    }
}

/// Why the leader grants no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// No quorum has answered the leader lately: it may be deposed and not know it.
    #[error("the leader has not heard from a quorum within the length of a lease")]
    NoQuorum,
    /// Another epoch is in force.
    #[error("the leader's epoch is over")]
    EpochOver,
    /// A revocation of this holder's rows is on its way into the log.
    #[error("rows of this node are being revoked")]
    Revoking,
    /// It has not applied a claim that it holds for so long that it cannot have begun it.
    #[error("this node does not apply what is granted to it: it is too far behind the leader")]
    Behind,
}

/// What the leader of one epoch has granted. Dropped with its term.
#[derive(Debug)]
pub struct Grants {
    since: Duration,
    given: BTreeMap<ClaimOwner, Vec<Grant>>,
    revoking: BTreeMap<ClaimOwner, u64>,
    proposals: u64,
}

/// A revocation on its way: what [`Grants::revoked`] takes when it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation(u64);

impl Grants {
    /// For an epoch whose `EpochStart` was applied at `since`. What former leaders granted is over a lease
    /// and a margin after that.
    pub fn new(since: Duration) -> Grants {
        Grants { since, given: BTreeMap::new(), revoking: BTreeMap::new(), proposals: 0 }
    }

    /// Grants a lease at `now` from `floor` on, never beyond what the quorum's last acknowledgement covers;
    /// answers its length.
    pub fn grant(
        &mut self,
        holder: ClaimOwner,
        floor: u64,
        now: Duration,
        last_quorum_ack: Option<Duration>,
    ) -> Result<Duration, NotGranted> {
        if self.revoking.contains_key(&holder) {
            return Err(NotGranted::Revoking);
        }
        let covered_until = last_quorum_ack.ok_or(NotGranted::NoQuorum)? + LEASE;
        let end = covered_until.min(now + LEASE);
        if end <= now {
            return Err(NotGranted::NoQuorum);
        }
        // What is over for longer than the margin holds nothing back: lives that are gone are forgotten.
        let over_before = now.saturating_sub(MARGIN);
        self.given.retain(|_, grants| grants.iter().any(|grant| grant.end >= over_before));
        keep(self.given.entry(holder).or_default(), Grant { end, floor }, over_before);
        Ok(end - now)
    }

    /// May the leader regard every grant to this holder with a floor below `index` as over at `now`?
    pub fn is_over_below(&self, holder: ClaimOwner, index: u64, now: Duration) -> bool {
        let inherited = self.since + LEASE;
        let given = self.given.get(&holder).into_iter().flatten().filter(|grant| grant.floor < index);
        let last = given.map(|grant| grant.end).max().unwrap_or_default().max(inherited);
        now > last + MARGIN
    }

    /// May the leader regard the holder's lease as over at `now`? Only then are its rows revoked.
    pub fn is_over(&self, holder: ClaimOwner, now: Duration) -> bool {
        self.is_over_below(holder, u64::MAX, now)
    }

    /// Does the holder have a lease of this leader that runs at `now`? Only such a one gets claims.
    pub fn runs(&self, holder: ClaimOwner, now: Duration) -> bool {
        self.given.get(&holder).is_some_and(|grants| grants.iter().any(|grant| now < grant.end))
    }

    /// A revocation of these holders' rows is about to be proposed: until it is known to be applied they are
    /// granted nothing. A time-out of the proposal ends nothing.
    pub fn revoke(&mut self, holders: impl IntoIterator<Item = ClaimOwner>) -> Revocation {
        self.proposals += 1;
        self.revoking.extend(holders.into_iter().map(|holder| (holder, self.proposals)));
        Revocation(self.proposals)
    }

    /// The revocation was applied, and so was, or never will be, every one that this leader proposed before.
    pub fn revoked(&mut self, revocation: Revocation) {
        self.revoking.retain(|_, proposal| *proposal > revocation.0);
    }

    /// Is any revocation on its way?
    pub fn is_revoking(&self) -> bool {
        !self.revoking.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_ledger::ids::{Incarnation, NodeId};

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn holder(incarnation: u64) -> ClaimOwner {
        ClaimOwner { node: NodeId(1), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn the_leader_never_regards_a_lease_as_over_before_its_node_does() {
        let cases = [(1_000, 1_000, 1_000), (1_000, 2_500, 2_400), (1_000, 1_900, 500), (0, 3_999, 10)];
        for (sent, received, quorum) in cases {
            let (node, mut grants) = (NodeLease::default(), Grants::new(at(0)));
            let Ok(length) = grants.grant(holder(1), 0, at(received), Some(at(quorum))) else { continue };
            node.prolong(at(sent), length, 0);
            for now in (0..20_000).map(at) {
                assert!(!(node.runs(now, 0) && grants.is_over(holder(1), now)), "P9 at {now:?}");
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
    fn grants_of_lives_that_are_over_are_forgotten() {
        let mut grants = Grants::new(at(0));
        for life in 1..=100 {
            let now = at(20_000 * life);
            grants.grant(holder(life), 0, now, Some(now)).expect("granted");
            assert!(!grants.is_over(holder(life), now));
        }
        assert_eq!(grants.given.len(), 1);
        assert!((1..100).all(|life| grants.is_over(holder(life), at(2_000_000))));
    }

    #[test]
    fn a_node_that_was_waited_out_cannot_come_back_on_an_old_state() {
        let (node, mut grants) = (NodeLease::default(), Grants::new(at(0)));
        let length = grants.grant(holder(1), 7, at(10_000), Some(at(10_000))).expect("granted");
        node.prolong(at(10_000), length, 7);
        // Entry 8 forbids something; the node renews, but has not applied it.
        let length = grants.grant(holder(1), 8, at(11_000), Some(at(11_000))).expect("granted");
        node.prolong(at(11_000), length, 8);
        assert!(node.runs(at(13_999), 7), "the older grant runs to its own end");
        assert!(!node.runs(at(14_000), 7), "P9: and is not prolonged");
        assert!(node.runs(at(14_999), 8), "with the entry applied, the newer one counts");
        assert!(!grants.is_over_below(holder(1), 8, at(15_000)));
        assert!(grants.is_over_below(holder(1), 8, at(15_001)), "P15: so the barrier at 8 ends");
        assert!(!grants.is_over(holder(1), at(16_000)));
    }

    #[test]
    fn while_its_rows_are_being_revoked_a_holder_is_granted_nothing() {
        let mut grants = Grants::new(at(0));
        let first = grants.revoke([holder(1)]);
        let second = grants.revoke([holder(2)]);
        assert_eq!(grants.grant(holder(1), 0, at(9_000), Some(at(9_000))), Err(NotGranted::Revoking));
        grants.revoked(first);
        assert!(grants.grant(holder(1), 0, at(9_000), Some(at(9_000))).is_ok());
        assert_eq!(grants.grant(holder(2), 0, at(9_000), Some(at(9_000))), Err(NotGranted::Revoking));
        grants.revoked(second);
        assert!(!grants.is_revoking());
    }

    #[test]
    fn a_late_answer_does_not_shorten_a_newer_lease() {
        let lease = NodeLease::default();
        lease.prolong(at(2_000), at(4_000), 0);
        lease.prolong(at(1_000), at(4_000), 0);
        assert!(lease.runs(at(5_999), 0));
        assert!(!lease.runs(at(6_000), 0));
    }

    #[test]
    fn jump_of_wall_clock_ends_lease_and_voids_answers_under_way() {
        let (lease, jumps) = (NodeLease::default(), ClockJumps::default());
        let wall = |boot_ms: i64, ahead_ms: i64| Time(1_700_000_000_000 + boot_ms + ahead_ms);
        assert!(!jumps.look(wall(1_000, 0), at(1_000)), "the first look");
        lease.prolong(at(1_000), at(4_000), 0);
        assert!(!jumps.look(wall(2_000, 1_000), at(2_000)), "a second is not beyond a second");
        assert!(lease.runs(at(2_000), 0));
        assert!(jumps.look(wall(2_500, 61_000), at(2_500)), "the machine stood still for a minute");
        lease.end_before(at(2_500));
        assert_eq!(jumps.last(), at(2_500));
        assert!(!lease.runs(at(2_500), 0));
        lease.prolong(at(2_400), at(4_000), 0);
        assert!(!lease.runs(at(2_600), 0), "P9: asked before the machine stood still");
        lease.prolong(at(2_500), at(4_000), 0);
        assert!(lease.runs(at(2_600), 0));
        assert!(jumps.look(wall(3_000, -5_000), at(3_000)), "back counts as well");
        assert!(!jumps.look(wall(4_000, -5_000), at(4_000)));
    }
}
