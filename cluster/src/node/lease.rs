//! A node's side of the node lease (P9): until when it may pass gates.
//!
//! The lease counts from when the node *sent* the question that was granted. The leader's side is
//! `leader/lease_grants.rs`; its instant is never before the node's, because it counts from when it answered and adds a
//! margin.
//!
//! All instants are CLOCK_BOOTTIME, which goes on while a machine sleeps. It stands still in a guest that its hypervisor
//! stops; [`ClockJumps`] notices when the wall clock of such a guest is put right. Applying an entry starts or prolongs
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reveille_ledger::ids::Time;
use reveille_raft::Replica;

use super::clock::Clock;

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
pub(crate) struct LeaseGrant {
    pub end: Duration,
    pub floor: u64,
}

/// Keeps non-dominated grants only: a later one has a later end or a lower floor.
pub(crate) fn keep(grants: &mut Vec<LeaseGrant>, grant: LeaseGrant, now: Duration) {
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
    grants: Vec<LeaseGrant>,
    /// Questions that were sent before this are worth nothing.
    asked_since: Duration,
}

impl NodeLease {
    /// Takes a grant of `length` from `floor` on, for a question that was sent at `sent_at`. An older answer
    /// that comes late shortens nothing.
    pub fn prolong(&self, sent_at: Duration, length: Duration, floor: u64) {
        let mut state = self.state.lock();
        if sent_at >= state.asked_since {
            keep(&mut state.grants, LeaseGrant { end: sent_at + length, floor }, sent_at);
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

/// CLOCK_BOOTTIME for decisions by a lease. A jump of the wall clock ends the lease of this node.
pub struct LeaseClock {
    clock: Arc<dyn Clock>,
    lease: Arc<NodeLease>,
    jumps: ClockJumps,
}

impl LeaseClock {
    /// A clock that ends this lease.
    pub fn new(clock: Arc<dyn Clock>, lease: Arc<NodeLease>) -> LeaseClock {
        LeaseClock { clock, lease, jumps: ClockJumps::default() }
    }

    /// CLOCK_BOOTTIME. Reads the wall clock beside it, and ends the lease where that has jumped (P9).
    pub fn now(&self) -> Duration {
        let (wall, boot) = (self.clock.wall(), self.clock.boot());
        if self.jumps.look(wall, boot) {
            tracing::warn!("the wall clock jumped by more than a second: the lease ends, and is asked for again");
            self.lease.end_before(boot);
        }
        boot
    }

    /// CLOCK_BOOTTIME alone.
    pub fn boot(&self) -> Duration {
        self.clock.boot()
    }

    /// How long this machine has slept since it booted.
    pub fn slept(&self) -> Duration {
        self.clock.boot().saturating_sub(self.clock.monotonic())
    }

    /// When a quorum last acknowledged this leader. `None` before the first acknowledgement after a jump of the wall
    /// clock: the machine may have stood still since.
    pub fn last_quorum_ack(&self, replica: &Replica, now: Duration) -> Option<Duration> {
        let acked = replica.last_quorum_acked()?;
        Some(now.saturating_sub(acked.elapsed())).filter(|acked| *acked >= self.jumps.last())
    }
}
