//! Commands about nodes, epochs, the level and the test clock.

use serde::{Deserialize, Serialize};

use crate::model::{AuthorityId, ClaimOwner, MachineClock, NodeId, RunId, ScheduleId, Time, VoterClock};

/// Arguments of [`Command::EpochStart`](super::Command::EpochStart).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// The new leader.
    pub leader: ClaimOwner,
    /// Number of voters in the cluster.
    pub voters: u32,
    /// Clock readings of the voters that answered, with the leader's own.
    pub readings: Vec<VoterClock>,
    /// Uptime of the leader's machine; `None` if unknown. A single voter's wall clock is compared with it.
    pub machine: Option<MachineClock>,
    /// True if the operator checked the clock of a single voter. It is then accepted, however far it was moved.
    pub accept_clock: bool,
}

impl EpochStart {
    /// Returns a start with wall clocks only.
    pub fn new(leader: ClaimOwner, voters: u32, readings: Vec<VoterClock>) -> EpochStart {
        EpochStart { leader, voters, readings, machine: None, accept_clock: false }
    }
}

/// Arguments of [`Command::NodeUp`](super::Command::NodeUp).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUp {
    /// The node and its new incarnation.
    pub owner: ClaimOwner,
    /// Name of the node, for users.
    pub name: String,
    /// Highest ledger level that the node can apply (P23).
    pub level: u32,
    /// Random number of the process. It tells a repeat of this entry from another process with an old copy of the data
    /// folder.
    pub process_nonce: u64,
}

/// Arguments of [`Command::NodeShare`](super::Command::NodeShare).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    /// The node.
    pub node: NodeId,
    /// False: reserves a share and reduces those of all other nodes. True: every node has applied the reduction, so
    /// this node may use its share.
    pub opens: bool,
}

/// Arguments of [`Command::Advance`](super::Command::Advance).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advance {
    /// New ledger time. It must be later than the current one and, unless it jumps, not after the next due instant.
    pub to: Time,
    /// True to skip due instants in between, as an outage would. The policies decide what happens to them.
    pub jump: bool,
}

/// A schedule or a run that a leader takes out of service after its second panic on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quarantined {
    /// This schedule becomes `blocked`.
    Schedule(ScheduleId),
    /// This run becomes `paused`.
    Run(RunId),
}

/// Arguments of [`Command::Quarantine`](super::Command::Quarantine).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// The schedule or the run.
    pub item: Quarantined,
    /// Text of the failure.
    pub cause: String,
}

/// Arguments of [`Command::RaiseLevel`](super::Command::RaiseLevel).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseLevel {
    /// The new level.
    pub level: u32,
    /// The voters, as the proposer knows them. Each of them must have announced the level.
    pub voters: Vec<NodeId>,
}

/// A step of the rotation of the certificate authority (P22). A repeat of a step changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthorityStep {
    /// Begins a rotation: the members fetch `next`.
    Add {
        /// The present authority.
        present: AuthorityId,
        /// The new one.
        next: AuthorityId,
    },
    /// The members use this authority, which all trust.
    Use(AuthorityId),
    /// The members trust only this authority, which all use.
    DropFormer(AuthorityId),
    /// Ends a rotation to this authority, which no member uses yet.
    Abort(AuthorityId),
}
