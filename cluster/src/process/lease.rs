//! A node's side of the node lease (P9): the time until which it may pass gates.
//!
//! The lease counts from the moment when the node sent the request that was granted. `leader/lease_grants.rs` is the
//! leader's side. The leader's end of a lease is never before the node's: it counts from the answer and adds a margin.
//!
//! All instants are CLOCK_BOOTTIME, which includes a machine's sleep. It stands still in a guest that its hypervisor
//! stops; [`ClockJumps`] notices when the wall clock of such a guest is corrected. Applying an entry neither starts nor
//! prolongs a lease.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reveille_ledger::ids::Time;
use reveille_raft::Replica;

use super::clock::Clock;

/// Length of a lease, from the moment when the request was sent.
pub const LEASE: Duration = Duration::from_secs(4);
/// Time that the leader waits after a lease before it treats it as ended. It covers the difference in speed of two
/// clocks, and the time that a gate needs between its check and its write.
pub const MARGIN: Duration = Duration::from_secs(1);
/// Interval of a node's requests. A lease survives two lost requests.
pub const ASK_EVERY: Duration = Duration::from_secs(1);

// A node may lose two requests in a row, and the answer to the third may take as long as one interval.
const _: () = assert!(LEASE.as_millis() > 3 * ASK_EVERY.as_millis());

/// One grant of a lease: its end, and the first applied index for which it is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseGrant {
    pub end: Duration,
    pub floor: u64,
}

/// Adds a grant and keeps only useful ones: a grant is dropped if another one ends no earlier and has no higher floor.
pub(crate) fn add_grant(grants: &mut Vec<LeaseGrant>, grant: LeaseGrant, now: Duration) {
    grants.retain(|known| known.end > now && !(known.end <= grant.end && known.floor >= grant.floor));
    if !grants.iter().any(|known| known.end >= grant.end && known.floor <= grant.floor) {
        grants.push(grant);
    }
}

/// A jump of the wall clock against CLOCK_BOOTTIME between two readings ends the lease if it is larger than this, in
/// milliseconds. Slewing and drift stay far below it.
const JUMP_MS_MAX: u64 = 1_000;

/// Detects jumps of the wall clock against CLOCK_BOOTTIME: a hypervisor had stopped this machine, or its clock was
/// stepped. The two cannot be distinguished. A lease that ends too early costs one request.
#[derive(Debug, Default)]
pub struct ClockJumps(Mutex<ClockReadings>);

#[derive(Debug, Default)]
struct ClockReadings {
    /// Wall clock minus CLOCK_BOOTTIME at the last reading, in milliseconds. `None` before the first one.
    difference_ms: Option<i64>,
    last_jump: Duration,
}

impl ClockJumps {
    /// Records one reading of both clocks. Returns true if the wall clock has jumped since the last one.
    pub fn record(&self, wall: Time, boot: Duration) -> bool {
        let boot_ms = i64::try_from(boot.as_millis()).unwrap_or(i64::MAX);
        let difference_ms = wall.0.saturating_sub(boot_ms);
        let mut readings = self.0.lock();
        let before = readings.difference_ms.replace(difference_ms);
        let jumped = before.is_some_and(|before| before.abs_diff(difference_ms) > JUMP_MS_MAX);
        if jumped {
            readings.last_jump = boot;
        }
        jumped
    }

    /// Returns when the last jump was detected, on CLOCK_BOOTTIME; zero if there was none. Earlier measurements do not
    /// show how much time has passed since.
    pub fn last(&self) -> Duration {
        self.0.lock().last_jump
    }
}

/// A node's own lease: the grants that have not ended, at most one for each request within the length of a lease.
#[derive(Debug, Default)]
pub struct NodeLease {
    state: Mutex<LeaseState>,
}

#[derive(Debug, Default)]
struct LeaseState {
    grants: Vec<LeaseGrant>,
    /// Answers to requests that were sent before this time have no effect.
    ignore_requests_before: Duration,
}

impl NodeLease {
    /// Adds a grant of `length`, valid from index `floor` on, for a request that was sent at `sent_at`. A late answer
    /// to an older request shortens nothing.
    pub fn prolong(&self, sent_at: Duration, length: Duration, floor: u64) {
        let mut state = self.state.lock();
        if sent_at >= state.ignore_requests_before {
            add_grant(&mut state.grants, LeaseGrant { end: sent_at + length, floor }, sent_at);
        }
    }

    /// Ends the lease. A stopping node does this before it announces the stop.
    pub fn end(&self) {
        self.state.lock().grants.clear();
    }

    /// Ends the lease after a clock jump. Grants for requests that were sent before `now` are void, even if they arrive
    /// later.
    pub fn end_before(&self, now: Duration) {
        *self.state.lock() = LeaseState { grants: Vec::new(), ignore_requests_before: now };
    }

    /// Returns true if a gate that decides by the state at index `applied` may pass at `now`.
    pub fn is_valid(&self, now: Duration, applied: u64) -> bool {
        self.state.lock().grants.iter().any(|grant| now < grant.end && grant.floor <= applied)
    }
}

/// CLOCK_BOOTTIME for decisions by a lease. A jump of the wall clock ends this node's lease.
pub struct LeaseClock {
    clock: Arc<dyn Clock>,
    lease: Arc<NodeLease>,
    jumps: ClockJumps,
}

impl LeaseClock {
    /// Returns a clock that ends `lease` after a jump.
    pub fn new(clock: Arc<dyn Clock>, lease: Arc<NodeLease>) -> LeaseClock {
        LeaseClock { clock, lease, jumps: ClockJumps::default() }
    }

    /// Returns CLOCK_BOOTTIME. Also reads the wall clock, and ends the lease if that has jumped (P9).
    pub fn now(&self) -> Duration {
        let (wall, boot) = (self.clock.wall(), self.clock.boot());
        if self.jumps.record(wall, boot) {
            tracing::warn!("the wall clock jumped by more than a second: the lease ends, and is asked for again");
            self.lease.end_before(boot);
        }
        boot
    }

    /// Returns CLOCK_BOOTTIME without a check.
    pub fn boot(&self) -> Duration {
        self.clock.boot()
    }

    /// Returns how long this machine has slept since it booted.
    pub fn slept(&self) -> Duration {
        self.clock.boot().saturating_sub(self.clock.monotonic())
    }

    /// Returns when a quorum last acknowledged this leader. `None` before the first acknowledgement after a jump of the
    /// wall clock: the machine may have stood still since.
    pub fn last_quorum_ack(&self, replica: &Replica, now: Duration) -> Option<Duration> {
        let acked = replica.last_quorum_acked()?;
        Some(now.saturating_sub(acked.elapsed())).filter(|acked| *acked >= self.jumps.last())
    }
}
