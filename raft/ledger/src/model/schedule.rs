//! A schedule, its plan, and the outcome of each of its instants.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::calendar::When;
use crate::fingerprint::fingerprint;
use crate::index::SharedValues;
use crate::model::{
    BlockCause, Hash, InstantRange, Labels, OccurrenceName, Overlap, Policies, RunId, TemplateUse, Time,
};

/// State of a schedule: it fires, or the reason why it does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScheduleState {
    /// It fires.
    Active,
    /// A user paused it.
    Paused {
        /// Reason, as the user gave it.
        reason: Box<str>,
        /// Ledger time at which the pause began.
        since: Time,
    },
    /// It cannot fire until an operator resolves the cause.
    Blocked {
        /// Why it is blocked.
        cause: BlockCause,
    },
    /// No instant is left.
    Done,
}

impl ScheduleState {
    /// The state without its details.
    pub fn kind(&self) -> ScheduleStateKind {
        match self {
            ScheduleState::Active => ScheduleStateKind::Active,
            ScheduleState::Paused { .. } => ScheduleStateKind::Paused,
            ScheduleState::Blocked { .. } => ScheduleStateKind::Blocked,
            ScheduleState::Done => ScheduleStateKind::Done,
        }
    }

    /// The state in one word.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }
}

word_enum! {
    /// State of a schedule, without details.
    ScheduleStateKind {
        /// See [`ScheduleState::Active`].
        Active = "active",
        /// See [`ScheduleState::Paused`].
        Paused = "paused",
        /// See [`ScheduleState::Blocked`].
        Blocked = "blocked",
        /// See [`ScheduleState::Done`].
        Done = "done",
    }
}

/// The part of a schedule that changes when it fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of the plan (P8). It grows with each change of `next`, except by a fire.
    pub version: u64,
    /// The next instant; `None` if none is left.
    pub next: Option<NextInstant>,
    /// Each instant up to here is opened or explained; it only grows (P7). It is an instant and not a name, because
    /// names are not ordered: an hour may occur twice. The history guarantees that no name opens twice.
    pub fired_through: Time,
    /// Records of occurrences up to here may have been removed (P24), so a backfill cannot know which of them opened.
    pub forgotten_through: Option<Time>,
    /// Number of occurrences that opened.
    pub opened: u32,
    /// The schedule's run that was archived last (P24). Each archived run names the archived run before.
    pub archived: Option<RunId>,
    /// Version of the time zone database that computed `next`.
    pub tzdb: Arc<str>,
    /// Fires that were refused since the plan last changed. The second one blocks the schedule (P8).
    pub refusals: u8,
    /// The run that the next instant waited for, until it was finished (`overlap = buffer_one`); `None` if it did not
    /// wait. Boxed, because few schedules have one.
    pub blocked_by: Option<Box<BlockingRun>>,
    /// Instants that open before this time were missed (P16), even if they have to wait for a run. `None`: none were.
    pub missed_before: Option<Time>,
}

impl Plan {
    /// Returns the plan of a new schedule.
    pub fn new(next: Option<NextInstant>, fired_through: Time, tzdb: Arc<str>) -> Plan {
        Plan {
            version: 1,
            next,
            fired_through,
            forgotten_through: None,
            opened: 0,
            archived: None,
            tzdb,
            refusals: 0,
            blocked_by: None,
            missed_before: None,
        }
    }

    /// Drops `blocked_by` and `missed_before` if they do not concern the next instant.
    pub(crate) fn forget_what_is_past(&mut self) {
        let opens = self.next.as_ref().map(NextInstant::opens);
        self.blocked_by.take_if(|blocking| opens.is_none_or(|opens| opens > blocking.through));
        self.missed_before = self.missed_before.filter(|before| opens.is_some_and(|opens| opens < *before));
    }
}

/// A run that delayed instants of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockingRun {
    /// Instants that opened up to this time were delayed.
    pub through: Time,
    /// The run.
    pub run: RunId,
}

/// When a schedule fires: what the user gave, without the plan that follows from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScheduleTiming {
    /// Its pattern or instant.
    pub when: When,
    /// IANA name of its time zone.
    pub zone: String,
    /// No instant before this fires.
    pub start: Option<Time>,
    /// No instant after this fires.
    pub end: Option<Time>,
    /// Largest number of occurrences that open; `None`: no limit.
    pub max_runs: Option<u32>,
}

impl ScheduleTiming {
    /// Returns a timing without bounds.
    pub fn new(when: When, zone: impl Into<String>) -> ScheduleTiming {
        ScheduleTiming { when, zone: zone.into(), start: None, end: None, max_runs: None }
    }
}

/// The tenant of a schedule, and how its emails are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScheduleSettings {
    /// Tenant of the schedule.
    pub tenant: Arc<str>,
    /// Policies for firing and sending.
    pub policies: Arc<Policies>,
    /// Pool of relays that sends it.
    pub pool: Arc<str>,
    /// Higher numbers go first within the tenant.
    pub priority: u8,
    /// The version of a template that has its content; `None` if the content was given.
    pub template: Option<TemplateUse>,
}

/// Name of the schedule that has the runs of a tenant's messages. No user can give it, and no list shows it.
pub const MESSAGES_NAME: &str = "";

/// A schedule. A million schedules have few timings and settings, so equal ones are shared in memory
/// (`index::interner`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Name, unique within the tenant.
    pub name: Arc<str>,
    /// When it fires.
    pub timing: Arc<ScheduleTiming>,
    /// Its tenant, policies, pool, priority and template.
    pub settings: Arc<ScheduleSettings>,
    /// Hash of the content.
    pub content: Hash,
    /// Hash of the audience.
    pub audience: Hash,
    /// Number of recipients in the audience.
    pub recipients: u32,
    /// Its state: active, paused, blocked or done.
    pub state: ScheduleState,
    /// The part that changes when it fires.
    pub plan: Plan,
    /// Log index of its last change by a command.
    pub index: u64,
    /// Labels by which users group schedules.
    pub labels: Labels,
}

impl Schedule {
    /// Shares its timing, its settings and the version of its plan's database with other schedules.
    pub(crate) fn intern(&mut self, shared: &mut SharedValues) {
        shared.timings.intern(&mut self.timing);
        shared.settings.intern(&mut self.settings);
        shared.texts.intern(&mut self.plan.tzdb);
    }

    /// True for the schedule of a tenant's messages. Users see only its runs.
    pub fn is_of_messages(&self) -> bool {
        *self.name == *MESSAGES_NAME
    }

    /// Hash of what a user gave: two schedules with one definition are the same, wherever their plans are.
    pub fn definition_hash(&self) -> Hash {
        let Schedule { name, timing, settings, content, audience, labels, .. } = self;
        fingerprint(&("schedule", name, timing, settings, content, audience, labels))
    }

    /// When the leader acts next for this schedule; `None` if it does not fire. It is the next fire time or, while a
    /// run blocks it (`is_busy`), the time at which `start_within` is exceeded.
    pub(crate) fn wakes_at(&self, is_busy: bool) -> Option<Time> {
        let next = self.plan.next.as_ref().filter(|_| self.state == ScheduleState::Active)?;
        match self.settings.policies.overlap {
            Overlap::BufferOne if is_busy => {
                Some(next.opens().plus_ms(self.settings.policies.start_within_ms).plus_ms(1))
            }
            _ => Some(next.opens()),
        }
    }
}

/// Outcome of an instant of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InstantOutcome {
    /// The instant opened; this is its run.
    Opened(RunId),
    /// This instant and the following `instants` did not open. The name of no other row is within the range, except
    /// where the clocks of a zone go back.
    Explained {
        /// The other instants of the range, as distances from the instant in the row's key.
        instants: InstantRange,
        /// Why they did not open.
        reason: UnopenedReason,
        /// Log index of the entry that explained them.
        index: u64,
    },
    /// The instants of the range opened, and their runs are in the archive.
    Archived {
        /// The other instants of the range, as distances from the instant in the row's key.
        instants: InstantRange,
        /// The least time from a name to its instant. Milliseconds; it depends on the zone's offset.
        ahead_min_ms: i64,
        /// The largest such time.
        ahead_max_ms: i64,
        /// Until when the archive knows the last of the runs.
        until: Time,
    },
    /// A trigger whose run is in the archive.
    ArchivedTrigger {
        /// The run.
        run: RunId,
        /// When it was due.
        due: Time,
        /// See [`Run::body_hash`](crate::model::Run::body_hash).
        body_hash: Option<Hash>,
        /// Until then a repetition of the trigger gets this run.
        until: Time,
    },
}

impl InstantOutcome {
    /// Returns the name of the last instant of this row. A civil name has its time as if it were UTC.
    pub fn last(&self, first: &OccurrenceName) -> OccurrenceName {
        match self {
            InstantOutcome::Opened(_) | InstantOutcome::ArchivedTrigger { .. } => first.clone(),
            InstantOutcome::Explained { instants, .. } | InstantOutcome::Archived { instants, .. } => {
                instants.last(first)
            }
        }
    }

    /// Number of distances that the row stores.
    pub(crate) fn steps(&self) -> usize {
        self.instants().map_or(0, InstantRange::stored_distances)
    }

    /// The instants after the first one, if the row is a range.
    pub(crate) fn instants(&self) -> Option<&InstantRange> {
        match self {
            InstantOutcome::Explained { instants, .. } | InstantOutcome::Archived { instants, .. } => Some(instants),
            InstantOutcome::Opened(_) | InstantOutcome::ArchivedTrigger { .. } => None,
        }
    }

    /// Returns a copy of this row with the instants `other`. A row that is no range is copied unchanged.
    pub(crate) fn with_instants(&self, other: InstantRange) -> InstantOutcome {
        let mut row = self.clone();
        if let InstantOutcome::Explained { instants, .. } | InstantOutcome::Archived { instants, .. } = &mut row {
            *instants = other;
        }
        row
    }

    /// The run that opened; `None` if the instant did not open, or if its run must be searched in the archive.
    pub fn run(&self) -> Option<RunId> {
        match self {
            InstantOutcome::Opened(run) | InstantOutcome::ArchivedTrigger { run, .. } => Some(*run),
            InstantOutcome::Explained { .. } | InstantOutcome::Archived { .. } => None,
        }
    }
}

/// The next instant of a schedule that is neither opened nor explained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextInstant {
    /// Name of the occurrence.
    pub occurrence: OccurrenceName,
    /// When it is due.
    pub due: Time,
    /// Delay of its opening after `due` (`jitter`). Milliseconds.
    pub jitter_ms: i64,
}

impl NextInstant {
    /// When it opens.
    pub fn opens(&self) -> Time {
        self.due.plus_ms(self.jitter_ms)
    }

    /// True if its jitter is 0, or below `window_ms`.
    pub fn is_within(&self, window_ms: i64) -> bool {
        self.jitter_ms == 0 || (0..window_ms).contains(&self.jitter_ms)
    }
}

/// Why an instant did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnopenedReason {
    /// A later missed instant opened instead (`catch_up = one`).
    Coalesced,
    /// It was missed, and `catch_up = none`.
    NoCatchUp,
    /// It was later than `start_within`.
    TooLate,
    /// Its local time or date does not exist, and the policy is to skip it. Or the zone's rules have changed since it
    /// was planned, and it now is another instant or none.
    DoesNotExist,
    /// An instant of this name has opened already: the zone's rules changed in between (P7).
    OpenedBefore,
    /// It was missed while the schedule did not fire, or it waited, and then the schedule's timing was edited.
    Edited,
    /// An earlier run was unfinished, and `overlap = skip`.
    Overlap,
    /// It waited for an earlier run (`buffer_one`), or would have been cancelled at once (`cancel_other`). A later
    /// instant opened instead.
    Superseded,
    /// The cluster was restored from a backup later, and the former cluster may have sent it (P21).
    Restored,
}

word_enum! {
    /// Outcome of an instant that did not open.
    Unopened {
        /// A later instant opened instead.
        Coalesced = "coalesced",
        /// It was skipped.
        Skipped = "skipped",
        /// It was too late.
        Expired = "expired",
        /// It must not open.
        Refused = "refused",
    }
}

impl UnopenedReason {
    /// The outcome of the instant.
    pub fn outcome(self) -> Unopened {
        match self {
            UnopenedReason::Coalesced | UnopenedReason::Superseded => Unopened::Coalesced,
            UnopenedReason::NoCatchUp
            | UnopenedReason::DoesNotExist
            | UnopenedReason::Edited
            | UnopenedReason::Overlap
            | UnopenedReason::Restored => Unopened::Skipped,
            UnopenedReason::TooLate => Unopened::Expired,
            UnopenedReason::OpenedBefore => Unopened::Refused,
        }
    }

    /// The policy or the cause, in one word.
    pub fn word(self) -> &'static str {
        match self {
            UnopenedReason::Coalesced | UnopenedReason::NoCatchUp => "catch_up",
            UnopenedReason::TooLate => "start_within",
            UnopenedReason::DoesNotExist => "does_not_exist",
            UnopenedReason::Edited => "edited",
            UnopenedReason::Overlap | UnopenedReason::Superseded => "overlap",
            UnopenedReason::OpenedBefore => "opened_before",
            UnopenedReason::Restored => "restored",
        }
    }
}

/// Why a run opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpeningCause {
    /// Its instant was due.
    Due,
    /// Its instant was missed and caught up.
    CatchUp,
    /// It was triggered.
    Trigger,
    /// It was backfilled.
    Backfill,
    /// It sends a test email.
    Test,
    /// A program sent a message.
    Message,
}

impl OpeningCause {
    /// True if it is sent at the rate limit for late emails (P16). A run that only waited for another run is not late.
    pub fn is_late(self) -> bool {
        matches!(self, OpeningCause::CatchUp | OpeningCause::Backfill)
    }

    /// True if no schedule of a user has the run.
    pub fn is_message(self) -> bool {
        matches!(self, OpeningCause::Test | OpeningCause::Message)
    }
}
