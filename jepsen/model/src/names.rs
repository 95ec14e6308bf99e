//! The names of things: nodes, lives of processes, places in the log, recipients.
//!
//! Small copies of the newtypes that the ledger uses, with the same words. They print short
//! (`A.2` is the second life of node A, `4.6` the fence of epoch 4 and log index 6), because their
//! main readers are people who follow a counterexample.

use std::fmt;

/// Nodes in the model. Each of them may hold claims and each may believe that it leads, so two are
/// enough for two leaders and two owners at once.
pub const NODES: usize = 2;

/// A machine with its data folder. It may be started many times.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub u8);

impl Node {
    /// All nodes, in order.
    pub fn all() -> impl Iterator<Item = Node> {
        (0..NODES as u8).map(Node)
    }

    /// This node's place in arrays of length [`NODES`].
    pub fn place(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'A' + self.0))
    }
}

/// One life of a process: 1 for the first. Ordered, and never used twice by one node (P10).
pub type Incarnation = u8;

/// Who may work a claim: one life of one node (P4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimOwner {
    /// The machine.
    pub node: Node,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

impl fmt::Debug for ClaimOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.node, self.incarnation)
    }
}

/// A place in the committed log; 0 lies before the first entry.
pub type Index = u8;

/// One leadership: the log index of its `EpochStart` (P13). Never a Raft term.
pub type Epoch = Index;

/// An instant of ledger time (P18). One step is as much as one entry may move it: `Limits::leap_ms` of the code, 60 s.
pub type Time = u8;

/// The number of a claim: the epoch that granted it, then the index of the entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    /// The leadership that proposed the claim.
    pub epoch: Epoch,
    /// Where the claim stands in the log.
    pub index: Index,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.index)
    }
}

/// The number of a recipient in the one run of the model.
pub type Recipient = u8;

/// The most recipients that a search can have: a set of them is one byte.
pub const RECIPIENTS_MAX: usize = 8;

/// A set of recipients, as the bitmap that a run keeps for each state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Recipients(u8);

impl Recipients {
    /// No recipients.
    pub const NONE: Recipients = Recipients(0);

    /// Recipients 0 to `count - 1`; at most 8.
    pub fn first(count: u8) -> Recipients {
        Recipients(u8::MAX.checked_shr(u32::from(8 - count.min(8))).unwrap_or(0))
    }

    /// Whether `recipient` is in the set.
    pub fn has(self, recipient: Recipient) -> bool {
        self.0 & (1 << recipient) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many are in it.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Puts `recipient` in; answers whether it is new.
    pub fn insert(&mut self, recipient: Recipient) -> bool {
        let is_new = !self.has(recipient);
        self.0 |= 1 << recipient;
        is_new
    }

    /// Takes `recipient` out; answers whether it was in.
    pub fn remove(&mut self, recipient: Recipient) -> bool {
        let was_in = self.has(recipient);
        self.0 &= !(1 << recipient);
        was_in
    }

    /// Those in either.
    pub fn or(self, other: Recipients) -> Recipients {
        Recipients(self.0 | other.0)
    }

    /// Those in both.
    pub fn and(self, other: Recipients) -> Recipients {
        Recipients(self.0 & other.0)
    }

    /// Those in here and not in `other`.
    pub fn without(self, other: Recipients) -> Recipients {
        Recipients(self.0 & !other.0)
    }

    /// The members, lowest first.
    pub fn iter(self) -> impl Iterator<Item = Recipient> {
        (0..8).filter(move |recipient| self.has(*recipient))
    }

    /// Every set of at least one of the members.
    pub fn choices(self) -> impl Iterator<Item = Recipients> {
        (1..=self.0).filter(move |bits| bits & !self.0 == 0).map(Recipients)
    }
}

impl fmt::Debug for Recipients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
