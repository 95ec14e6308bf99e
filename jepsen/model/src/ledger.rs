//! The ledger: what every node computes from the committed entries, and nothing else (P2).
//!
//! One run, one chunk. A recipient's state is the set that holds it, as in the real ledger, so that
//! closed accounting (P1) is a statement that can be false. Rows stay after they are closed: the
//! fences that sent somebody must be known when late evidence arrives. [`crate::apply`] is the only
//! writer.

use crate::names::{Epoch, Fence, Holder, Incarnation, Index, NODES, Node, Recipient, Recipients};

/// What may be committed. Entries carry decisions; they never ask the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The first entry of a new leader; its index is the epoch (P13).
    EpochStart {
        /// The process that leads.
        leader: Holder,
    },
    /// A process announces its life (P10).
    NodeUp {
        /// The process.
        process: Holder,
    },
    /// The right to send to those of `slice` that are pending (P4).
    Claim {
        /// The leadership that decided it.
        epoch: Epoch,
        /// Who may send.
        holder: Holder,
        /// Who is asked for; granted are those that are pending.
        slice: Recipients,
    },
    /// Evidence about one recipient of one row (P14).
    Settle(Settle),
    /// The holder of a row is lost: what is still claimed in it becomes in_doubt (P9).
    Revoke {
        /// The leadership that decided it.
        epoch: Epoch,
        /// The row.
        row: Fence,
    },
    /// A recipient wants no mail (P15). A repeat is an entry too: it gives the barrier its index.
    OptOut {
        /// Who.
        recipient: Recipient,
    },
}

/// Evidence about one recipient of one row. The real entry carries many; one each lets the search
/// cut a batch anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Settle {
    /// The row that the evidence is about.
    pub row: Fence,
    /// The recipient.
    pub recipient: Recipient,
    /// What is known.
    pub outcome: Outcome,
}

/// What a holder, or the next life of its node, knows about a recipient of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The relay answered 250 to the final dot.
    Accepted,
    /// A definite not-sent, with attempts left.
    Refused,
    /// Never begun, and never will be under this row.
    Released,
    /// The terminator may have been written and no answer is known.
    InDoubt,
}

/// The right of one holder to send to some recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its number.
    pub fence: Fence,
    /// Who may work it.
    pub holder: Holder,
    /// Whom it was granted for; never changes.
    pub granted: Recipients,
    /// Who is still in it: claimed or in_doubt.
    pub open: Recipients,
    /// Whose acceptance under this fence has been counted; what makes a repeat harmless.
    pub accepted: Recipients,
}

/// The current life of a node, as the ledger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Up {
    /// The life.
    pub incarnation: Incarnation,
    /// The index of its `NodeUp`.
    pub since: Index,
}

/// The state after some prefix of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// The last index that this state includes.
    pub index: Index,
    /// The current epoch.
    pub epoch: Epoch,
    /// The current life of each node.
    pub up: [Up; NODES],
    /// Waiting for a claim.
    pub pending: Recipients,
    /// In exactly one open row.
    pub claimed: Recipients,
    /// In exactly one open row, with doubt.
    pub in_doubt: Recipients,
    /// Terminal: accepted by the relay.
    pub sent: Recipients,
    /// Terminal: opted out before anything was sent.
    pub suppressed: Recipients,
    /// Every row ever granted, in the order of the log.
    pub rows: Vec<Row>,
    /// Who has opted out, and the index of the last opt-out entry.
    pub opted_out: Recipients,
    /// The index of the last opt-out entry.
    pub opt_out_index: Index,
    /// For each node the last index that took a right away from it: an opt-out or the revocation of
    /// one of its rows. A lease granted on this state demands that much (P9).
    pub floor: [Index; NODES],
    /// Acceptances of a recipient that another fence had sent.
    pub known_duplicates: u8,
    /// Acceptances of a recipient that had ended otherwise.
    pub contradictions: u8,
    /// Who left in_doubt by evidence.
    pub resolved: Recipients,
}

impl Ledger {
    /// The state that every search starts from: each node's first life is up, the first node leads,
    /// and all recipients are pending. The entries that led here are folded into its index.
    pub fn opening(recipients: u8) -> Ledger {
        let up = std::array::from_fn(|place| Up { incarnation: 1, since: place as Index + 1 });
        let epoch = NODES as Index + 1;
        Ledger {
            index: epoch,
            epoch,
            up,
            pending: Recipients::first(recipients),
            claimed: Recipients::NONE,
            in_doubt: Recipients::NONE,
            sent: Recipients::NONE,
            suppressed: Recipients::NONE,
            rows: Vec::new(),
            opted_out: Recipients::NONE,
            opt_out_index: 0,
            floor: [0; NODES],
            known_duplicates: 0,
            contradictions: 0,
            resolved: Recipients::NONE,
        }
    }

    /// The row of that number, if this state has it.
    pub fn row(&self, fence: Fence) -> Option<&Row> {
        self.rows.iter().find(|row| row.fence == fence)
    }

    /// Whether `recipient` is in row `fence` and not in doubt there: what the gate asks.
    pub fn is_claimed_in(&self, fence: Fence, recipient: Recipient) -> bool {
        self.claimed.has(recipient) && self.row(fence).is_some_and(|row| row.open.has(recipient))
    }

    /// The current life of `node`.
    pub fn current(&self, node: Node) -> Holder {
        Holder { node, incarnation: self.up[node.place()].incarnation }
    }
}
