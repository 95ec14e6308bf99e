//! What may be committed. Entries carry decisions; they never ask the world (P2).

use crate::names::{ClaimOwner, Epoch, Fence, Recipient, Recipients, Time};

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The first entry of a new leader; its index is the epoch (P13).
    EpochStart {
        /// The process that leads.
        leader: ClaimOwner,
        /// What the voters' clocks agree on, however far from ledger time (P18).
        agreed: Time,
    },
    /// A leader moves ledger time. In the code every entry does; one of its own lets the search put it anywhere.
    Tick {
        /// The leadership that stamped it.
        epoch: Epoch,
        /// What its clock says: it may lag or leap.
        now: Time,
    },
    /// A process announces its life (P10).
    NodeUp {
        /// The process.
        process: ClaimOwner,
    },
    /// The right to send to those of `slice` that are pending (P4).
    Claim {
        /// The leadership that decided it.
        epoch: Epoch,
        /// Who may send.
        owner: ClaimOwner,
        /// Who is asked for; granted are those that are pending.
        slice: Recipients,
    },
    /// Evidence about one recipient of one claim (P14).
    Settle(Settle),
    /// The owner of a claim is lost: what is still claimed in it becomes in doubt (P9).
    Revoke {
        /// The leadership that decided it.
        epoch: Epoch,
        /// The claim.
        claim: Fence,
    },
    /// A leader found the deadline of the run behind it (P16).
    Expire {
        /// The leadership that decided it.
        epoch: Epoch,
    },
    /// A recipient in doubt is closed or sent again, without evidence (P14).
    Decide(Decide),
    /// An operator sends a recipient again who is dead, with attempts counted anew.
    Requeue {
        /// Who.
        recipient: Recipient,
    },
    /// An operator halts the run (P15).
    RunPause,
    /// An operator lets it go on.
    RunResume,
    /// An operator ends it. A repeat is an entry too: it gives the barrier its index.
    RunCancel,
    /// A recipient wants no mail (P15). A repeat is an entry too.
    OptOut {
        /// Who.
        recipient: Recipient,
    },
}

/// Evidence about one recipient of one claim. The real entry carries many; one each lets the search
/// cut a batch anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Settle {
    /// The claim that the evidence is about.
    pub claim: Fence,
    /// The recipient.
    pub recipient: Recipient,
    /// What is known.
    pub outcome: Outcome,
}

/// What an owner, or the next life of its node, knows about a recipient of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The relay answered 250 to the final dot.
    Accepted,
    /// A definite not-sent about this mailbox: an attempt that counts (P6).
    Refused,
    /// Definitely not handed off, and not because of this mailbox.
    Released,
    /// Definitely not handed off, because it opted out.
    Suppressed,
    /// The final dot may have been written and no answer is known.
    InDoubt,
}

/// A decision about a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decide {
    /// Who.
    pub recipient: Recipient,
    /// What.
    pub decision: Decision,
    /// Whose decision it is.
    pub by: Decider,
}

/// What may be decided about a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Closed; never counted as sent.
    Assume,
    /// Pending again: a duplicate is possible.
    Resend,
}

/// Who decides about a recipient in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decider {
    /// The policy of the run, by a leader.
    Policy(Epoch),
    /// A person.
    Operator,
}
