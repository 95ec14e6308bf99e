//! One attempt to hand one mail to the relay: what the worker and its journal know (P5, P11), and
//! what the relay really did.
//!
//! The two sides are kept apart on purpose. The properties judge by the relay's side; the protocol
//! may decide by the worker's side only.

use crate::entry::Outcome;
use crate::names::{ClaimOwner, Fence, Recipient};

/// What is recorded about the attempt. A kill leaves it, a power cut takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Record {
    /// Given back before the gate; this worker will never begin it.
    Released,
    /// Past the gate without a record: only when `begin` is written too late.
    Unwritten,
    /// `begin` is written; no answer yet.
    Begun,
    /// The connection was lost after the gate: there will be no answer.
    Lost,
    /// The answer was 250.
    Accepted,
    /// The answer was a definite no.
    Refused,
}

/// Where the final dot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transit {
    /// Never written.
    Silent,
    /// Written, or in some buffer: it may arrive at any later time, or never.
    UnderWay,
    /// The relay took the mail.
    Accepted,
    /// The relay refused the mail.
    Refused,
}

/// One owner's attempt at one recipient of one claim. There is at most one for each (P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// The claim that gave the right.
    pub claim: Fence,
    /// The recipient.
    pub recipient: Recipient,
    /// The process that acts.
    pub by: ClaimOwner,
    /// What the worker and its journal know.
    pub record: Record,
    /// What happened.
    pub transit: Transit,
}

impl Attempt {
    /// Whether it is past the gate and its answer is not known to be a no.
    pub fn may_have_arrived(&self) -> bool {
        self.transit != Transit::Silent && self.record != Record::Refused
    }

    /// Whether the relay took it.
    pub fn is_accepted(&self) -> bool {
        self.transit == Transit::Accepted
    }

    /// Whether it may still reach the relay.
    pub fn is_under_way(&self) -> bool {
        self.transit == Transit::UnderWay
    }
}

/// What the next life of a node says about a claim of an earlier one, by its journal (P10). `record`
/// is what the journal holds about the recipient; no record proves that nothing was begun.
pub fn outcome_by_journal(record: Option<Record>) -> Outcome {
    match record {
        None | Some(Record::Unwritten | Record::Released) => Outcome::Released,
        Some(Record::Begun | Record::Lost) => Outcome::InDoubt,
        Some(Record::Accepted) => Outcome::Accepted,
        Some(Record::Refused) => Outcome::Refused,
    }
}
