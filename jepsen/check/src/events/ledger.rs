//! The state of the ledger, read during the run and again at the end: in real runs through the admin API (`explain`,
//! runs, history, doubts), in the simulation from the ledger itself.

use serde::{Deserialize, Serialize};

use super::{Fence, Target};
use crate::names::Name;

/// A claim. The log index is in the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Fence of the claim.
    pub fence: Fence,
    /// Name of the node that owns the claim.
    pub node: Name,
    /// Incarnation of that node.
    pub incarnation: u64,
    /// Name of the run.
    pub run: Name,
    /// The claimed recipient. A claim is recorded once for each of its recipients, with the same fence.
    pub recipient: Name,
    /// Time at which the entry was committed. `None`: not observed.
    pub committed_ns: Option<u64>,
    /// Ledger time of the entry, at which its leader proposed it. `None`: ledger time cannot be compared.
    pub proposed_ns: Option<u64>,
    /// The same in milliseconds since 1970, which can be compared with other claims only. `None`: not observed.
    pub ledger_unix_ms: Option<i64>,
}

/// An outcome of a claimed recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Log index of the entry, or of the last entry if the ledger reports several entries as one. So it may be above
    /// the index of the recipient's next claim.
    pub index: u64,
    /// Fence of the claim. `None`: not observed.
    #[serde(default)]
    pub fence: Option<Fence>,
    /// Name of the run.
    pub run: Name,
    /// Address of the recipient.
    pub recipient: Name,
    /// Kind of the outcome.
    pub kind: OutcomeKind,
    /// Basic code of the relay's answer. `None`: the relay broke the dialogue, or the ledger reports refusals with
    /// different answers as one. Such refusals are [`OutcomeKind::Released`] unless they made recipients dead.
    pub code: Option<u16>,
    /// Ledger time of the entry, or of the last entry if the ledger reports several entries as one. `None`: ledger time
    /// cannot be compared.
    pub proposed_ns: Option<u64>,
    /// Text for people: the relay's answer, or why the recipient is in doubt.
    pub detail: String,
}

/// Kind of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The relay accepted the email.
    Sent,
    /// The relay refused the email, before or after the final dot, temporarily or permanently.
    Refused,
    /// The owner released the recipient before the gate.
    Released,
    /// It is unknown if the relay accepted the email.
    InDoubt,
    /// The recipient was in doubt and is pending again, by the policy `resend` or by an operator.
    Resent(Decider),
    /// The recipient was in doubt and is closed, by the policy `assume_sent` or by an operator.
    Assumed,
}

/// What decided about a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// An operator.
    Operator,
    /// The policy of the run.
    Policy,
}

/// The state of a recipient at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    /// Name of the run.
    pub run: Name,
    /// Address of the recipient.
    pub recipient: Name,
    /// Number of the recipient in the run, to which [`Crossing`](super::Crossing) refers. `None`: it was not read.
    pub number: Option<u32>,
    /// State of the recipient.
    pub state: RecipientState,
}

/// States of a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecipientState {
    /// Not claimed yet.
    Pending,
    /// In an open claim.
    Claimed,
    /// Accepted by the relay.
    Sent,
    /// Closed while in doubt, by policy or an operator.
    Assumed,
    /// Permanently refused, or out of attempts.
    Dead,
    /// Opted out, or within the `min_gap`.
    Suppressed,
    /// Too late.
    Expired,
    /// By an operator, or by an overlap.
    Cancelled,
    /// The final dot may have been written, and no answer is known.
    InDoubt,
}

/// A run at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run: `r1042.3`.
    pub run: Name,
    /// Name of the tenant.
    pub tenant: Name,
    /// Name of the schedule or campaign.
    pub schedule: Name,
    /// Instant for which the run opened.
    pub due_unix_ms: i64,
    /// Reason of the opening.
    pub cause: RunCause,
    /// Request id of the trigger, or key of the message. `None`: no call asked for the run.
    pub request_id: Option<Name>,
    /// Log index of the entry that opened the run.
    pub opened_index: u64,
    /// Ledger time of that entry.
    pub opened_unix_ms: i64,
    /// Run of the same schedule that had to finish before this run opened (`overlap`). `None`: the ledger names no such
    /// run.
    pub waited_for: Option<Name>,
}

impl Run {
    /// Returns true if a call with this target concerns the run, by its name or its schedule.
    pub fn is_in(&self, target: &Target) -> bool {
        match target {
            Target::Run(run) => self.run == *run,
            Target::Schedule { tenant, schedule } => self.tenant == *tenant && self.schedule == *schedule,
        }
    }
}

/// Reason why a run opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunCause {
    /// The instant of the schedule or campaign was due.
    Due,
    /// The instant was missed and caught up.
    CatchUp,
    /// A client triggered the run.
    Trigger,
    /// An operator backfilled a missed instant.
    Backfill,
    /// A test email.
    Test,
    /// A program sent a message. [`Run::schedule`] is its key.
    Message,
}

impl RunCause {
    /// True if a caller asked for the run, and no instant of a calendar opened it.
    pub fn is_asked_for(self) -> bool {
        matches!(self, RunCause::Trigger | RunCause::Test | RunCause::Message)
    }
}

/// Instants that opened no run, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// Name of the tenant.
    pub tenant: Name,
    /// Name of the schedule.
    pub schedule: Name,
    /// The first instant.
    pub first_unix_ms: i64,
    /// The last instant. It equals the first if there is only one instant.
    pub last_unix_ms: i64,
    /// Number of instants.
    pub count: u64,
    /// The recorded reason.
    pub outcome: PassedOver,
}

/// Reason why an instant opened no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedOver {
    /// Several missed instants were combined into a later one.
    Coalesced,
    /// Skipped by policy.
    Skipped,
    /// The instant is later than it may open.
    Expired,
    /// An instant with the same civil time has opened already.
    Refused,
    /// The instant is due and waits for another run. At the end of a history this is no explanation.
    Waiting,
}

/// An object that existed at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Kind of the object.
    pub kind: super::ObjectKind,
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the object. The name of an opt-out is its address.
    pub name: String,
    /// Value of the object, in any form that is equal if and only if the contents are equal.
    /// [`Operation::Write`](super::Operation) uses the same form.
    pub value: String,
}

/// An entry that resumes a paused run. The answer to its client may have been lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// Name of the run.
    pub run: Name,
    /// Log index.
    pub index: u64,
}

/// A claim that was observed open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenClaim {
    /// Time of the observation.
    pub at_ns: u64,
    /// Fence of the claim.
    pub fence: Fence,
    /// The node that owns the claim.
    pub node: String,
    /// The incarnation of that node.
    pub incarnation: u64,
    /// Number of claimed recipients of the claim. Recipients in doubt do not count.
    pub claimed: u32,
}

/// A node's hash of its applied state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHash {
    /// Name of the node.
    pub node: String,
    /// Index of the last applied entry.
    pub applied_index: u64,
    /// The hash.
    pub hash: String,
}
