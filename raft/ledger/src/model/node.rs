//! Nodes, epochs and clocks, and the head of the ledger: the one row that changes with every entry.

use serde::{Deserialize, Serialize};

use crate::model::{ClaimOwner, CrashHistory, Epoch, GROUP, Incarnation, NodeId, Time};
use crate::storage::level::GENESIS_LEVEL;

/// A node as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, for people.
    pub name: String,
    /// Its current life.
    pub incarnation: Incarnation,
    /// Log index of the entry that said so.
    pub up_index: u64,
    /// The highest ledger level that it can apply, as it announced it.
    pub level: u32,
    /// What its process drew: the same life asks again under the same number.
    pub process_nonce: u64,
    /// Log index of the last revocation of one of its rows: see [`Ledger::floor`](crate::Ledger::floor).
    pub revoked_index: u64,
    /// Its last deaths with open rows (P12).
    pub crashes: CrashHistory,
    /// Rows of its current life were revoked, and that life has claimed nothing since: if another life comes
    /// up, this one died.
    pub lost: bool,
    /// When its current life came up; none: at level 1.
    #[cfg(feature = "next-level")]
    pub up_at: Option<Time>,
}

/// The epoch in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochState {
    /// Log index of its `EpochStart`.
    pub epoch: Epoch,
    /// Its leader.
    pub leader: ClaimOwner,
    /// Ledger time from which it counts.
    pub base: Time,
    /// Did two voters' clocks agree? If not, nothing fires (P18).
    pub clocks_agree: bool,
}

/// A single voter's clock, and how long its machine had run when it showed that (P18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoleClock {
    /// Its wall clock.
    pub reading: VoterClock,
    /// Its machine.
    pub machine: MachineClock,
}

/// The one row that changes with every entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Index of the last entry that was applied.
    pub applied: u64,
    /// Ledger time (P18).
    pub now: Time,
    /// The epoch in force.
    pub epoch: Option<EpochState>,
    /// The clock of a cluster of one voter, as it was last agreed with.
    pub sole_clock: Option<SoleClock>,
    /// Raft group.
    pub group: u32,
    /// Incarnation of the cluster: raised by a restore (P21).
    pub cluster_incarnation: u64,
    /// Level of the ledger (P23).
    pub level: u32,
    /// Log index of the last opt-out, pause or cancel: see [`Ledger::floor`](crate::Ledger::floor).
    pub forbidden_index: u64,
    /// The clock that is moved by hand; none where real time is kept (P19).
    pub test_clock: Option<TestClock>,
}

/// A clock that is moved by hand (P19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestClock {
    /// Log index of the entry that chose it.
    pub index: u64,
    /// How far ledger time is ahead of the leader's clock; only grows. Milliseconds.
    pub offset_ms: i64,
}

impl Default for Head {
    fn default() -> Head {
        Head {
            applied: 0,
            now: Time(0),
            epoch: None,
            sole_clock: None,
            group: GROUP,
            cluster_incarnation: 1,
            level: GENESIS_LEVEL,
            forbidden_index: 0,
            test_clock: None,
        }
    }
}

impl Head {
    /// How far ledger time is ahead of the leader's clock: zero but for a test clock (P19). Milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.test_clock.map_or(0, |clock| clock.offset_ms)
    }
}

/// One voter's clock at the start of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterClock {
    /// Whose.
    pub node: NodeId,
    /// Its wall clock.
    pub wall: Time,
}

/// The clock of one machine that is never set (CLOCK_BOOTTIME).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClock {
    /// Names one life of one machine: a hash of its boot id.
    pub boot: u64,
    /// How long that life has lasted, sleep included. Milliseconds.
    pub boot_ms: u64,
}
