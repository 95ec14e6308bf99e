//! A node and its process: the applied index, the leases, and the leadership that it believes in.
//!
//! Processes share nothing, and communicate only by messages. The memory of a process is lost when it ends. The log,
//! the journal (after a kill) and the emails that the relay accepted remain.

use crate::names::{ClaimOwner, Epoch, Incarnation, Index, Node};

/// The right to pass the gate while the lease runs (P9). [`crate::lease`] defines how long it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// The leadership that granted the lease.
    pub epoch: Epoch,
    /// The index that the node must have applied to use the lease.
    pub floor: Index,
    /// True if a quorum acknowledged the leader when it granted the lease. It is false only if that rule is left out.
    pub is_backed: bool,
}

impl Lease {
    /// Returns true if this lease gives every right that `other` gives, for at least as long. Then a wait for its end
    /// is also a wait for the end of `other`.
    pub fn covers(&self, other: &Lease) -> bool {
        self.floor <= other.floor && self.epoch >= other.epoch && (self == other || (self.is_backed && other.is_backed))
    }
}

/// A node: its process, alive or not, and the contents of its disks and memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Node and incarnation.
    pub name: ClaimOwner,
    /// True if the process runs. A frozen process runs, and lags.
    pub alive: bool,
    /// The last applied index. 0: the process is dead.
    pub applied: Index,
    /// The running leases, by its own clock.
    pub leases: Vec<Lease>,
    /// The leadership in which the process believes: its own last `EpochStart` that it has applied (P13). The process
    /// may have been deposed long ago.
    pub term: Option<Epoch>,
    /// The last incarnation whose journal a power cut destroyed, with all earlier journals. 0: none (P11).
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

    /// Ends the process, which loses its memory.
    pub fn crash(&mut self) {
        self.alive = false;
        self.applied = 0;
        self.leases.clear();
        self.term = None;
    }

    /// Starts the next incarnation, with the state at `applied`.
    pub fn start(&mut self, applied: Index) {
        self.alive = true;
        self.applied = applied;
        self.name.incarnation += 1;
    }

    /// Returns true if the journal of this earlier incarnation is complete (P11).
    pub fn has_journal_of(&self, incarnation: Incarnation) -> bool {
        incarnation > self.journals_lost_through
    }

    /// Takes a lease if it gives a right that the process does not have yet, and drops leases that give no more than
    /// the new lease. Returns true if it took the lease.
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
