//! Commands that create, change, pause, resume and trigger schedules.

use serde::{Deserialize, Serialize};

use crate::calendar::When;
use crate::command::{ExplainedRange, Fire};
use crate::fingerprint::fingerprint;
use crate::model::{Audience, AudienceChoice, Content, Hash, Labels, NextInstant, Policies, ScheduleId, Time};

/// See [`Command::ScheduleCreate`](super::Command::ScheduleCreate). `request` is what makes it idempotent beyond its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleCreate {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Tenant.
    pub tenant: String,
    /// Name, unique in the tenant.
    pub name: String,
    /// When it fires, in which zone.
    pub when: When,
    /// IANA name of the zone.
    pub zone: String,
    /// No instant before this fires.
    pub start: Option<Time>,
    /// No instant after this fires.
    pub end: Option<Time>,
    /// Occurrences that open at most.
    pub max_runs: Option<u32>,
    /// Policies.
    pub policies: Policies,
    /// Pool of relays.
    pub pool: String,
    /// Higher goes first within the tenant.
    pub priority: u8,
    /// Paused from the start, with the reason.
    pub paused: Option<String>,
    /// Content.
    pub content: Content,
    /// Audience.
    pub audience: AudienceChoice,
    /// Instants after this one are the schedule's to open or explain.
    pub after: Time,
    /// The first of them, computed by the proposer with `tzdb`.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
    /// By which people group it.
    pub labels: Labels,
}

/// See [`Command::ScheduleEdit`](super::Command::ScheduleEdit): what is not named stays. Runs that are open keep what they opened with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleEdit {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Hash of what was asked for: tells a repeat of the request from another one under its id.
    pub body: Hash,
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
    /// When it fires. Must be there where `policies` change what the calendar gives.
    pub timing: Option<TimingChange>,
    /// Policies.
    pub policies: Option<Policies>,
    /// Pool of relays.
    pub pool: Option<String>,
    /// Higher goes first within the tenant.
    pub priority: Option<u8>,
    /// Content.
    pub content: Option<Content>,
    /// Audience.
    pub audience: Option<AudienceChoice>,
    /// By which people group it; all of them.
    pub labels: Option<Labels>,
}

/// Another timing of a schedule, and what becomes of the former one (P8): its instants up to `through` are
/// opened or explained, those after it are none any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingChange {
    /// When it fires.
    pub when: When,
    /// IANA name of the zone.
    pub zone: String,
    /// No instant before this fires.
    pub start: Option<Time>,
    /// No instant after this fires.
    pub end: Option<Time>,
    /// Occurrences that open at most, those before the edit among them.
    pub max_runs: Option<u32>,
    /// The former timing holds up to here, the new one after it. Not above ledger time.
    pub through: Time,
    /// Of a schedule that fires: what of the former timing is due.
    pub due: Option<Fire>,
    /// Of a schedule that does not fire: what of the former timing was missed.
    pub explained: Vec<ExplainedRange>,
    /// The first instant of the new timing after `through`.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed it.
    pub tzdb: String,
}

/// See [`Command::SchedulePause`](super::Command::SchedulePause).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulePause {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Why, for people.
    pub reason: String,
}

/// See [`Command::ScheduleResume`](super::Command::ScheduleResume): what fell in the pause is explained in the same entry, or fires
/// after it by `catch_up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleResume {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must equal the plan's.
    pub plan_version: u64,
}

/// See [`Command::Trigger`](super::Command::Trigger).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// The schedule.
    pub schedule: ScheduleId,
    /// The occurrence's name: the same request id never opens a second run.
    pub request: String,
}

/// See [`Command::SendTest`](super::Command::SendTest).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendTest {
    /// The run's name, and what makes it idempotent.
    pub request: String,
    /// Tenant.
    pub tenant: String,
    /// Pool of relays.
    pub pool: String,
    /// Content.
    pub content: Content,
    /// One recipient.
    pub audience: Audience,
    /// As of a schedule, but that there is one attempt, and no other run stands in its way. In the command, because the
    /// defaults of two releases may differ.
    pub policies: Policies,
}

impl ScheduleCreate {
    /// Hash of what makes two creates the same: all but the request id and what the proposer computed.
    pub fn body(&self) -> Hash {
        fingerprint(&ScheduleCreate { request: None, after: Time(0), next: None, tzdb: String::new(), ..self.clone() })
    }
}
