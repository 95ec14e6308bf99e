//! What befell recipients of a run without a row's doing: a pause, a cancel, the deadline, a requeue. Kept as
//! long as the run's details are, so that `explain` can tell of it after the log was purged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bitmap::Bitmap;
use crate::ids::Time;

/// Entries with a ruling that are kept of a run; of more the oldest is forgotten.
pub const RULINGS_MAX: usize = 64;

/// What was ruled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ruled {
    /// The run was paused, for this reason.
    Paused(String),
    /// The run was let go on.
    Resumed,
    /// Pending, and cancelled.
    Cancelled,
    /// Pending and never attempted when the deadline passed.
    Expired,
    /// Pending after an attempt when the deadline passed: dead.
    Died,
    /// Dead, and to be sent again; by this pool from then on, where somebody named one.
    Requeued(Option<String>),
    /// Dead, and taken off the list.
    Discarded,
    /// Dead by an answer that is not believed any more (P6): to be sent again.
    Revived,
    /// Pending, and suppressed: too near to a mail of another run (P17).
    TooNear,
    /// The run's canary went well: the others are sent (P6).
    CanaryPassed,
}

/// A ruling, under the run and the log index of its entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// Ledger time of the entry.
    pub at: Time,
    /// What.
    pub what: Ruled,
    /// Whom, by chunk of the page; nobody named: all of the run.
    pub whom: BTreeMap<u32, Bitmap>,
}

impl Ruling {
    /// Does it concern this slot?
    pub fn concerns(&self, chunk: u32, slot: u16) -> bool {
        self.whom.is_empty() || self.whom.get(&chunk).is_some_and(|slots| slots.contains(slot))
    }
}
