//! Commands that create, change, pause, resume and trigger schedules.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{ExplainedRange, Fire, KeyRule};
use crate::fingerprint::fingerprint;
use crate::model::{
    Audience, AudienceChoice, ContentChoice, Hash, Labels, NextInstant, Plan, Policies, Schedule, ScheduleId,
    ScheduleSettings, ScheduleState, ScheduleTiming, Time,
};

/// Arguments of [`Command::ScheduleCreate`](super::Command::ScheduleCreate).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleCreate {
    /// Request id; `None` if the caller gave none. A repeat with the same id is idempotent.
    pub request: Option<String>,
    /// Tenant of the schedule.
    pub tenant: String,
    /// Name, unique in the tenant.
    pub name: String,
    /// When it fires.
    pub timing: ScheduleTiming,
    /// Policies for firing and sending.
    pub policies: Policies,
    /// Pool of relays that sends it.
    pub pool: String,
    /// Higher numbers go first within the tenant.
    pub priority: u8,
    /// Reason of a pause from the start. `None`: it is active.
    pub paused: Option<String>,
    /// Content of its emails.
    pub content: ContentChoice,
    /// Audience of its runs.
    pub audience: AudienceChoice,
    /// The schedule opens or explains only instants after this one.
    pub after: Time,
    /// Its first instant, computed by the proposer with `tzdb`; `None` if there is none.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed `next`.
    pub tzdb: String,
    /// Labels by which users group schedules.
    pub labels: Labels,
}

/// Arguments of [`Command::ScheduleEdit`](super::Command::ScheduleEdit). Fields that are `None` do not change. Open
/// runs keep their content, audience and policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleEdit {
    /// Request id; `None` if the caller gave none.
    pub request: Option<String>,
    /// Hash of the request. It tells a repeat from another request with the same id.
    pub body_hash: Hash,
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must be equal to the plan's version.
    pub plan_version: u64,
    /// New timing. Required if `policies` change the instants of the calendar.
    pub timing: Option<TimingChange>,
    /// New policies.
    pub policies: Option<Policies>,
    /// New pool of relays.
    pub pool: Option<String>,
    /// New priority; higher numbers go first within the tenant.
    pub priority: Option<u8>,
    /// New content.
    pub content: Option<ContentChoice>,
    /// New audience.
    pub audience: Option<AudienceChoice>,
    /// New labels; they replace all former ones.
    pub labels: Option<Labels>,
}

/// A new timing of a schedule, and the end of the former one (P8). Instants of the former timing up to `through` are
/// opened or explained; those after it no longer exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingChange {
    /// The new timing. Its `max_runs` counts occurrences before the edit too.
    pub timing: ScheduleTiming,
    /// The former timing is valid up to here, the new one after it. Not after ledger time.
    pub through: Time,
    /// For an active schedule: fire of the due instants of the former timing.
    pub due: Option<Fire>,
    /// For an inactive schedule: missed instants of the former timing.
    pub explained: Vec<ExplainedRange>,
    /// First instant of the new timing after `through`; `None` if there is none.
    pub next: Option<NextInstant>,
    /// Version of the time zone database that computed `next`.
    pub tzdb: String,
}

/// Arguments of [`Command::SchedulePause`](super::Command::SchedulePause).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulePause {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Reason, for users.
    pub reason: String,
}

/// Arguments of [`Command::ScheduleResume`](super::Command::ScheduleResume). Instants of the pause are explained in the
/// same entry, or fire after it by `catch_up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleResume {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Must be equal to the plan's version.
    pub plan_version: u64,
}

/// Arguments of [`Command::ScheduleDelete`](super::Command::ScheduleDelete).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleDelete {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Version of the plan that the caller has read. `None`: any.
    pub expected: Option<u64>,
}

/// Arguments of [`Command::Trigger`](super::Command::Trigger).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Request id; it is the name of the occurrence. So the same request never opens a second run.
    pub request: String,
    /// Recipients of this run only. `None`: those of the schedule.
    pub audience: Option<Audience>,
    /// What a repeat must have in common with the first call. A send time is not given.
    pub rule: KeyRule,
}

impl Trigger {
    /// A trigger that brings no recipients.
    pub fn new(schedule: ScheduleId, request: impl Into<String>) -> Trigger {
        Trigger { schedule, request: request.into(), audience: None, rule: KeyRule::Strict }
    }
}

impl ScheduleCreate {
    /// Hash of the arguments that make two creates the same: all but the request id and the proposer's results.
    pub fn body_hash(&self) -> Hash {
        let content = self.content.requested();
        let create = ScheduleCreate { content, request: None, after: Time(0), next: None, ..self.clone() };
        fingerprint(&ScheduleCreate { tzdb: String::new(), ..create })
    }

    /// [`Schedule::definition_hash`] of the schedule that this command creates.
    pub fn definition_hash(&self) -> Hash {
        self.to_schedule((self.content.hash(), self.audience.hash()), 0, Time(0)).definition_hash()
    }

    /// Returns the schedule that this command creates in the entry with this log index and ledger time. The hashes are
    /// those under which its content and its audience are stored.
    pub fn to_schedule(&self, (content, audience): (Hash, Hash), index: u64, now: Time) -> Schedule {
        Schedule {
            name: self.name.as_str().into(),
            timing: Arc::new(self.timing.clone()),
            settings: Arc::new(ScheduleSettings {
                tenant: self.tenant.as_str().into(),
                policies: self.policies.clone().into(),
                pool: self.pool.as_str().into(),
                priority: self.priority,
                template: self.content.template(),
            }),
            content,
            audience,
            recipients: self.audience.count(),
            state: match &self.paused {
                Some(reason) => ScheduleState::Paused { reason: reason.as_str().into(), since: now },
                None if self.next.is_none() => ScheduleState::Done,
                None => ScheduleState::Active,
            },
            plan: Plan::new(self.next.clone(), self.after, self.tzdb.as_str().into()),
            index,
            labels: self.labels.clone(),
        }
    }
}
