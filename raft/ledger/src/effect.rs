//! Effects: what the other parts of a node may have to do after an entry was applied. Each variant names who acts.
//!
//! An effect is a hint that saves a search. An actor that lost some finds the same work by reading the state.

use crate::model::{ClaimOwner, Epoch, Fence, RunId, ScheduleId, Time};

/// What applying one entry asks of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The node named in it builds its term; every other node drops the one it had.
    EpochBegan {
        /// The epoch.
        epoch: Epoch,
        /// Its leader.
        leader: ClaimOwner,
    },
    /// The node named in it may hold claims from here on.
    NodeUp(ClaimOwner),
    /// For the leader's timer: the due time of this schedule changed.
    DueChanged {
        /// Which schedule.
        schedule: ScheduleId,
        /// The next due time; none if the schedule left the due index.
        due: Option<Time>,
    },
    /// The leader's dispatcher: there is something to claim here, now or when a wave comes in.
    WorkAppeared(RunId),
    /// The owner's claim workers: a claim to process.
    ClaimGranted {
        /// The row.
        fence: Fence,
        /// Who works it.
        owner: ClaimOwner,
    },
    /// The owner's claim workers and the leader's dispatcher: nothing is claimed in this claim any more.
    ClaimClosed {
        /// The row.
        fence: Fence,
        /// Who worked it.
        owner: ClaimOwner,
    },
    /// All claim workers: read the claims of this page again before the next step.
    RunChanged(RunId),
    /// All claim workers: nothing is sent to these recipients any more.
    OptedOut {
        /// Tenant.
        tenant: String,
        /// Address keys.
        keys: Vec<String>,
    },
    /// Every node's relay pools: the table of relays changed.
    RelaysChanged,
    /// Observers: nothing is pending or claimed in this run any more.
    RunFinished(RunId),
    /// Every node: an operator should look (log it, count it).
    Alarm(String),
    /// The leader's timer, dispatcher and auditor: ledger time was moved by hand to this (P19).
    ClockMoved(Time),
}
