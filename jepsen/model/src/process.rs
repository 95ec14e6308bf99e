//! A node and its process: the applied index, the leases, and the leadership that it believes in.
//!
//! Processes share nothing and learn of each other by messages only. All of it is lost with the process. The log, the journal
//! (after a kill) and the emails that the relay accepted remain.

use crate::names::{ClaimOwner, Epoch, Incarnation, Index, Node};

/// The right to pass the gate while it runs (P9); [`crate::lease`] defines for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// The leadership that granted it.
    pub epoch: Epoch,
    /// The index that the node must have applied to use the lease.
    pub floor: Index,
    /// True if a quorum acknowledged the leader when it granted the lease: always, unless that rule is left out.
    pub is_backed: bool,
}

impl Lease {
    /// Returns true if this lease gives every right that `other` gives, for at least as long: a wait for its end covers
    /// a wait for the other's end.
    pub fn covers(&self, other: &Lease) -> bool {
        self.floor <= other.floor && self.epoch >= other.epoch && (self == other || (self.is_backed && other.is_backed))
    }
}

/// A node: its process, alive or not, and the contents of its disks and memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its node and its incarnation.
    pub name: ClaimOwner,
    /// True if it runs. A frozen process runs, and lags.
    pub alive: bool,
    /// The last index that it has applied; 0 while it is dead.
    pub applied: Index,
    /// The running leases, by its own clock.
    pub leases: Vec<Lease>,
    /// The leadership that it believes in: its own last `EpochStart` that it has applied (P13). It may have been deposed
    /// long ago.
    pub term: Option<Epoch>,
    /// A power cut destroyed the journals of this incarnation and all earlier ones; 0: none (P11).
    pub journals_lost_through: Incarnation,
}

impl Process {
    /// Returns the first process of `node`, with the opening state applied.
    pub fn first(node: Node, applied: Index) -> Process {
        Process {
            name: ClaimOwner { node, incarnation: 1 },
            alive: true,
            applied,
            leases: Vec::new(),
            term: None,
            journals_lost_through: 0,
        }
    }

    /// The process ends and loses its memory.
    pub fn die(&mut self) {
        self.alive = false;
        self.applied = 0;
        self.leases.clear();
        self.term = None;
    }

    /// The next incarnation starts, with the state at `applied`.
    pub fn start(&mut self, applied: Index) {
        self.alive = true;
        self.applied = applied;
        self.name.incarnation += 1;
    }

    /// Returns true if the journal of that earlier incarnation is complete (P11).
    pub fn has_journal_of(&self, incarnation: Incarnation) -> bool {
        incarnation > self.journals_lost_through
    }

    /// Takes a lease that gives a right that the process does not have yet; returns whether it did. Leases that give no more
    /// than the new one are dropped.
    pub fn take_lease(&mut self, lease: Lease) -> bool {
        if self.leases.iter().any(|known| known.covers(&lease)) {
            return false;
        }
        self.leases.retain(|known| !lease.covers(known));
        self.leases.push(lease);
        self.leases.sort_unstable();
        true
    }

    /// Returns true if a lease runs whose floor this process has applied.
    pub fn has_lease(&self) -> bool {
        self.leases.iter().any(|lease| lease.floor <= self.applied)
    }
}
