//! Commands that open runs or explain instants: fire, backfill, replan.

use serde::{Deserialize, Serialize};

use crate::model::{Hash, InstantRange, NextInstant, OccurrenceName, OpeningCause, ScheduleId, Time, UnopenedReason};

/// A range of instants of one schedule that did not open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRange {
    /// Name of the first instant.
    pub first: OccurrenceName,
    /// Distances from the first instant to the others.
    pub instants: InstantRange,
    /// Why they did not open.
    pub reason: UnopenedReason,
}

impl ExplainedRange {
    /// Number of instants, with the first.
    pub fn count(&self) -> u32 {
        self.instants.count()
    }

    /// Name of the last instant.
    pub fn last(&self) -> OccurrenceName {
        self.instants.last(&self.first)
    }
}

/// An occurrence that opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Name of the occurrence.
    pub occurrence: OccurrenceName,
    /// When it was due.
    pub due: Time,
    /// Why it opens.
    pub cause: OpeningCause,
    /// Deadline: recipients that are not sent by then expire.
    pub finish_by: Time,
}

/// Part of a [`Command::Fire`](super::Command::Fire) for one schedule: a compare-and-set on its plan (P8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fire {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must be equal to the plan's version.
    pub plan_version: u64,
    /// Must be equal to the name of the plan's next instant.
    pub from: OccurrenceName,
    /// Occurrences that open, in order.
    pub opened: Vec<Opening>,
    /// Instants that do not open, with the reason, in order.
    pub explained: Vec<ExplainedRange>,
    /// Each instant up to here, inclusive, is opened or explained by this fire.
    pub through: Time,
    /// Next instant of the plan after this fire; `None` if none is left.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed `next`.
    pub tzdb: String,
}

/// Arguments of [`Command::Backfill`](super::Command::Backfill).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// Request id; `None` if the caller gave none.
    pub request: Option<String>,
    /// Hash of the request. It tells a repeat from another request with the same id.
    pub body_hash: Hash,
    /// The schedule.
    pub schedule: ScheduleId,
    /// Occurrences to open, in order. Those that have opened by now are left out.
    pub openings: Vec<Opening>,
    /// Number of requested occurrences that the proposer left out because they had opened before.
    pub known: u32,
    /// Instant at which a backfill of the rest begins; `None` if the proposer considered all.
    pub rest: Option<Time>,
}

/// Part of a [`Command::Replan`](super::Command::Replan) for one schedule: a compare-and-set on its plan. The next
/// fire explains the instants that are due when the replan is applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replan {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must be equal to the plan's version.
    pub plan_version: u64,
    /// Must be equal to the plan's next instant.
    pub from: NextInstant,
    /// Next instant of the plan after this replan; `None` if none is left.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed `next`.
    pub tzdb: String,
}
