//! Commands about nodes, epochs, the level and the test clock.

use serde::{Deserialize, Serialize};

use crate::model::{ClaimOwner, MachineClock, NodeId, RunId, ScheduleId, Time, VoterClock};

/// See [`Command::EpochStart`](super::Command::EpochStart).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// The leader.
    pub leader: ClaimOwner,
    /// Number of voters in the cluster.
    pub voters: u32,
    /// The clocks that answered, the leader's own among them.
    pub readings: Vec<VoterClock>,
    /// How long the leader's machine has run, where it knows: what a single voter's clock is held against.
    pub machine: Option<MachineClock>,
    /// The operator checked the clock of a single voter: it is accepted, however far it was moved.
    pub accept_clock: bool,
}

impl EpochStart {
    /// With wall clocks alone.
    pub fn new(leader: ClaimOwner, voters: u32, readings: Vec<VoterClock>) -> EpochStart {
        EpochStart { leader, voters, readings, machine: None, accept_clock: false }
    }
}

/// See [`Command::NodeUp`](super::Command::NodeUp).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUp {
    /// The node and its new life.
    pub owner: ClaimOwner,
    /// Its name, for people.
    pub name: String,
    /// The highest ledger level that it can apply (P23).
    pub level: u32,
    /// Drawn by the process: tells a repeat of this entry from another life with an old data folder.
    pub process_nonce: u64,
}

/// See [`Command::Advance`](super::Command::Advance).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advance {
    /// Ledger time after it: later than before it, and unless it jumps not beyond the next due instant.
    pub to: Time,
    /// Leaps over what falls due in between, as an outage would; the policies decide what becomes of it.
    pub jump: bool,
}

/// What a leader takes out of the way after its second panic on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quarantined {
    /// A schedule becomes `blocked`.
    Schedule(ScheduleId),
    /// A run becomes `paused`.
    Run(RunId),
}

/// See [`Command::Quarantine`](super::Command::Quarantine).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// What.
    pub item: Quarantined,
    /// Why.
    pub cause: String,
}

/// See [`Command::RaiseLevel`](super::Command::RaiseLevel).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseLevel {
    /// The new level.
    pub level: u32,
    /// The voters, as the proposer knows them: each must have announced the level.
    pub voters: Vec<NodeId>,
}
