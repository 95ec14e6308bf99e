//! Commands about runs and their recipients.

use serde::{Deserialize, Serialize};

use crate::model::{Decider, Fence, Nominal, RunId, ScheduleId};

/// See [`Command::RunBlock`](super::Command::RunBlock). A mark for people: what is claimed is decided by what each node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBlock {
    /// The run.
    pub run: RunId,
    /// A part of its audience that no live node has, by its place in the seal; none: there is no such part any more.
    pub part: Option<u32>,
}

/// See [`Command::Prune`](super::Command::Prune): what is not old enough when this is applied stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prune {
    /// Pages, by their first run: each of their runs leaves a summary.
    pub pages: Vec<RunId>,
    /// Runs whose summary goes too, and with it their name.
    pub summaries: Vec<RunId>,
    /// Ranges of instants that were explained, by their first.
    pub history: Vec<(ScheduleId, Nominal)>,
}

/// See [`Command::RunPause`](super::Command::RunPause).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPause {
    /// The run.
    pub run: RunId,
    /// Why, for people.
    pub reason: String,
}

/// See [`Command::RunResume`](super::Command::RunResume).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResume {
    /// The run.
    pub run: RunId,
    /// Its canary has held it, and it is to go on without. Compared with its state: a caller that has not seen the
    /// verdict overrules none.
    pub without_canary: bool,
}

/// What a person or a policy decides of a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Closed as `assumed`; never counted as sent.
    Assume,
    /// Pending again: may come twice, by choice.
    Resend,
}

/// See [`Command::Decide`](super::Command::Decide). `recipients` by number within the run; empty means all that are in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decide {
    /// The run.
    pub run: RunId,
    /// Which recipients.
    pub recipients: Vec<u32>,
    /// What.
    pub decision: Decision,
    /// Who decides.
    pub by: Decider,
    /// The newest hand-off that the caller has seen: a doubt of a later one stays. None: all doubts are meant.
    pub up_to: Option<Fence>,
    /// The client's key: asked again with the same body, it decides nothing more.
    pub request: Option<String>,
}

/// Recipients of one run, by number; empty means all that the command can mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PickedRecipients {
    /// The run.
    pub run: RunId,
    /// Which recipients.
    pub recipients: Vec<u32>,
}

/// See [`Command::Requeue`](super::Command::Requeue).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeue {
    /// Recipients by run.
    pub picked: Vec<PickedRecipients>,
    /// By which pool they go from now on; none: by the one they went by.
    pub pool: Option<String>,
}
