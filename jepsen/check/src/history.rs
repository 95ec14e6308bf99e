//! The recorded history of a run: what its observers saw, as JSON lines. Written by the recorder of real
//! processes and by the simulation, read by the checker; all that one needs to judge a run is in it.
//!
//! The first line is the [`Header`], each other one an [`Event`], the last one [`Ended`]. Between these two the order
//! means nothing, since several observers write. An instant (`…_ns`) counts nanoseconds since the beginning of the
//! history on one clock: CLOCK_BOOTTIME of the machine that judges, or virtual time. What happened before the beginning
//! is at 0. A civil instant (`…_unix_ms`) counts milliseconds since 1970 UTC.
//!
//! Nothing is guessed. What was not observed is left out, and [`Ended::whole`] names the parts that were observed
//! completely; an invariant that needs a part that is not whole comes out as unknown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod calls;
mod faults;
mod fence;
mod file;
mod ledger;
mod world;

pub use calls::{Answer, Call, Crossing, OPTED_OUT, ObjectKind, Operation, Target};
pub use faults::{Fault, FaultKind, FaultStatus};
pub use fence::{Fence, NotAFence};
pub use file::Writer;
pub use ledger::{
    Claim, Explained, FinalState, Found, OpenClaim, Outcome, PassedOver, RecipientState, Resumption, Run, RunCause,
    StateHash, Step,
};
pub use world::{
    Answered, Audience, Bound, Content, Due, EpochStarted, GatePasses, GateReading, Lifetime, LifetimeEnd, Limit, Mail,
    Outage, Overload,
};

/// The format that this crate writes and reads.
pub const FORMAT: u32 = 1;

/// What a run was and by which figures it is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// What is random came from this.
    pub seed: u64,
    /// The command that repeats the run.
    pub command: String,
    /// The commit that was judged.
    pub commit: String,
    /// What `…_ns` counts.
    pub clock: Clock,
    /// Civil time at the beginning of the history. Civil time at an instant is this plus the instant, plus what
    /// [`Event::ClockMoved`] says.
    pub began_unix_ms: i64,
    /// Names of the nodes, as they stand in EHLO.
    pub nodes: Vec<String>,
    /// What the schedules of the workload do with what is in doubt.
    pub in_doubt: InDoubt,
    /// Length of a node lease (P9).
    pub lease_ms: u64,
    /// What a leader waits on top of it.
    pub margin_ms: u64,
    /// Sessions to the sink on each node, over all relays.
    pub sessions: u32,
    /// Recipients that a node may hold claimed and unsettled at most, whatever its relays let through (P12).
    pub claim_cap: u32,
    /// So far apart the judging clock and ledger time may be: nothing earlier than this before its instant.
    pub clock_error_ms: u64,
    /// An instant opens at most so late where a quorum is there.
    pub late_ms: u64,
    /// After healing everything has to be done within this.
    pub drain_within_ms: u64,
    /// A majority that is up has a leader within this (I17); none: ten seconds, for elections as the product has them.
    pub led_within_ms: Option<u64>,
    /// Another tenant's overload may move the first mail of a run by so much (I12).
    pub start_bound_ms: Option<u64>,
    /// What the schedules of the workload allow beside that.
    pub policies: Policies,
    /// Numbers of the invariants that this run can say something about. 1, 2, 4 and 9 are judged in any case.
    pub asks: Vec<u8>,
    /// What the run must have exercised in order to count.
    pub coverage: Coverage,
}

/// What the schedules of a workload allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// What is not sent so long after its instant may expire. None: never; at the next instant it may in any case.
    pub finish_within_ms: Option<u64>,
    /// But never sooner after it opened.
    pub finish_at_least_ms: u64,
    /// An instant may be skipped because an earlier run of its schedule is not finished.
    pub may_skip: bool,
}

/// What a run must have exercised in order to count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Accepted emails a second while faults were in force, on average.
    pub mails_per_second: u32,
    /// Kills of a sender that were seen to fall between a final dot and its 250.
    pub kills_inside_data: u32,
    /// For each kind of fault, how many have to be installed, and seen to have an effect.
    pub faults: BTreeMap<FaultKind, u32>,
}

/// What `…_ns` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Real time.
    #[default]
    Wall,
    /// The time of a simulation.
    Virtual,
}

/// The policy for what is in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubt {
    /// Never sent again without a decision.
    #[default]
    Hold,
    /// Sent again; duplicates are by choice.
    Resend,
    /// Closed as assumed in the end.
    AssumeSent,
}

/// One thing that was seen: `{"mail":{…}}` as a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Another phase of the run began.
    Phase(Phase),
    /// The civil time of the cluster was moved by hand (P19): from here on it is so much later than by the clock.
    ClockMoved {
        /// When.
        at_ns: u64,
        /// All moves together.
        offset_ms: i64,
    },
    /// A final dot arrived at the sink.
    Mail(Mail),
    /// A list of recipients that [`Due`] instants name.
    Audience(Audience),
    /// An instant that is due by a model that shares nothing with the product.
    Due(Due),
    /// One life of a node.
    Lifetime(Lifetime),
    /// The gate passes of one whole life.
    GatePasses(GatePasses),
    /// The gate passes of a life, while it went on.
    GateReading(GateReading),
    /// A leadership began.
    EpochStarted(EpochStarted),
    /// No quorum could act.
    Outage(Outage),
    /// One tenant's load was above its budget.
    Overload(Overload),
    /// A bound that the workload was given.
    Limit(Limit),
    /// A client's call.
    Call(Call),
    /// A fault, whether it came about or not.
    Fault(Fault),
    /// What the ledger says was granted.
    Claim(Claim),
    /// What the ledger says came of one recipient of a row.
    Outcome(Outcome),
    /// Where the ledger says that a run was let go on.
    Resumption(Resumption),
    /// A run that was seen paused when all faults were over.
    Paused {
        /// Which.
        run: String,
    },
    /// A row that was seen open.
    OpenClaim(OpenClaim),
    /// A node's hash of its state.
    StateHash(StateHash),
    /// Read at the end: a run.
    Run(Run),
    /// Read at the end: instants that opened no run.
    Explained(Explained),
    /// Read at the end: where a recipient of a run stands.
    FinalState(FinalState),
    /// Read at the end: an object that an administrator may have made.
    Found(Found),
    /// Nothing was pending and nothing claimed any more, as was first seen then.
    Drained {
        /// When.
        at_ns: u64,
    },
    /// The last line.
    Ended(Ended),
}

/// A phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// When it began.
    pub at_ns: u64,
    /// Which.
    pub phase: PhaseName,
}

/// The phases, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseName {
    /// Faults may come from now on.
    Faults,
    /// A quorum is whole again and stays so; what is still broken stays broken.
    Healed,
}

/// The last line: a history without it was cut short, and nothing can be judged by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When the last read was done. Mail that came later was not seen.
    pub at_ns: u64,
    /// What was observed completely.
    pub whole: Vec<Part>,
}

/// A part of a history that can be observed completely or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Every accept of the sink is a [`Mail`].
    Accepts,
    /// And every other final dot: refused, or left without an answer; and every message that the sink cut off.
    Handoffs,
    /// Every whole message among them has its [`Content`], if its body has one.
    Contents,
    /// Every claim of every run is a [`Claim`].
    Claims,
    /// Every step of every recipient is an [`Outcome`].
    Outcomes,
    /// Every recipient of every run has a [`FinalState`].
    FinalStates,
    /// Every run is a [`Run`].
    Runs,
    /// Every instant without a run is [`Explained`].
    Instants,
    /// Every instant that was due until the end of the workload is a [`Due`].
    Due,
    /// Every change that was asked for is a [`Call`].
    Calls,
    /// Every object that is there at the end is [`Found`].
    Objects,
    /// Every life of every node is a [`Lifetime`].
    Lifetimes,
    /// Every life that ran at the end has its [`GatePasses`]. One that is over has them too, or a [`GateReading`] for
    /// each second of it: the last counter of a killed process cannot be read.
    Gates,
    /// Every fault is a [`Fault`].
    Faults,
    /// Every interval without an acting quorum is an [`Outage`], and every leadership is an [`EpochStarted`].
    Outages,
    /// Open rows were read at least once a second; or each row that was closed has an [`OpenClaim`] with the time
    /// when it was open for the last time.
    OpenClaims,
    /// State hashes were read of several nodes at equal indices.
    StateHashes,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn header() -> Header {
        Header { format: FORMAT, seed: 7, nodes: vec!["n1".to_owned()], ..Header::default() }
    }
}
