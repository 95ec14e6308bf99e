//! The recorded history of a run, as JSON lines. The recorder of real processes and the simulation write histories, and
//! the checker judges a run only by its history.
//!
//! The first line is the [`Header`], each other line an [`Event`], and the last line [`Ended`]. The order of the other
//! events has no meaning, since several observers write. An instant (`…_ns`) counts nanoseconds since the beginning
//! of the history on one clock: CLOCK_BOOTTIME of the machine that judges, or virtual time. Events before the beginning
//! are at 0. A civil instant (`…_unix_ms`) counts milliseconds since 1970 UTC.
//!
//! Events that were not observed are left out. If [`Ended::missing`] names any of them, an invariant without a
//! violation is unknown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::Name;

mod calls;
mod faults;
mod fence;
mod file;
mod ledger;
mod observations;

pub use calls::{Answer, Call, Crossing, LISTED, OPTED_OUT, ObjectKind, Operation, Target};
pub use faults::{Fault, FaultKind, FaultStatus};
pub use fence::{Fence, NotAFence};
pub use file::Writer;
pub use ledger::{
    Claim, Decider, Explained, FinalState, Found, OpenClaim, Outcome, OutcomeKind, PassedOver, RecipientState,
    Resumption, Run, RunCause, StateHash,
};
pub use observations::{
    Answered, Audience, Bound, Content, Due, EpochStarted, GateReading, Handoff, Lifetime, LifetimeEnd, Limit, Outage,
    Overload,
};

/// The format that this crate writes and reads.
pub const FORMAT: u32 = 1;

/// The parameters of a run, and the bounds by which it is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Format of the history: [`FORMAT`].
    pub format: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// The command that repeats the run.
    pub command: String,
    /// The commit that was judged.
    pub commit: String,
    /// Civil time at the beginning of the history. Civil time at an instant is this time plus the instant, plus the
    /// offset of [`Event::ClockMoved`].
    pub began_unix_ms: i64,
    /// Names of the nodes, as they give them in EHLO.
    pub nodes: Vec<String>,
    /// Number of voters at the beginning. `None`: all nodes.
    pub voters: Option<u32>,
    /// The workload's policy for recipients in doubt.
    pub in_doubt: InDoubt,
    /// Number of sessions of each node with the sink, over all relays.
    pub sessions: u32,
    /// Maximum difference between the judging clock and ledger time. No email may arrive earlier than this before its
    /// instant.
    pub clock_error_ms: u64,
    /// Maximum lateness of an opening while a quorum can act.
    pub late_ms: u64,
    /// Maximum time from healing until everything is done.
    pub drain_within_ms: u64,
    /// Maximum time until a majority that is up has a leader (I17). `None`: ten seconds, for the product's own election
    /// times.
    pub led_within_ms: Option<u64>,
    /// Maximum delay of the first email of a run by another tenant's overload (I12).
    pub start_bound_ms: Option<u64>,
    /// Other policies of the workload's schedules.
    pub policies: Policies,
    /// Numbers of the invariants to judge. 1, 2, 4 and 9 are always judged.
    pub asks: Vec<u8>,
    /// Coverage that a valid run must have.
    pub coverage: Coverage,
}

/// Policies of a workload's schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// Minimum time from the instant until an unsent email may expire. `None`: it does not expire by time. It may
    /// always expire at the next instant.
    pub finish_within_ms: Option<u64>,
    /// Minimum time from the opening until emails of the run may expire.
    pub finish_at_least_ms: u64,
    /// True if an instant may be skipped because an earlier run of its schedule is not finished.
    pub may_skip: bool,
}

/// Coverage that a valid run must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Minimum average of accepted emails per second while faults were in force.
    pub mails_per_second: u32,
    /// Minimum number of kills of a sending process between a final dot and its 250.
    pub kills_inside_data: u32,
    /// Minimum number of installed faults with an observed effect, by kind.
    pub faults: BTreeMap<FaultKind, u32>,
}

/// Policy for recipients in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubt {
    /// They are not sent again without an operator's decision.
    #[default]
    Hold,
    /// They are sent again. Duplicates are accepted.
    Resend,
    /// They are closed as assumed when the run ends.
    AssumeSent,
}

/// One observation, such as the line `{"handoff":{…}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A phase of the run began.
    Phase(Phase),
    /// The test clock was moved by hand (P19). From then on civil time is ahead by this offset.
    ClockMoved {
        /// Time of the event.
        at_ns: u64,
        /// Sum of all moves.
        offset_ms: i64,
    },
    /// A handoff arrived at the sink.
    Handoff(Handoff),
    /// A list of recipients that [`Due`] instants refer to.
    Audience(Audience),
    /// An instant that was due, by a calendar that shares no code with the product.
    Due(Due),
    /// The lifetime of a node's process.
    Lifetime(Lifetime),
    /// The gate passes of a process.
    GateReading(GateReading),
    /// A leadership began.
    EpochStarted(EpochStarted),
    /// No quorum could act.
    Outage(Outage),
    /// One tenant's load was above its budget.
    Overload(Overload),
    /// A limit of the workload.
    Limit(Limit),
    /// A client's call.
    Call(Call),
    /// A fault, installed or not.
    Fault(Fault),
    /// A claim in the ledger.
    Claim(Claim),
    /// An outcome of a claimed recipient in the ledger.
    Outcome(Outcome),
    /// A resumption of a run in the ledger.
    Resumption(Resumption),
    /// A run that was paused when all faults were over.
    Paused {
        /// Name of the run.
        run: Name,
    },
    /// A claim that was observed open.
    OpenClaim(OpenClaim),
    /// A node's hash of its state.
    StateHash(StateHash),
    /// Read at the end: a run.
    Run(Run),
    /// Read at the end: instants that opened no run.
    Explained(Explained),
    /// Read at the end: the state of a recipient of a run.
    FinalState(FinalState),
    /// Read at the end: an object that an administrator may have made.
    Found(Found),
    /// No recipient was pending or claimed any more.
    Drained {
        /// Time of the event.
        at_ns: u64,
    },
    /// The last line.
    Ended(Ended),
}

/// A phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Start of the phase.
    pub at_ns: u64,
    /// The phase.
    pub phase: PhaseName,
}

/// The phases, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseName {
    /// Faults begin.
    Faults,
    /// From now on a quorum is undisturbed. Remaining faults last until the end.
    Healed,
}

/// The last line. A history without it was cut short and cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Time of the last read. Later emails were not observed.
    pub at_ns: u64,
    /// Parts that were not observed completely, as text for people.
    pub missing: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn header() -> Header {
        Header { format: FORMAT, seed: 7, nodes: vec!["n1".to_owned()], ..Header::default() }
    }
}
