//! What administrators and other clients asked for, and what they were answered.

use serde::{Deserialize, Serialize};

use super::Fence;

/// One call from its beginning to its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Who called.
    pub client: String,
    /// The request id; none where there was none.
    pub request_id: Option<String>,
    /// When it began.
    pub invoked_ns: u64,
    /// When the answer was there; none where there is none.
    pub answered_ns: Option<u64>,
    /// What was asked for.
    pub operation: Operation,
    /// What came back.
    pub answer: Answer,
}

impl Call {
    /// Whether it may have been done: it did not fail.
    pub fn may_be_done(&self) -> bool {
        !matches!(self.answer, Answer::Failed { .. })
    }

    /// Whether it asks to send this recipient of a run again, by name or with all others.
    pub fn resends(&self, own_run: &str, own_recipient: &str) -> bool {
        matches!(&self.operation, Operation::Resend { run, recipient }
            if run == own_run && recipient.as_ref().is_none_or(|recipient| recipient == own_recipient))
    }

    /// The same of closing it as assumed.
    pub fn assumes(&self, own_run: &str, own_recipient: &str) -> bool {
        matches!(&self.operation, Operation::Assume { run, recipient }
            if run == own_run && recipient.as_ref().is_none_or(|recipient| recipient == own_recipient))
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Operation {
    /// An object is made or changed (`value`), or removed (none).
    Write {
        /// What it is.
        kind: ObjectKind,
        /// Whose.
        tenant: String,
        /// Its name.
        name: String,
        /// What it holds from then on, in the form of [`Found::value`](super::Found); none: it is gone.
        value: Option<String>,
    },
    /// A recipient wants no more mail of a tenant.
    OptOut {
        /// Whose mail.
        tenant: String,
        /// Address.
        recipient: String,
    },
    /// A recipient wants mail again.
    TakeBack {
        /// Whose mail.
        tenant: String,
        /// Address.
        recipient: String,
    },
    /// Nothing more is sent, for now.
    Pause {
        /// Of what.
        target: Target,
    },
    /// It goes on.
    Resume {
        /// Of what.
        target: Target,
    },
    /// What was not sent is cancelled.
    Cancel {
        /// Of what.
        target: Target,
    },
    /// A schedule is to fire now. The same request id again opens nothing more.
    Trigger {
        /// Whose.
        tenant: String,
        /// Which schedule.
        schedule: String,
        /// Its recipients: an [`Audience`](super::Audience).
        audience: String,
    },
    /// An operator decides about one who is in doubt, or requeues a dead letter: it is sent (again).
    Resend {
        /// Of which run.
        run: String,
        /// Address; none: all that are in doubt.
        recipient: Option<String>,
    },
    /// An operator closes what is in doubt as assumed.
    Assume {
        /// Of which run.
        run: String,
        /// Address; none: all that are in doubt.
        recipient: Option<String>,
    },
    /// Instants of the past that never opened are to open. The same range again opens nothing more.
    Backfill {
        /// Whose.
        tenant: String,
        /// Which schedule.
        schedule: String,
        /// From here on, included.
        from_unix_ms: i64,
        /// Up to here, included.
        until_unix_ms: i64,
    },
    /// A linearizable read of an object. It changes nothing.
    Read {
        /// What it is.
        kind: ObjectKind,
        /// Whose.
        tenant: String,
        /// Its name.
        name: String,
    },
}

/// Kinds of objects that are compared at the end. An opt-out is one too: its name is the address, its value is
/// `opted_out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A schedule.
    Schedule,
    /// A campaign.
    Campaign,
    /// An opt-out.
    OptOut,
}

/// What is paused, resumed or cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A run, also a campaign's.
    Run(String),
    /// A schedule: no further run opens; those that are open go on.
    Schedule {
        /// Whose.
        tenant: String,
        /// Which.
        schedule: String,
    },
}

/// What an opt-out holds as an object: its [`Found::value`](super::Found).
pub const OPTED_OUT: &str = "opted_out";

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// It is so.
    Ok {
        /// Log index, where the answer has one.
        index: Option<u64>,
        /// The run that a trigger opened.
        run: Option<String>,
        /// Of a barrier: hand-offs that were past the gate.
        crossed: Vec<Crossing>,
        /// Of a barrier: nodes that were waited out.
        unconfirmed: Vec<String>,
    },
    /// Of a [`Operation::Read`]: what it holds, in the form of [`Found::value`](super::Found); none: it is not there.
    Found {
        /// The value.
        value: Option<String>,
    },
    /// It is not so, and will not become so by this call.
    Failed {
        /// The reason of the error.
        reason: String,
    },
    /// It may have happened, or may yet: a time-out, a broken connection.
    Unknown,
}

impl Answer {
    /// Yes, with the place in the log where the answer has one.
    pub fn at(index: Option<u64>) -> Answer {
        Answer::Ok { index, run: None, crossed: Vec::new(), unconfirmed: Vec::new() }
    }

    /// Yes, and this run was opened, if one was.
    pub fn opened(run: Option<String>) -> Answer {
        Answer::Ok { index: None, run, crossed: Vec::new(), unconfirmed: Vec::new() }
    }
}

/// A hand-off that a barrier found past its gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossing {
    /// Of which run.
    pub run: String,
    /// Whose number in the run; [`FinalState::number`](super::Standing) says who that is.
    pub number: u32,
    /// Under which row.
    pub fence: Fence,
}
