//! Commands that open runs or explain instants: fire, backfill, replan.

use serde::{Deserialize, Serialize};

use crate::model::{Hash, InstantRange, NextInstant, Nominal, OpeningCause, ScheduleId, Time, UnopenedReason};

/// A range of instants of one schedule that were not opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRange {
    /// The first.
    pub first: Nominal,
    /// Those after it.
    pub instants: InstantRange,
    /// Why.
    pub reason: UnopenedReason,
}

impl ExplainedRange {
    /// How many.
    pub fn count(&self) -> u32 {
        self.instants.count()
    }

    /// The last.
    pub fn last(&self) -> Nominal {
        self.instants.last(&self.first)
    }
}

/// An occurrence that opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Its name.
    pub nominal: Nominal,
    /// When it was due.
    pub due: Time,
    /// Why it opens.
    pub cause: OpeningCause,
    /// What is not sent by then expires.
    pub finish_by: Time,
}

/// One schedule's part of a [`Command::Fire`](super::Command::Fire): a compare-and-set on its plan (P8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fire {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
    /// Must equal the plan's next instant.
    pub from: Nominal,
    /// What opens, in order.
    pub opened: Vec<Opening>,
    /// What does not, and why, in order.
    pub explained: Vec<ExplainedRange>,
    /// Every instant up to here, this one included, is opened or explained by this fire.
    pub through: Time,
    /// The plan's next instant from now on.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
}

/// See [`Command::Backfill`](super::Command::Backfill).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Hash of what was asked for: tells a repeat of the request from another one under its id.
    pub body: Hash,
    /// The schedule.
    pub schedule: ScheduleId,
    /// What opens, in order; what has opened before is left out when this is applied.
    pub openings: Vec<Opening>,
    /// Of what was asked for, what the proposer left out because it had opened before.
    pub known: u32,
    /// Where a backfill of what the proposer did not look at begins.
    pub rest: Option<Time>,
}

/// One schedule's part of a [`Command::Replan`](super::Command::Replan): a compare-and-set on its plan. What is due by then is the
/// next fire's to explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replan {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
    /// Must equal the plan's next instant.
    pub from: NextInstant,
    /// The plan's next instant from now on.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
}
