//! Effects: what other parts of a node may have to do after an entry was applied. Each variant names the part.
//!
//! An effect is a hint that saves a search. An actor that misses an effect finds the same work in the state.

use crate::model::{ClaimOwner, Fence, PageId, ScheduleId, Time};

/// Work that an applied entry may cause for other parts of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// For the leader's timer: the due time of this schedule changed.
    DueChanged {
        /// The schedule.
        schedule: ScheduleId,
        /// Its next due time; `None` if the schedule left the due index.
        due: Option<Time>,
    },
    /// For the leader's dispatcher: this page has recipients to claim, now or when a wave is reached.
    WorkAppeared(PageId),
    /// For the owner's workers: there is a claim to process.
    ClaimGranted {
        /// Fence of the claim.
        fence: Fence,
        /// Owner of the claim.
        owner: ClaimOwner,
    },
    /// For the owner's workers and the leader's dispatcher: nothing is claimed in this claim any more.
    ClaimEmptied {
        /// Fence of the claim.
        fence: Fence,
        /// Owner of the claim.
        owner: ClaimOwner,
    },
    /// For the relay pools of each node: the table of relays changed.
    RelaysChanged,
    /// For each node: an operator should read this text; it is logged and counted.
    Alarm(String),
    /// For the leader's timer, dispatcher and auditor: the test clock moved ledger time to this (P19).
    ClockMoved(Time),
}
