//! Identifiers: nodes, incarnations, log indexes, recipients.
//!
//! Small copies of the ledger's newtypes, with the same names. They print in short form, for people who read a
//! counterexample: `A.2` is the second incarnation of node A, `4.6` the fence of epoch 4 and log index 6.

use std::fmt;

/// Number of nodes in the model. Each node may own claims and believe that it leads, so two nodes are enough for two
/// leaders and two owners at once.
pub const NODES: usize = 2;

/// A machine with its data folder. It may be started many times.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("{}", char::from(b'A' + self.0))]
pub struct Node(pub u8);

impl Node {
    /// Returns all nodes, in order.
    pub fn all() -> impl Iterator<Item = Node> {
        (0..NODES as u8).map(Node)
    }

    /// Returns the position of this node in arrays of length [`NODES`].
    pub fn position(self) -> usize {
        usize::from(self.0)
    }
}

/// Number of a process of a node, counted from 1. It only grows (P10).
pub type Incarnation = u8;

/// The owner of a claim: one incarnation of one node (P4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("{node:?}.{incarnation}")]
pub struct ClaimOwner {
    /// The machine.
    pub node: Node,
    /// The incarnation.
    pub incarnation: Incarnation,
}

/// An index of the committed log. 0 is before the first entry.
pub type Index = u8;

/// One leadership: the log index of its `EpochStart` (P13). Never a Raft term.
pub type Epoch = Index;

/// Ledger time in units of 60 s, the most that one entry may advance it (`LedgerLimits::leap_ms_max`, P18).
pub type Time = u8;

/// The fencing token of a claim: the epoch that granted it, and the index of the entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("{epoch}.{index}")]
pub struct Fence {
    /// The leadership that proposed the claim.
    pub epoch: Epoch,
    /// The log index of the claim.
    pub index: Index,
}

/// The number of a recipient in the one run of the model.
pub type Recipient = u8;

/// Maximum number of recipients of a search, because a set of recipients is one byte.
pub const RECIPIENTS_MAX: usize = 8;

/// A set of recipients, like the bitmap that a run has for each state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Recipients(u8);

impl Recipients {
    /// No recipients.
    pub const NONE: Recipients = Recipients(0);

    /// Returns the recipients 0 to `count - 1`, for a count of at most 8.
    pub fn first(count: u8) -> Recipients {
        Recipients(u8::MAX.checked_shr(u32::from(8 - count.min(8))).unwrap_or(0))
    }

    /// Returns true if `recipient` is in the set.
    pub fn has(self, recipient: Recipient) -> bool {
        self.0 & (1 << recipient) != 0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of members.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Adds `recipient`. Returns true if it is new.
    pub fn insert(&mut self, recipient: Recipient) -> bool {
        let is_new = !self.has(recipient);
        self.0 |= 1 << recipient;
        is_new
    }

    /// Removes `recipient`. Returns true if it was a member.
    pub fn remove(&mut self, recipient: Recipient) -> bool {
        let was_in = self.has(recipient);
        self.0 &= !(1 << recipient);
        was_in
    }

    /// Returns the members of either set.
    pub fn or(self, other: Recipients) -> Recipients {
        Recipients(self.0 | other.0)
    }

    /// Returns the members of both sets.
    pub fn and(self, other: Recipients) -> Recipients {
        Recipients(self.0 & other.0)
    }

    /// Returns the members of this set that are not in `other`.
    pub fn without(self, other: Recipients) -> Recipients {
        Recipients(self.0 & !other.0)
    }

    /// Returns the members, lowest first.
    pub fn iter(self) -> impl Iterator<Item = Recipient> {
        (0..8).filter(move |recipient| self.has(*recipient))
    }

    /// Returns every subset with at least one member.
    pub fn choices(self) -> impl Iterator<Item = Recipients> {
        (1..=self.0).filter(move |bits| bits & !self.0 == 0).map(Recipients)
    }
}

impl fmt::Debug for Recipients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
