//! One handoff of one email to the relay: what the worker and its journal know (P5, P11), and what the relay did.
//!
//! The two sides are separate. The properties judge by the relay's side, and the protocol decides by the worker's side.

use crate::entry::Outcome;
use crate::names::{ClaimOwner, Fence, Recipient};

/// The record of the handoff in the journal. It survives a kill, and is lost by a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Record {
    /// Returned before the gate. This worker never begins it.
    Released,
    /// Past the gate without a record. Possible only if `handoff` is written too late.
    Unwritten,
    /// `handoff` is written, and there is no answer yet.
    Begun,
    /// The connection was lost after the gate, so there will be no answer.
    Lost,
    /// The answer was 250.
    Accepted,
    /// The answer was a refusal.
    Refused,
}

/// Transit of the final dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transit {
    /// Never written.
    Silent,
    /// Written, possibly into a buffer. It may arrive at any later time, or never.
    UnderWay,
    /// The relay accepted the email.
    Accepted,
    /// The relay refused the email.
    Refused,
}

/// The handoff of one owner to one recipient of one claim. There is at most one for each (P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handoff {
    /// The claim that gave the right.
    pub claim: Fence,
    /// The recipient.
    pub recipient: Recipient,
    /// The process that acts.
    pub by: ClaimOwner,
    /// What the worker and its journal know.
    pub record: Record,
    /// What happened to the email.
    pub transit: Transit,
}

impl Handoff {
    /// Returns true if the handoff is past the gate and no refusal of it is known.
    pub fn may_have_arrived(&self) -> bool {
        self.transit != Transit::Silent && self.record != Record::Refused
    }

    /// Returns true if the relay accepted the email.
    pub fn is_accepted(&self) -> bool {
        self.transit == Transit::Accepted
    }

    /// Returns true if the email may still reach the relay.
    pub fn is_under_way(&self) -> bool {
        self.transit == Transit::UnderWay
    }
}

/// Returns the outcome that the next incarnation of a node reports for a claim of an earlier incarnation, by its
/// journal (P10). `record` is the journal's record of the recipient. `None`: nothing was begun.
pub fn outcome_by_journal(record: Option<Record>) -> Outcome {
    match record {
        None | Some(Record::Unwritten | Record::Released) => Outcome::Released,
        Some(Record::Begun | Record::Lost) => Outcome::InDoubt,
        Some(Record::Accepted) => Outcome::Accepted,
        Some(Record::Refused) => Outcome::Refused,
    }
}
