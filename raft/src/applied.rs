//! The applied state, and what announces it: shared by the machine that changes it and everything that reads.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use reveille_ledger::Ledger;
use tokio::sync::{broadcast, watch};

use crate::fault::FaultCell;
use crate::hint::{HINTS_MAX, Hint};
use crate::types::{LogId, StoredMembership};

/// How far the state is: the last entry in it, and the membership in force there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub last: Option<LogId>,
    pub membership: StoredMembership,
}

/// The state and its announcements.
pub(crate) struct Core {
    pub ledger: RwLock<Ledger>,
    /// Changed only while the ledger's lock is held for writing.
    pub place: Mutex<Place>,
    /// The state store lacks more than the rows that are marked as changed: it is to be written anew. Changed only
    /// while the ledger's lock is held for writing.
    pub anew: AtomicBool,
    pub applied: watch::Sender<u64>,
    pub hints: broadcast::Sender<Hint>,
    pub faults: FaultCell,
    /// Entries that are applied again while Raft starts give no hints (P10).
    live: AtomicBool,
}

impl Core {
    pub fn new(ledger: Ledger, place: Place, anew: bool, faults: FaultCell) -> Core {
        let applied = watch::Sender::new(ledger.head().applied);
        let (hints, _) = broadcast::channel(HINTS_MAX);
        Core {
            ledger: RwLock::new(ledger),
            place: Mutex::new(place),
            anew: AtomicBool::new(anew),
            applied,
            hints,
            faults,
            live: AtomicBool::new(false),
        }
    }

    /// Forgets which rows changed where these are more than `most`: the disk of the state store hangs, or is far too
    /// slow for what changes. The store is written anew when it is back.
    pub fn bound_changes(&self, ledger: &mut Ledger, most: usize) {
        let rows = ledger.changed_count();
        if rows > most {
            tracing::warn!(rows, "the state store fell behind; it is written anew");
            drop(ledger.take_changed());
            self.anew.store(true, Ordering::Relaxed);
        }
    }

    /// From here on effects are given out; whoever subscribed before looks at the state.
    pub fn go_live(&self) {
        self.live.store(true, Ordering::Release);
        self.hint(Hint::LookAtState);
    }

    /// Are effects given out yet?
    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Gives a hint to whoever listens.
    pub fn hint(&self, hint: Hint) {
        // No reader, no hint: whoever comes later looks at the state first.
        let _ = self.hints.send(hint);
    }
}
