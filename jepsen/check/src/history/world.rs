//! What was observed outside of the ledger: emails, what was due, incarnations of nodes, and leases.

use serde::{Deserialize, Serialize};

use super::Fence;

/// A final dot that arrived at the sink, for one recipient; a mail to three makes three. Also a message that a fault of
/// the sink's cut off before its dot ([`Answered::Cut`]); its run and its fence are there if that much of it had come.
/// The sink's own record, never what a node said. Or one that was refused before its dot as no message
/// ([`Answered::Malformed`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// When DATA was read.
    pub data_ns: u64,
    /// When the dot was.
    pub at_ns: u64,
    /// `X-Reveille-Run`; none where the mail had none.
    pub run: Option<String>,
    /// As it stood in RCPT.
    pub recipient: String,
    /// `X-Reveille-Fence`; none where the mail had none, or no fence.
    pub fence: Option<Fence>,
    /// What the client called itself in EHLO.
    pub node: String,
    /// The sink's number of the connection.
    pub connection: u64,
    /// How it was answered.
    pub answer: Answered,
    /// `Message-ID`.
    pub message_id: Option<String>,
    /// Hash of what follows the header section.
    pub body: Option<String>,
    /// What the body says of itself; none where it does not say it, or was not read.
    pub content: Option<Content>,
    /// Identity headers (`Message-ID`, `X-Reveille-Run`, `X-Reveille-Fence`) that this email has more than once.
    pub repeated_headers: Vec<String>,
}

/// What a body of the judge's workload says of itself, so that the wrong content for a recipient is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The schedule or campaign. It stands in the template.
    pub schedule: String,
    /// The recipient's address, as the template's own variable has it.
    pub recipient: String,
    /// The value of a variable that each recipient has: [`Audience::codes`] says which.
    pub code: String,
}

impl Content {
    /// The variable that each recipient has.
    pub const VARIABLE: &str = "code";

    /// The text of a schedule, as a template.
    pub fn template(schedule: &str) -> String {
        format!("Schedule: {schedule}\nRecipient: {{{{ recipient }}}}\nCode: {{{{ {} }}}}\n", Content::VARIABLE)
    }

    /// Reads a body; none where one of the three lines is missing.
    pub fn read(body: &str) -> Option<Content> {
        let value = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        Some(Content { schedule: value("Schedule: ")?, recipient: value("Recipient: ")?, code: value("Code: ")? })
    }

    /// The value of [`Content::VARIABLE`] for a recipient that a schedule names: 64 bits of both (FNV-1a).
    pub fn code_of(schedule: &str, recipient: &str) -> String {
        let bytes = schedule.bytes().chain([0]).chain(recipient.bytes());
        let hash = bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016x}")
    }
}

/// How the sink answered a final dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// It was recorded as accepted, and the sink did what it could to say so. Whether the 250 arrived is another
    /// matter.
    Accepted,
    /// It was recorded as accepted, and an injected fault of the sink suppressed the answer.
    AcceptedUnanswered,
    /// It was refused, by a reply that was written whole.
    Refused,
    /// Neither, by a fault of the sink's: not recorded, and no answer.
    Nothing,
    /// No dot was read: by a fault of the sink's the dialogue ended within the message. Whether the sender had written
    /// the dot by then, and so had passed its gate, is not known here. It did not arrive.
    Cut,
    /// It was refused as no message, by a reply that was written whole: a bare line feed or carriage return, a line too
    /// long. After the first of these the end of the message is unknown.
    Malformed,
}

impl Answered {
    /// It stands in the sink's record: it arrived.
    pub fn is_accepted(self) -> bool {
        matches!(self, Answered::Accepted | Answered::AcceptedUnanswered)
    }

    /// By a fault of the sink's the sender was not told what became of a dot that it may have written.
    pub fn leaves_doubt(self) -> bool {
        matches!(self, Answered::AcceptedUnanswered | Answered::Nothing | Answered::Cut)
    }
}

/// A list of recipients that several instants share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audience {
    /// What [`Due::audience`] says.
    pub name: String,
    /// Addresses, each once.
    pub recipients: Vec<String>,
    /// The value of [`Content::VARIABLE`] of each recipient, in the same order; empty where recipients have none.
    pub codes: Vec<String>,
}

/// An instant of a schedule, or the one of a campaign, by a model of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Whose.
    pub tenant: String,
    /// Name of the schedule or campaign.
    pub schedule: String,
    /// When.
    pub due_unix_ms: i64,
    /// Its recipients: an [`Audience`].
    pub audience: String,
}

/// One life of a node's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// Which node.
    pub node: String,
    /// Which life of it, as the node counts; none where that was not read.
    pub incarnation: Option<u64>,
    /// When it was started.
    pub started_ns: u64,
    /// When it was gone; none while it runs.
    pub ended_ns: Option<u64>,
    /// How it ended; none while it runs.
    pub end: Option<LifetimeEnd>,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LifetimeEnd {
    /// It was killed on purpose.
    Killed,
    /// It was asked to stop, and did.
    Stopped,
    /// It ended by itself: by a fault of its disk, a panic, for want of memory.
    ByItself,
}

/// How often the gate of one life let a hand-off pass, all of that life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatePasses {
    /// Which node.
    pub node: String,
    /// Which life of it.
    pub incarnation: u64,
    /// How often.
    pub passes: u64,
}

/// How often the gate of a life had let a hand-off pass when it was asked, at this instant or later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReading {
    /// When it was asked. What arrived before had passed the gate before.
    pub at_ns: u64,
    /// Which node.
    pub node: String,
    /// Which life of it.
    pub incarnation: u64,
    /// How often.
    pub passes: u64,
}

/// A leadership began to act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStarted {
    /// When, or a little later: when it was first seen.
    pub at_ns: u64,
    /// Its number.
    pub epoch: u64,
    /// Who leads.
    pub node: String,
}

/// No leader had a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub until_ns: u64,
}

/// One tenant was given more than its relays can take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overload {
    /// Which tenant.
    pub tenant: String,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub until_ns: u64,
}

/// A bound that the workload was given, and that the sink has to see kept, over all nodes and fail-overs. Told when it
/// is set, and once more with its end where it is lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// For runs of these tenants.
    pub tenants: Vec<String>,
    /// Of these schedules and campaigns; empty: of all.
    pub schedules: Vec<String>,
    /// Since when it is in force.
    pub from_ns: u64,
    /// Until when; none: to the end.
    pub until_ns: Option<u64>,
    /// What it says.
    pub bound: Bound,
}

/// What a [`Limit`] says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The only relay that they go by takes so many emails a second from all nodes (P25).
    RelayRate {
        /// Emails in a thousand seconds.
        per_second_milli: u64,
        /// Sessions of each node.
        sessions: u32,
    },
    /// So many of them are claimed a second (P25).
    TenantRate {
        /// Emails in a thousand seconds.
        per_second_milli: u64,
        /// Sessions of each node, over all relays that they go by.
        sessions: u32,
    },
    /// The pool that they go by is warmed up (P25).
    WarmUp {
        /// The first day, in whole days since 1970-01-01 UTC.
        first_day: i64,
        /// Emails on each day.
        caps: Vec<u32>,
    },
    /// No recipient gets emails of two runs of one of these schedules whose instants are less than this apart (P17).
    MinGap {
        /// Milliseconds.
        gap_ms: u64,
    },
    /// No recipient is handed over more often without a definite answer, unless an operator has it sent again (P4,
    /// P14).
    MaxAttempts {
        /// Hand-offs.
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
        let content =
            Content { schedule: "once-7".to_owned(), recipient: "ann@example.net".to_owned(), code: code.clone() };
        assert_eq!(Content::read(&body.replace('\n', "\r\n")), Some(content));
        assert_eq!(Content::read("Schedule: once-7\nRecipient: ann@example.net\n"), None);
        assert_ne!(code, Content::code_of("once-7", "bob@example.net"));
        assert_ne!(code, Content::code_of("once-8", "ann@example.net"));
    }
}
