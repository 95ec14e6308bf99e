//! Calls of administrators and other clients, with their answers.

use serde::{Deserialize, Serialize};

use super::Fence;

/// One call from its beginning to its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Name of the client.
    pub client: String,
    /// The request id. `None`: the call had no request id.
    pub request_id: Option<String>,
    /// Start of the call.
    pub invoked_ns: u64,
    /// Time at which the answer arrived. `None`: there was no answer.
    pub answered_ns: Option<u64>,
    /// The requested operation.
    pub operation: Operation,
    /// The answer.
    pub answer: Answer,
}

impl Call {
    /// Returns true if the operation was, or may have been, executed: the call did not fail.
    pub fn may_be_done(&self) -> bool {
        !matches!(self.answer, Answer::Failed { .. })
    }

    /// Returns true if the call asks to send to this recipient of a run again, by name or together with all others.
    pub fn resends(&self, own_run: &str, own_recipient: &str) -> bool {
        matches!(&self.operation, Operation::Resend { run, recipient }
            if run == own_run && recipient.as_ref().is_none_or(|recipient| recipient == own_recipient))
    }

    /// Returns true if the call asks to close this recipient of a run as assumed, by name or together with all others.
    pub fn assumes(&self, own_run: &str, own_recipient: &str) -> bool {
        matches!(&self.operation, Operation::Assume { run, recipient }
            if run == own_run && recipient.as_ref().is_none_or(|recipient| recipient == own_recipient))
    }
}

/// A requested operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Operation {
    /// Creates or changes an object, or deletes it.
    Write {
        /// Kind of the object.
        kind: ObjectKind,
        /// Name of the tenant.
        tenant: String,
        /// Name of the object.
        name: String,
        /// The new value, in the form of [`Found::value`](super::Found); `None`: the object is deleted.
        value: Option<String>,
    },
    /// A recipient opts out of a tenant's emails.
    OptOut {
        /// Name of the tenant.
        tenant: String,
        /// Address of the recipient.
        recipient: String,
    },
    /// A recipient withdraws the opt-out.
    TakeBack {
        /// Name of the tenant.
        tenant: String,
        /// Address of the recipient.
        recipient: String,
    },
    /// Pauses sending.
    Pause {
        /// The run or schedule.
        target: Target,
    },
    /// Resumes sending.
    Resume {
        /// The run or schedule.
        target: Target,
    },
    /// Cancels the recipients that are not sent.
    Cancel {
        /// The run or schedule.
        target: Target,
    },
    /// Opens a run of a schedule now. A repeated request id opens no second run.
    Trigger {
        /// Name of the tenant.
        tenant: String,
        /// Name of the schedule.
        schedule: String,
        /// Name of its [`Audience`](super::Audience).
        audience: String,
    },
    /// An operator decides to send to a recipient in doubt again, or requeues a dead letter.
    Resend {
        /// Name of the run.
        run: String,
        /// Address of the recipient; `None`: all recipients in doubt.
        recipient: Option<String>,
    },
    /// An operator closes recipients in doubt as assumed.
    Assume {
        /// Name of the run.
        run: String,
        /// Address of the recipient; `None`: all recipients in doubt.
        recipient: Option<String>,
    },
    /// Opens past instants that never opened. The same range again opens no further run.
    Backfill {
        /// Name of the tenant.
        tenant: String,
        /// Name of the schedule.
        schedule: String,
        /// First instant of the range.
        from_unix_ms: i64,
        /// Last instant of the range.
        until_unix_ms: i64,
    },
    /// A linearizable read of an object.
    Read {
        /// Kind of the object.
        kind: ObjectKind,
        /// Name of the tenant.
        tenant: String,
        /// Name of the object.
        name: String,
    },
}

/// Kinds of objects whose final values are compared. The name of an opt-out is the address, and its value is
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
    /// A sealed audience, which never changes.
    Audience,
    /// A version of a template, which never changes. Its name is `NAME@VERSION`.
    TemplateVersion,
    /// A person whose address is in lists. The name is the address, and an erasure deletes the person.
    Person,
}

/// The target of a pause, resumption or cancellation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A run of a schedule or campaign.
    Run(String),
    /// A schedule: no further run opens, and open runs continue.
    Schedule {
        /// Name of the tenant.
        tenant: String,
        /// Name of the schedule.
        schedule: String,
    },
}

/// The [`Found::value`](super::Found) of an opt-out.
pub const OPTED_OUT: &str = "opted_out";
/// The [`Found::value`](super::Found) of a person.
pub const LISTED: &str = "listed";

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// The operation was executed.
    Ok {
        /// Log index of the entry. `None`: the answer has no log index.
        index: Option<u64>,
        /// The run that a trigger opened.
        run: Option<String>,
        /// Answer of a barrier: handoffs that were past the gate.
        crossed: Vec<Crossing>,
        /// Answer of a barrier: nodes whose leases were waited out.
        unconfirmed: Vec<String>,
    },
    /// Answer to an [`Operation::Read`].
    Found {
        /// The value, in the form of [`Found::value`](super::Found); `None`: there is no such object.
        value: Option<String>,
    },
    /// The operation was not executed, and this call will not execute it later.
    Failed {
        /// The reason of the error.
        reason: String,
    },
    /// The operation may have been executed, or may be executed later: a time-out or a broken connection.
    Unknown,
}

impl Answer {
    /// Returns the answer of an executed operation, with its log index if there is one.
    pub fn at(index: Option<u64>) -> Answer {
        Answer::Ok { index, run: None, crossed: Vec::new(), unconfirmed: Vec::new() }
    }

    /// Returns the answer of an executed operation, with the run that it opened if there is one.
    pub fn opened(run: Option<String>) -> Answer {
        Answer::Ok { index: None, run, crossed: Vec::new(), unconfirmed: Vec::new() }
    }
}

/// A handoff that a barrier found past its gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossing {
    /// Name of the run.
    pub run: String,
    /// Number of the recipient in the run: [`FinalState::number`](super::FinalState).
    pub number: u32,
    /// Fence of the claim.
    pub fence: Fence,
}
