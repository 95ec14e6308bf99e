//! What `apply` answers to the proposer of an entry.

use serde::{Deserialize, Serialize};

use crate::model::{Epoch, Fence, Refusal, RunId, ScheduleId, Time};

/// The answer to one entry, equal on every replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReply {
    /// Log index of the entry that did it: for an idempotent repeat, of the first one.
    pub index: u64,
    /// What came of it.
    pub outcome: CommandOutcome,
}

/// What came of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutcome {
    /// Done, nothing more to say.
    Done,
    /// An epoch began.
    EpochStarted {
        /// The epoch.
        epoch: Epoch,
        /// Ledger time from which it counts.
        base: Time,
        /// Did two voters' clocks agree?
        clocks_agree: bool,
    },
    /// The schedule that was created, or that existed already with the same body.
    Schedule(ScheduleId),
    /// The run that was opened, or that existed already under that name.
    Run {
        /// The run.
        run: RunId,
        /// The runs that it cancelled when it opened (`cancel_other`, P16).
        cancelled: CancelledRuns,
    },
    /// For each fire: the runs that it opened, or why not.
    Fired(Vec<Result<Vec<RunId>, Refusal>>),
    /// For each claim: its fence, or why not.
    Claimed(Vec<Result<Fence, Refusal>>),
    /// Number of recipients that moved; of a replan, of schedules whose next instant did.
    Moved(u64),
    /// Nothing was done.
    Refused(Refusal),
    /// Occurrences that the plan had left behind were opened.
    Backfilled {
        /// How many opened.
        opened: u32,
        /// The first run.
        first: Option<RunId>,
        /// The last run.
        last: Option<RunId>,
        /// How many of those asked for had opened before.
        known: u32,
        /// Where a backfill of the rest begins.
        rest: Option<Time>,
        /// How many did not open: each recipient got an email of another run, or gets one of another instant of this
        /// backfill, less than the `min_gap` away (P17).
        inside_gap: u32,
    },
    /// Number of runs whose details went.
    Pruned(u32),
    /// For each run that was picked from: what happened to its recipients, or why nothing.
    MovedOf(Vec<Result<MovedRecipients, Refusal>>),
}

/// What happened to picked recipients of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedRecipients {
    /// How many moved.
    pub recipients: u64,
    /// How many were left where they stood: sent again they would be suppressed at once, for they got an email of
    /// another run less than the `min_gap` away (P17).
    pub inside_gap: u64,
}

/// Runs that another run of their schedule cancels when it opens (`cancel_other`, P16).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledRuns {
    /// The first of them, [`CancelledRuns::NAMED`] at most.
    pub runs: Vec<CancelledRun>,
    /// How many more there are.
    pub more: u32,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledRun {
    /// The run.
    pub run: RunId,
    /// Recipients that were pending: they are cancelled.
    pub cancelled: u32,
    /// Recipients that were claimed: each is sent, or cancelled when its claim is released.
    pub claimed: u32,
}

impl CancelledRuns {
    /// Runs that are named: an answer is stored, and its size is bounded.
    pub const NAMED: usize = 64;
}
