//! A node as a machine and the process that lives on it: what it has applied, the leases it holds,
//! the leadership it believes in.
//!
//! Nothing here is shared: what one process knows about another it learned by a message. All of it
//! is lost with the process; what outlives it is the log, the journal (after a kill) and what the
//! relay has taken.

use crate::names::{ClaimOwner, Epoch, Incarnation, Index, Node};

/// The right to pass the gate, while it runs (P9): [`crate::lease`] says for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// The leadership that granted it.
    pub epoch: Epoch,
    /// What the node must have applied before the lease counts.
    pub floor: Index,
    /// Whether a quorum knew the leader as such when it granted. Always, unless that rule is broken.
    pub is_backed: bool,
}

impl Lease {
    /// Whether this lease gives every right that `other` gives, for at least as long: a wait for its end
    /// covers a wait for the other's end.
    pub fn covers(&self, other: &Lease) -> bool {
        self.floor <= other.floor && self.epoch >= other.epoch && (self == other || (self.is_backed && other.is_backed))
    }
}

/// A node: its process, alive or not, and what its disks and memory still hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Which life of which node.
    pub name: ClaimOwner,
    /// Whether it runs. A frozen process runs: it is one that lags.
    pub alive: bool,
    /// What it has applied; 0 while it is dead.
    pub applied: Index,
    /// The leases that run, by its own clock.
    pub leases: Vec<Lease>,
    /// The leadership it believes in: its own last `EpochStart` in what it has applied (P13). It
    /// may be deposed long ago.
    pub term: Option<Epoch>,
    /// Journals of this life and all earlier ones are gone by a power cut (0: none, P11).
    pub journals_lost_through: Incarnation,
}

impl Process {
    /// The first life of `node`, with the opening state applied.
    pub fn first_life(node: Node, applied: Index) -> Process {
        Process {
            name: ClaimOwner { node, incarnation: 1 },
            alive: true,
            applied,
            leases: Vec::new(),
            term: None,
            journals_lost_through: 0,
        }
    }

    /// The process is gone, and what was in its memory with it.
    pub fn die(&mut self) {
        self.alive = false;
        self.applied = 0;
        self.leases.clear();
        self.term = None;
    }

    /// Another life begins, with the state at `applied`.
    pub fn start(&mut self, applied: Index) {
        self.alive = true;
        self.applied = applied;
        self.name.incarnation += 1;
    }

    /// Whether the journal of that earlier life is whole (P11).
    pub fn has_journal_of(&self, incarnation: Incarnation) -> bool {
        incarnation > self.journals_lost_through
    }

    /// Takes a lease, unless it gives no right that the process does not have; answers whether it
    /// did. Leases that give no more than the new one are dropped.
    pub fn take_lease(&mut self, lease: Lease) -> bool {
        if self.leases.iter().any(|known| known.covers(&lease)) {
            return false;
        }
        self.leases.retain(|known| !lease.covers(known));
        self.leases.push(lease);
        self.leases.sort_unstable();
        true
    }

    /// Whether some lease runs that this process's state is new enough for.
    pub fn has_lease(&self) -> bool {
        self.leases.iter().any(|lease| lease.floor <= self.applied)
    }
}
