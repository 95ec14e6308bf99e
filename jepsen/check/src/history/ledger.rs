//! What the ledger says: during the run as far as it can be read, and once more at the end. In real runs it comes
//! from the admin API (`explain`, runs, history, doubts), in the simulation from the log itself.

use serde::{Deserialize, Serialize};

use super::Fence;

/// A row that a claim granted. The log index is in the fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Which row.
    pub fence: Fence,
    /// Name of the node that may work it.
    pub node: String,
    /// Which life of that node; none where that was not read.
    pub incarnation: Option<u64>,
    /// Of which run.
    pub run: String,
    /// The granted recipients. Several lines of one fence add up: one for each recipient is as good.
    pub recipients: Vec<String>,
    /// When the entry was committed, where that was observed.
    pub committed_ns: Option<u64>,
    /// Ledger time of the entry: when its leader proposed it. None where ledger time says nothing.
    pub proposed_ns: Option<u64>,
}

/// One step of one recipient, after its claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Log index of the entry that said so.
    pub index: u64,
    /// The row; none for a step that is no row's doing.
    pub fence: Option<Fence>,
    /// Which run.
    pub run: String,
    /// Address.
    pub recipient: String,
    /// What.
    pub step: Step,
    /// Ledger time of the entry; of the last of them where the ledger tells several as one. None where ledger time says
    /// nothing.
    pub proposed_ns: Option<u64>,
    /// In words: the relay's answer, the cause of a doubt.
    pub detail: String,
}

/// One step in the life of a claimed recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The relay accepted it.
    Sent,
    /// The relay refused it, after the dot or before, for now or for good.
    Refused,
    /// The holder gave it back before the gate.
    Released,
    /// Unknown whether the relay accepted it.
    InDoubt,
    /// It was in doubt and is pending again: by policy `resend`, or by an operator.
    Resent,
    /// It was in doubt and is closed: by policy `assume_sent`, or by an operator.
    Assumed,
}

/// The state of a recipient at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    /// Which run.
    pub run: String,
    /// Address.
    pub recipient: String,
    /// Its number in the run, which crossings name.
    pub number: Option<u32>,
    /// Where.
    pub state: RecipientState,
}

/// States of a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecipientState {
    /// It waits.
    Pending,
    /// It is in an open row.
    Claimed,
    /// Accepted by the relay.
    Sent,
    /// Closed while in doubt.
    Assumed,
    /// Refused for good, or attempts used up.
    Dead,
    /// Opted out, or inside the min gap.
    Suppressed,
    /// Too late.
    Expired,
    /// By an operator, or by an overlap.
    Cancelled,
    /// The dot may have been written, and no answer is known.
    InDoubt,
}

/// A run, as it is at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its name: `r1042.3`.
    pub run: String,
    /// Whose.
    pub tenant: String,
    /// Of which schedule or campaign.
    pub schedule: String,
    /// The instant that it stands for.
    pub due_unix_ms: i64,
    /// Why it opened.
    pub cause: RunCause,
    /// Log index of the entry that opened it.
    pub opened_index: u64,
    /// Ledger time of that entry.
    pub opened_unix_ms: i64,
    /// Recipients.
    pub audience: u32,
    /// Of those, pending or claimed.
    pub unfinished: u32,
    /// The run of its schedule that had to finish before this one opened (`overlap`), if the ledger names one.
    pub waited_for: Option<String>,
}

/// Why a run opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunCause {
    /// It was due; also a campaign's.
    Due,
    /// It was missed, and caught up.
    CatchUp,
    /// A client triggered it.
    Trigger,
    /// A missed instant that an operator backfilled.
    Backfill,
    /// One mail, to see it arrive.
    Test,
}

/// Instants that opened no run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// Whose.
    pub tenant: String,
    /// Which schedule.
    pub schedule: String,
    /// The first of them.
    pub first_unix_ms: i64,
    /// The last; the first again where it is one.
    pub last_unix_ms: i64,
    /// How many.
    pub count: u64,
    /// What became of them.
    pub outcome: PassedOver,
    /// In words.
    pub reason: String,
}

/// What becomes of an instant that opens no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedOver {
    /// A later missed instant stands for it.
    Coalesced,
    /// By policy.
    Skipped,
    /// Later than it may open.
    Expired,
    /// An instant of that name has opened already.
    Refused,
    /// It is due and waits for another run. At the end that is no explanation.
    Waiting,
}

/// An object that was there at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What it is.
    pub kind: super::ObjectKind,
    /// Whose.
    pub tenant: String,
    /// Its name; the address of an opt-out.
    pub name: String,
    /// What it holds, in any form that is equal exactly where the contents are: what
    /// [`Operation::Write`](super::Operation) says of the last write.
    pub value: String,
}

/// An entry that resumes a paused run. The answer to its client may have been lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// Which run.
    pub run: String,
    /// Log index.
    pub index: u64,
}

/// A claim that was seen open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenClaim {
    /// When it was seen.
    pub at_ns: u64,
    /// Which.
    pub fence: Fence,
    /// The node that owns the claim.
    pub node: String,
    /// The incarnation of that node.
    pub incarnation: u64,
    /// Recipients in it that are claimed; those in doubt may stay.
    pub claimed: u32,
}

/// A node's hash of its applied state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHash {
    /// When it was asked.
    pub at_ns: u64,
    /// Which node.
    pub node: String,
    /// Of the state after this entry.
    pub applied_index: u64,
    /// The hash.
    pub hash: String,
}
