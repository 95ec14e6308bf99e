//! Replies of `apply` to the proposer of an entry.

use serde::{Deserialize, Serialize};

use crate::model::{CommandRefusal, Epoch, Fence, RecipientId, RunId, ScheduleId, Time};

/// Reply to one entry, equal on every replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReply {
    /// Log index of the entry that made the change; for an idempotent repeat, of the first entry.
    pub index: u64,
    /// True for an idempotent repeat: the entry made no change.
    pub is_repeat: bool,
    /// Result of the entry.
    pub outcome: CommandOutcome,
}

/// Result of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutcome {
    /// Done, without further data.
    Done,
    /// An epoch began.
    EpochStarted {
        /// The epoch.
        epoch: Epoch,
        /// Ledger time at which the epoch begins.
        base: Time,
        /// True if two voters' clocks agreed.
        clocks_agree: bool,
    },
    /// The schedule that was created, or that already existed with the same properties.
    Schedule(ScheduleId),
    /// The run that opened, or that already existed under this name.
    Run {
        /// The run.
        run: RunId,
        /// Runs that it cancelled when it opened (`cancel_other`, P16).
        cancelled: CancelledRuns,
        /// True if an earlier call with its request id opened the run.
        is_repeat: bool,
    },
    /// For each fire: the runs that it opened, or why it was refused.
    Fired(Vec<Result<Vec<RunId>, CommandRefusal>>),
    /// For each claim: its fence, or why it was refused.
    Claimed(Vec<Result<Fence, CommandRefusal>>),
    /// Number of recipients that changed their state. For a replan: number of schedules whose next instant changed.
    Changed(u64),
    /// Refused; nothing changed.
    Refused(CommandRefusal),
    /// A backfill opened occurrences that the plan had passed.
    Backfilled {
        /// Number of occurrences that opened.
        opened: u32,
        /// The first run; `None` if none opened.
        first: Option<RunId>,
        /// The last run; `None` if none opened.
        last: Option<RunId>,
        /// Number of requested occurrences that had opened before.
        known: u32,
        /// Instant at which a backfill of the rest begins; `None` if nothing is left.
        rest: Option<Time>,
        /// Number of occurrences that did not open because of `min_gap` (P17): each of their recipients got an email of
        /// another run, or gets one of another instant of this backfill, too close to it.
        inside_gap: u32,
    },
    /// Number of runs that left the state.
    Archived(u32),
    /// For each schedule of [`Command::SchedulesCreate`](crate::command::Command::SchedulesCreate): its id, or why it
    /// was refused.
    Schedules(Vec<Result<ScheduleCreation, CommandRefusal>>),
    /// For each run of a decision: the numbers, or why the run was refused.
    ChangedByRun(Vec<Result<ChangedRecipients, CommandRefusal>>),
    /// For each message: its run, or why it was refused.
    Messages(Vec<Result<MessageReceipt, CommandRefusal>>),
    /// The version of the template that has the content.
    Template(u32),
    /// Dead letters were requeued or discarded.
    DeadLetters {
        /// The numbers of all runs.
        moved: ChangedRecipients,
        /// Number of dead letters whose run is cancelled, or was refused for another reason.
        cancelled: u64,
        /// Recipient after which the next page of the request begins; `None` if nothing is left.
        rest: Option<RecipientId>,
    },
}

/// A message that the ledger has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageReceipt {
    /// Its run.
    pub run: RunId,
    /// True if an earlier call with its key opened the run.
    pub is_repeat: bool,
}

/// A schedule that an entry asked to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScheduleCreation {
    /// The entry created it.
    Created(ScheduleId),
    /// It existed already, with the same properties.
    Existed(ScheduleId),
}

impl ScheduleCreation {
    /// Id of the schedule.
    pub fn id(self) -> ScheduleId {
        match self {
            ScheduleCreation::Created(id) | ScheduleCreation::Existed(id) => id,
        }
    }
}

/// Numbers of picked recipients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedRecipients {
    /// Recipients that changed their state.
    pub recipients: u64,
    /// Recipients that did not, because of `min_gap` (P17): an email of another run is too close, so they would be
    /// suppressed at once.
    pub inside_gap: u64,
}

/// Runs that another run of their schedule cancels when it opens (`cancel_other`, P16).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledRuns {
    /// The first [`CancelledRuns::NAMED`] runs.
    pub runs: Vec<CancelledRun>,
    /// Number of further runs.
    pub more: u32,
}

/// A run that is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledRun {
    /// The run.
    pub run: RunId,
    /// Number of its recipients that were pending; they are cancelled.
    pub cancelled: u32,
    /// Number of its recipients that were claimed. Each is sent, or cancelled when its claim releases it.
    pub claimed: u32,
}

impl CancelledRuns {
    /// Maximum number of listed runs: an answer is stored, so its size is bounded.
    pub const NAMED: usize = 64;
}
