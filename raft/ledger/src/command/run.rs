//! Commands about runs and their recipients.

use serde::{Deserialize, Serialize};

use crate::model::{
    ArchivePartKey, Decider, Fence, Hash, OccurrenceName, PageId, RecipientId, RunFile, RunId, ScheduleId,
};

/// Arguments of [`Command::RunBlock`](super::Command::RunBlock). The mark is only shown to users; claims depend on what
/// each node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBlock {
    /// The run.
    pub run: RunId,
    /// A file that no live node has. `None`: all are available again.
    pub file: Option<RunFile>,
}

/// Arguments of [`Command::Archive`](super::Command::Archive). What is not old enough when it is applied stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// Pages whose finished runs leave the state, by their first run when they opened.
    pub pages: Vec<PageId>,
    /// Time from the end of a run to its archiving, at least ten seconds. Milliseconds.
    pub after_ms: i64,
    /// Runs to sealed audiences whose summary and name are removed.
    pub summaries: Vec<RunId>,
    /// Rows of the history to remove, by schedule and first name.
    pub history: Vec<(ScheduleId, OccurrenceName)>,
    /// Parts whose details or summaries are removed.
    pub parts: Vec<ArchivePartKey>,
    /// Contents and audiences to which no run refers any more.
    pub blobs: Vec<Hash>,
}

/// Blocks of the archive that an operator accepts as lost: no member has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBlocks {
    /// The part that names them.
    pub part: ArchivePartKey,
    /// The blocks.
    pub blocks: Vec<Hash>,
}

/// Arguments of [`Command::RunPause`](super::Command::RunPause).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPause {
    /// The run.
    pub run: RunId,
    /// Reason, for users.
    pub reason: String,
}

/// Arguments of [`Command::RunResume`](super::Command::RunResume).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResume {
    /// The run.
    pub run: RunId,
    /// True to overrule a failed canary. It must fit the state of the run, so a caller that has not seen the verdict
    /// cannot overrule it.
    pub without_canary: bool,
    /// Index of the last change of the run that the caller has read ([`last_run_change`](crate::Ledger::last_run_change)).
    /// `None`: any.
    pub expected: Option<u64>,
}

/// Decision of an operator or a policy about a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// It is closed as `assumed`; it never counts as sent.
    Assume,
    /// It is pending again. The recipient may get the email twice.
    Resend,
    /// It was sent: the operator has the evidence of a relay's log.
    Sent,
}

/// Arguments of [`Command::Decide`](super::Command::Decide).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decide {
    /// The run.
    pub run: RunId,
    /// Recipients, by number within the run. Empty: all that are in doubt.
    pub recipients: Vec<u32>,
    /// The decision.
    pub decision: Decision,
    /// Source of the decision: an operator or the policy.
    pub by: Decider,
    /// Fence of the newest claim that the caller has seen; doubts of later claims stay. `None`: all doubts.
    pub up_to: Option<Fence>,
    /// Request id; `None` if the caller gave none. A repeat with the same body decides nothing more.
    pub request: Option<String>,
}

/// Recipients of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PickedRecipients {
    /// The run.
    pub run: RunId,
    /// Recipients, by number within the run. Empty: all to which the command can apply.
    pub recipients: Vec<u32>,
}

/// Arguments of [`Command::Discard`](super::Command::Discard): the dead letters that one request selects, or one page
/// of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PickedLetters {
    /// Request id; `None` if the caller gave none. A repeat finds other dead letters, and moves none of them.
    pub request: Option<String>,
    /// Hash of the request. It tells a repeat from another request with the same id.
    pub body_hash: Hash,
    /// Tenant of the runs.
    pub tenant: String,
    /// The run, as the request names it.
    pub of: String,
    /// Recipients, by run.
    pub picked: Vec<PickedRecipients>,
    /// Number of dead letters that the proposer left out because their run is cancelled.
    pub cancelled: u64,
    /// Recipient after which the next page begins; `None` if this is the last one.
    pub rest: Option<RecipientId>,
}

impl From<Vec<PickedRecipients>> for PickedLetters {
    /// Recipients that no request selects.
    fn from(picked: Vec<PickedRecipients>) -> PickedLetters {
        PickedLetters { picked, ..PickedLetters::default() }
    }
}

/// Arguments of [`Command::Requeue`](super::Command::Requeue).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeue {
    /// The dead letters.
    pub letters: PickedLetters,
    /// Pool that sends them from now on. `None`: the pool does not change.
    pub pool: Option<String>,
}
