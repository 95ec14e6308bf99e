//! Observations outside of the ledger: emails, due instants, processes, gates, leaders and limits.

use serde::{Deserialize, Serialize};

use super::Fence;
use crate::names::Name;

/// A handoff that arrived at the sink, for one recipient; an email to three recipients is recorded three times. It is
/// the sink's own record, not a node's. Also a message that a fault of the sink cut off before its final dot
/// ([`Answered::Cut`], with run and fence if they had arrived), or that was refused as malformed
/// ([`Answered::Malformed`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// When the DATA command was read.
    pub data_ns: u64,
    /// When the final dot was read.
    pub at_ns: u64,
    /// The header `X-Reveille-Run`; empty if the email had none.
    pub run: Name,
    /// The address in RCPT.
    pub recipient: Name,
    /// The header `X-Reveille-Fence`, if the email had a valid one.
    pub fence: Option<Fence>,
    /// The name that the client gave in EHLO.
    pub node: Name,
    /// How it was answered.
    pub answer: Answered,
    /// `Message-ID`.
    pub message_id: Option<Name>,
    /// Hash of what follows the header section.
    pub body: Option<Name>,
    /// The content that the body names; `None` if it names none or was not read.
    pub content: Option<Content>,
    /// Identity headers (`Message-ID`, `X-Reveille-Run`, `X-Reveille-Fence`) that this email has more than once.
    pub repeated_headers: Vec<String>,
}

/// The lines in a body of the test workload that name its schedule, run and recipient, to detect the wrong content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The schedule or campaign, as the template names it.
    pub schedule: Name,
    /// The run, as the template's built-in variable has it.
    pub run: Name,
    /// The recipient's address, as the template's built-in variable has it.
    pub recipient: Name,
    /// The value of the recipient's variable: [`Audience::codes`].
    pub code: Name,
}

impl Content {
    /// The variable that each recipient has.
    pub const VARIABLE: &str = "code";

    /// The text of a schedule, as a template.
    pub fn template(schedule: &str) -> String {
        let code = Content::VARIABLE;
        format!("Schedule: {schedule}\nRun: {{{{ run }}}}\nRecipient: {{{{ recipient }}}}\nCode: {{{{ {code} }}}}\n")
    }

    /// Reads a body; `None` if one of the four lines is missing.
    pub fn read(body: &str) -> Option<Content> {
        let value = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)).map(Name::from);
        let (schedule, run) = (value("Schedule: ")?, value("Run: ")?);
        Some(Content { schedule, run, recipient: value("Recipient: ")?, code: value("Code: ")? })
    }

    /// The value of [`Content::VARIABLE`] for a recipient that a schedule names: 64 bits of both (FNV-1a).
    pub fn code_of(schedule: &str, recipient: &str) -> String {
        let bytes = schedule.bytes().chain([0]).chain(recipient.bytes());
        let hash = bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016x}")
    }
}

/// How the sink answered a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// Recorded as accepted, and 250 was sent. Whether the 250 arrived is unknown.
    Accepted,
    /// Recorded as accepted, but an injected fault of the sink suppressed the answer.
    AcceptedUnanswered,
    /// Refused, and the whole reply was written.
    Refused,
    /// Neither recorded nor answered, by an injected fault of the sink.
    Nothing,
    /// An injected fault of the sink ended the dialogue within the message: no final dot was read, and the email did
    /// not arrive. Whether the sender had passed its gate is unknown.
    Cut,
    /// Refused as malformed, and the whole reply was written: a bare line feed or carriage return, or too long a line.
    /// The end of such a message is unknown.
    Malformed,
}

impl Answered {
    /// Whether the sink recorded it as accepted.
    pub fn is_accepted(self) -> bool {
        matches!(self, Answered::Accepted | Answered::AcceptedUnanswered)
    }

    /// Whether an injected fault of the sink left a final dot, which the sender may have written, without an answer.
    pub fn leaves_doubt(self) -> bool {
        matches!(self, Answered::AcceptedUnanswered | Answered::Nothing | Answered::Cut)
    }
}

/// A list of recipients that several instants share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audience {
    /// Name of the audience, for [`Due::audience`].
    pub name: Name,
    /// Addresses, each once.
    pub recipients: Vec<Name>,
    /// The value of [`Content::VARIABLE`] for each recipient, in the same order; empty if recipients have none.
    pub codes: Vec<Name>,
}

/// An instant of a schedule, or the instant of a campaign, by the checker's calendar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Name of the tenant.
    pub tenant: Name,
    /// Name of the schedule or campaign.
    pub schedule: Name,
    /// The instant that was due.
    pub due_unix_ms: i64,
    /// Name of its [`Audience`].
    pub audience: Name,
}

/// The lifetime of a node's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// Name of the node.
    pub node: String,
    /// Incarnation of the node; `None` if it was not read.
    pub incarnation: Option<u64>,
    /// When it was started.
    pub started_ns: u64,
    /// When the process ended; `None` while it runs.
    pub ended_ns: Option<u64>,
    /// How the process ended; `None` while it runs.
    pub end: Option<LifetimeEnd>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LifetimeEnd {
    /// It was killed on purpose.
    Killed,
    /// It was asked to stop, and stopped.
    Stopped,
    /// It ended by itself: by a disk fault, a panic, or for lack of memory.
    ByItself,
}

/// The gate's counter of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReading {
    /// It was read at this instant or later. What arrived before had passed the gate before. `None`: it was read after the
    /// last handoff of the process.
    pub at_ns: Option<u64>,
    /// Name of the node.
    pub node: String,
    /// Incarnation of the process.
    pub incarnation: u64,
    /// Number of handoffs that passed the gate.
    pub passes: u64,
}

/// A leadership began to act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStarted {
    /// When the leadership was first observed.
    pub at_ns: u64,
    /// Number of the epoch.
    pub epoch: u64,
}

/// No leader had a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Start of the interval.
    pub from_ns: u64,
    /// End of the interval.
    pub until_ns: u64,
}

/// A tenant has more emails to send than its relays accept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overload {
    /// Name of the tenant.
    pub tenant: String,
    /// Start of the interval.
    pub from_ns: u64,
    /// End of the interval.
    pub until_ns: u64,
}

/// A limit of the workload that must hold at the sink, over all nodes and fail-overs. It is recorded when it is set,
/// and again with its end if it is lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The limit concerns runs of these tenants.
    pub tenants: Vec<String>,
    /// The schedules and campaigns that it concerns; empty: all.
    pub schedules: Vec<String>,
    /// Start of the limit.
    pub from_ns: u64,
    /// End of the limit; `None`: the end of the history.
    pub until_ns: Option<u64>,
    /// The limit itself.
    pub bound: Bound,
}

/// The bound of a [`Limit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Emails a second that the only relay of these runs accepts from all nodes (P25).
    RelayRate {
        /// Emails in 1,000 seconds.
        per_second_milli: u64,
        /// Sessions of each node.
        sessions: u32,
    },
    /// Recipients that are claimed a second (P25).
    TenantRate {
        /// Emails in 1,000 seconds.
        per_second_milli: u64,
        /// Sessions of each node, over all relays of these runs.
        sessions: u32,
    },
    /// The pool of these runs is warmed up (P25).
    WarmUp {
        /// The first day, in whole days since 1970-01-01 UTC.
        first_day: i64,
        /// Emails on each day.
        caps: Vec<u32>,
    },
    /// Instants of two runs of one schedule that send to the same recipient are at least this far apart (P17).
    MinGap {
        /// Milliseconds.
        gap_ms: u64,
    },
    /// Handoffs to a recipient without a definite answer, unless an operator decides to send again (P4, P14).
    MaxAttempts {
        /// Handoffs.
        attempts: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::Content;

    #[test]
    fn template_body_is_read_back_and_shorter_body_is_not() {
        let code = Content::code_of("once-7", "ann@example.net");
        let body =
            Content::template("once-7").replace("{{ recipient }}", "ann@example.net").replace("{{ code }}", &code);
        let body = body.replace("{{ run }}", "r8.0");
        let content = Content {
            schedule: "once-7".into(),
            run: "r8.0".into(),
            recipient: "ann@example.net".into(),
            code: code.as_str().into(),
        };
        assert_eq!(Content::read(&body.replace('\n', "\r\n")), Some(content));
        assert_eq!(Content::read("Schedule: once-7\nRun: r8.0\nRecipient: ann@example.net\n"), None);
        assert_ne!(code, Content::code_of("once-7", "bob@example.net"));
        assert_ne!(code, Content::code_of("once-8", "ann@example.net"));
    }
}
