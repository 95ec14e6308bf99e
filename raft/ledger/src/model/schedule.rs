//! A schedule, its plan, and what became of each of its instants.

use serde::{Deserialize, Serialize};

use crate::calendar::When;
use crate::model::{BlockCause, Hash, InstantRange, Labels, Nominal, Overlap, Policies, RunId, Time};

/// What a schedule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// It fires.
    Active,
    /// A user paused it.
    Paused {
        /// Why.
        reason: String,
        /// Since when.
        since: Time,
    },
    /// It cannot fire, and an operator must look.
    Blocked {
        /// Why.
        cause: BlockCause,
    },
    /// No instant is left.
    Done,
}

impl Activity {
    /// The activity without its details.
    pub fn kind(&self) -> ActivityKind {
        match self {
            Activity::Active => ActivityKind::Active,
            Activity::Paused { .. } => ActivityKind::Paused,
            Activity::Blocked { .. } => ActivityKind::Blocked,
            Activity::Done => ActivityKind::Done,
        }
    }

    /// One word for it.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }
}

/// What a schedule does, without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivityKind {
    /// See [`Activity::Active`].
    Active,
    /// See [`Activity::Paused`].
    Paused,
    /// See [`Activity::Blocked`].
    Blocked,
    /// See [`Activity::Done`].
    Done,
}

impl ActivityKind {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            ActivityKind::Active => "active",
            ActivityKind::Paused => "paused",
            ActivityKind::Blocked => "blocked",
            ActivityKind::Done => "done",
        }
    }
}

/// The part of a schedule that changes when it fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Raised by whatever moves `next` other than a fire (P8).
    pub version: u64,
    /// The next instant.
    pub next: Option<NextInstant>,
    /// Every instant up to here is opened or explained; only grows (P7). Names are not ordered (an
    /// overlap hour may be told twice), so this is an instant; that no name opens twice is the history's
    /// to know.
    pub fired_through: Time,
    /// Occurrences up to here may have been forgotten (P24): a backfill cannot know which of them opened.
    pub forgotten_through: Option<Time>,
    /// Occurrences that opened.
    pub opened: u32,
    /// Time zone database that computed `next`.
    pub tzdb: String,
    /// Fires refused since the plan last moved (P8: the second one blocks).
    pub refusals: u8,
    /// The run for which the next instant had to wait until it was finished (`overlap = buffer_one`).
    pub held: Option<BlockingRun>,
    /// Instants that open before this were missed (P16), also where they have to wait for a run.
    pub missed_before: Option<Time>,
}

impl Plan {
    /// Keeps of what stood in the way only what concerns the next instant.
    pub(crate) fn forget_what_is_past(&mut self) {
        let opens = self.next.as_ref().map(NextInstant::opens);
        self.held = self.held.filter(|held| opens.is_some_and(|opens| opens <= held.through));
        self.missed_before = self.missed_before.filter(|before| opens.is_some_and(|opens| opens < *before));
    }
}

/// A run that stood in the way of instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockingRun {
    /// Up to then.
    pub through: Time,
    /// The run.
    pub by: RunId,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Tenant.
    pub tenant: String,
    /// Name.
    pub name: String,
    /// When it fires.
    pub when: When,
    /// In which zone.
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
    /// Content, by hash.
    pub content: Hash,
    /// Audience, by hash.
    pub audience: Hash,
    /// Recipients in the audience.
    pub recipients: u32,
    /// What it does.
    pub activity: Activity,
    /// What moves when it fires.
    pub plan: Plan,
    /// Hash of the body that created it: the same body again is the same schedule.
    pub body: Hash,
    /// Log index of its last change by a command.
    pub index: u64,
    /// By which people group it.
    pub labels: Labels,
}

impl Schedule {
    /// When the leader acts next for this schedule; none if it does not fire. It is the next fire time or, while a run
    /// blocks it (`is_busy`), the time at which `start_within` is exceeded.
    pub(crate) fn wakes_at(&self, is_busy: bool) -> Option<Time> {
        let next = self.plan.next.as_ref().filter(|_| self.activity == Activity::Active)?;
        match self.policies.overlap {
            Overlap::BufferOne if is_busy => Some(next.opens().plus_ms(self.policies.start_within_ms).plus_ms(1)),
            _ => Some(next.opens()),
        }
    }
}

/// What became of an instant of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InstantOutcome {
    /// It opened as this run.
    Opened(RunId),
    /// It did not open, nor did those after it. No other row's name lies within such a range, but where the
    /// clocks of a zone go back.
    Explained {
        /// Those after it.
        instants: InstantRange,
        /// Why.
        reason: UnopenedReason,
        /// Log index of the entry that said so.
        index: u64,
    },
}

impl InstantOutcome {
    /// The last instant that this row tells of, by its name; a civil one as if it were UTC.
    pub fn last(&self, first: &Nominal) -> Nominal {
        match self {
            InstantOutcome::Opened(_) => first.clone(),
            InstantOutcome::Explained { instants, .. } => instants.last(first),
        }
    }

    /// The run as which it opened, if it did.
    pub fn run(&self) -> Option<RunId> {
        match self {
            InstantOutcome::Opened(run) => Some(*run),
            InstantOutcome::Explained { .. } => None,
        }
    }
}

/// The next instant of a schedule that is neither opened nor explained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextInstant {
    /// Its name.
    pub nominal: Nominal,
    /// When it is due.
    pub due: Time,
    /// How long after that it opens: its place in the schedule's window (`jitter`). Milliseconds.
    pub jitter_ms: i64,
}

impl NextInstant {
    /// When it opens.
    pub fn opens(&self) -> Time {
        self.due.plus_ms(self.jitter_ms)
    }

    /// Whether its jitter lies within a window of `window_ms`.
    pub fn is_within(&self, window_ms: i64) -> bool {
        self.jitter_ms == 0 || (0..window_ms).contains(&self.jitter_ms)
    }
}

/// Why an instant did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnopenedReason {
    /// A later missed instant stands for it (`catch_up = one`).
    Coalesced,
    /// `catch_up = none`, and it was missed.
    NoCatchUp,
    /// Later than `start_within`.
    TooLate,
    /// The local time or date does not exist and the policy says skip; or it was planned by rules of the
    /// zone that have changed since, and is another instant now or none.
    DoesNotExist,
    /// An instant of that name has opened already: the zone's rules were changed in between (P7).
    OpenedBefore,
    /// It was missed while the schedule did not fire, or waited, and then the schedule got another timing.
    Edited,
    /// A former run was not finished, and `overlap = skip`.
    Overlap,
    /// It waited for a former run (`buffer_one`), or would have been cancelled at once (`cancel_other`), and a
    /// later instant stands for it.
    Superseded,
}

/// What became of an instant that did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// A later one stands for it.
    Coalesced,
    /// It was left out.
    Skipped,
    /// It was too late.
    Expired,
    /// It must not open.
    Refused,
}

impl Unopened {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            Unopened::Coalesced => "coalesced",
            Unopened::Skipped => "skipped",
            Unopened::Expired => "expired",
            Unopened::Refused => "refused",
        }
    }
}

impl UnopenedReason {
    /// What became of the instant.
    pub fn outcome(self) -> Unopened {
        match self {
            UnopenedReason::Coalesced | UnopenedReason::Superseded => Unopened::Coalesced,
            UnopenedReason::NoCatchUp
            | UnopenedReason::DoesNotExist
            | UnopenedReason::Edited
            | UnopenedReason::Overlap => Unopened::Skipped,
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
        }
    }
}

/// Why an occurrence opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpeningCause {
    /// It was due.
    Due,
    /// It was missed and caught up.
    CatchUp,
    /// A trigger.
    Trigger,
    /// A backfill.
    Backfill,
    /// A test email.
    Test,
}

impl OpeningCause {
    /// P16: is it sent at the rate of what is late? What only waited for a run is not.
    pub fn is_late(self) -> bool {
        matches!(self, OpeningCause::CatchUp | OpeningCause::Backfill)
    }
}
