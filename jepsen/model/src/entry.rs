//! The entries that may be committed. They carry decisions, and `apply` reads nothing but the entry and the state (P2).

use crate::names::{ClaimOwner, Epoch, Fence, Recipient, Recipients, Time};

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The first entry of a new leader. Its index is the epoch (P13).
    EpochStart {
        /// The process that leads.
        leader: ClaimOwner,
        /// The time on which the voters' clocks agree, however far from ledger time (P18).
        agreed: Time,
    },
    /// A leader moves ledger time. In the product every entry moves it. A separate entry lets the search move it
    /// anywhere.
    Tick {
        /// The leadership that stamped the entry.
        epoch: Epoch,
        /// The time of the leader's clock, which may lag or leap.
        now: Time,
    },
    /// A process announces its incarnation (P10).
    NodeUp {
        /// The process.
        process: ClaimOwner,
    },
    /// The right to send to the pending recipients of `slice` (P4).
    Claim {
        /// The leadership that proposed the entry.
        epoch: Epoch,
        /// The process that may send.
        owner: ClaimOwner,
        /// The requested recipients. The pending recipients among them are granted.
        slice: Recipients,
    },
    /// Evidence about one recipient of one claim (P14).
    Settle(Settle),
    /// The owner of a claim is lost: recipients that are still claimed in it become in doubt (P9).
    Revoke {
        /// The leadership that proposed the entry.
        epoch: Epoch,
        /// The claim.
        claim: Fence,
    },
    /// A leader found that the run is past its deadline (P16).
    Expire {
        /// The leadership that proposed the entry.
        epoch: Epoch,
    },
    /// A recipient in doubt is closed or sent again, without evidence (P14).
    Decide(Decide),
    /// An operator sends a dead recipient again, with attempts counted anew.
    Requeue {
        /// The recipient.
        recipient: Recipient,
    },
    /// An operator pauses the run (P15).
    RunPause,
    /// An operator resumes the run.
    RunResume,
    /// An operator cancels the run. A repetition is an entry too, and gives the barrier its index.
    RunCancel,
    /// A recipient opts out (P15). A repetition is an entry too.
    OptOut {
        /// The recipient.
        recipient: Recipient,
    },
}

/// Evidence about one recipient of one claim. An entry of the product has many recipients. With one recipient for each
/// entry the search can split a batch anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Settle {
    /// The claim that the evidence is about.
    pub claim: Fence,
    /// The recipient.
    pub recipient: Recipient,
    /// The known outcome.
    pub outcome: Outcome,
}

/// What an owner, or the next incarnation of its node, knows about a recipient of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The relay answered 250 to the final dot.
    Accepted,
    /// Refused because of this mailbox, so not sent: an attempt that counts (P6).
    Refused,
    /// Not handed off, for a reason other than this mailbox.
    Released,
    /// Not handed off, because the recipient opted out.
    Suppressed,
    /// The final dot may have been written and no answer is known.
    InDoubt,
}

/// A decision about a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decide {
    /// The recipient.
    pub recipient: Recipient,
    /// The decision.
    pub decision: Decision,
    /// The author of the decision.
    pub by: Decider,
}

/// The decisions about a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Closed, and never counted as sent.
    Assume,
    /// Pending again: a duplicate is possible.
    Resend,
}

/// The author of a decision about a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decider {
    /// The policy of the run, applied by a leader.
    Policy(Epoch),
    /// An operator.
    Operator,
}
