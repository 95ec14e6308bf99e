//! Observations outside of the ledger: emails, due instants, processes, gates, leaders and limits.

use serde::{Deserialize, Serialize};

use super::Fence;
use crate::names::Name;

/// A handoff that arrived at the sink, for one recipient, by the sink's own record. An email to three recipients is
/// recorded three times. Messages that a fault of the sink cut off before the final dot are recorded too
/// ([`Answered::Cut`], with run and fence if they had arrived), and messages that were refused as malformed
/// ([`Answered::Malformed`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Time at which the sink read the DATA command.
    pub data_ns: u64,
    /// Time at which the sink read the final dot.
    pub at_ns: u64,
    /// The header `X-Reveille-Run`. Empty: the email had no such header.
    pub run: Name,
    /// The address in RCPT.
    pub recipient: Name,
    /// The header `X-Reveille-Fence`. `None`: the email had no valid fence.
    pub fence: Option<Fence>,
    /// The name that the client gave in EHLO.
    pub node: Name,
    /// How the sink answered.
    pub answer: Answered,
    /// `Message-ID`.
    pub message_id: Option<Name>,
    /// Hash of the bytes after the header section.
    pub body: Option<Name>,
    /// The content that the body names. `None`: the body names no content, or was not read.
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

    /// Returns the text of a schedule, as a template.
    pub fn template(schedule: &str) -> String {
        let code = Content::VARIABLE;
        format!("Schedule: {schedule}\nRun: {{{{ run }}}}\nRecipient: {{{{ recipient }}}}\nCode: {{{{ {code} }}}}\n")
    }

    /// Reads a body. `None`: one of the four lines is missing.
    pub fn read(body: &str) -> Option<Content> {
        let value = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)).map(Name::from);
        let (schedule, run) = (value("Schedule: ")?, value("Run: ")?);
        Some(Content { schedule, run, recipient: value("Recipient: ")?, code: value("Code: ")? })
    }

    /// Returns the value of [`Content::VARIABLE`] for a recipient that a schedule names: 64 bits of both (FNV-1a).
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
    /// Recorded as accepted, and 250 was sent. It is unknown if the 250 arrived.
    Accepted,
    /// Recorded as accepted, but an injected fault of the sink suppressed the answer.
    AcceptedUnanswered,
    /// Refused, and the whole reply was written.
    Refused,
    /// Neither recorded nor answered, by an injected fault of the sink.
    Nothing,
    /// An injected fault of the sink ended the dialogue within the message: no final dot was read, and the email did
    /// not arrive. It is unknown if the sender had passed its gate.
    Cut,
    /// Refused as malformed (a lone line feed or carriage return, or a line that is too long), and the whole reply was
    /// written. The end of such a message is unknown.
    Malformed,
}

impl Answered {
    /// Returns true if the sink recorded the email as accepted.
    pub fn is_accepted(self) -> bool {
        matches!(self, Answered::Accepted | Answered::AcceptedUnanswered)
    }

    /// Returns true if an injected fault of the sink left a final dot without an answer. Only the sender knows if it
    /// had written that dot.
    pub fn leaves_doubt(self) -> bool {
        matches!(self, Answered::AcceptedUnanswered | Answered::Nothing | Answered::Cut)
    }
}

/// A list of recipients that several instants share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audience {
    /// Name of the audience, for [`Due::audience`].
    pub name: Name,
    /// Addresses, without duplicates.
    pub recipients: Vec<Name>,
    /// The value of [`Content::VARIABLE`] for each recipient, in the same order. Empty: the recipients have no values.
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
    /// Name of the [`Audience`].
    pub audience: Name,
}

/// The lifetime of a node's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// Name of the node.
    pub node: String,
    /// Incarnation of the node. `None`: it was not read.
    pub incarnation: Option<u64>,
    /// Start of the process, or an instant before it.
    pub started_ns: u64,
    /// End of the process, or an instant after it. `None`: it runs.
    pub ended_ns: Option<u64>,
    /// How the process ended. `None`: it runs.
    pub end: Option<LifetimeEnd>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LifetimeEnd {
    /// The run killed it.
    Killed,
    /// The run asked it to stop, and it stopped.
    Stopped,
    /// It ended by itself: by a disk fault, a panic, or for lack of memory.
    ByItself,
}

/// A reading of a process's counter of gate passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReading {
    /// The counter was read at this instant or later, so it counts all handoffs that arrived before. `None`: it was
    /// read after the last handoff of the process.
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
    /// Time at which the leadership was first observed.
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

/// A limit of the workload that must hold over all nodes and fail-overs. A limit is recorded when it is
/// set, and again with its end if it is lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Tenants whose runs the limit concerns.
    pub tenants: Vec<String>,
    /// Schedules and campaigns that the limit concerns. Empty: all.
    pub schedules: Vec<String>,
    /// Start of the limit.
    pub from_ns: u64,
    /// End of the limit. `None`: the end of the history.
    pub until_ns: Option<u64>,
    /// The limit itself.
    pub bound: Bound,
}

/// The bound of a [`Limit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Maximum rate of emails that the only relay of these runs accepts from all nodes (P25).
    RelayRate {
        /// Number of emails in 1,000 seconds.
        per_second_milli: u64,
        /// Number of sessions of each node.
        sessions: u32,
    },
    /// Maximum rate at which recipients are claimed (P25).
    TenantRate {
        /// Number of recipients in 1,000 seconds.
        per_second_milli: u64,
    },
    /// The pool of these runs is warmed up (P25).
    WarmUp {
        /// The first day, in whole days since 1970-01-01 UTC.
        first_day: i64,
        /// Maximum number of emails on each day.
        caps: Vec<u32>,
    },
    /// Minimum time between the instants of two runs of one schedule that send to the same recipient (P17).
    MinGap {
        /// Length of the gap in milliseconds.
        gap_ms: u64,
    },
    /// Maximum number of handoffs to a recipient without a definite answer, except those that an operator decides (P4,
    /// P14).
    MaxAttempts {
        /// Number of handoffs.
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
