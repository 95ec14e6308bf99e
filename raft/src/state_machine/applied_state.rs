//! The ledger, its lock and its notifications. The apply thread changes the state; all other code only reads it. One
//! exception: once a snapshot is durable, the snapshot manager frees the memory of archive blocks, which are not part of
//! the state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use reveille_ledger::{Ledger, level};
use tokio::sync::{broadcast, watch};

use super::position::AppliedPosition;
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::state_machine::checkpoints::Checkpoints;
use crate::state_machine::hint::{HINTS_MAX, Hint};
use crate::wal::WalHandle;

/// Records the time since `since`, for which the ledger's lock was held by work on the whole state or on many rows.
pub(crate) fn record_lock_time(cause: &'static str, since: Instant) {
    metrics::histogram!("reveille_ledger_lock_seconds", "cause" => cause).record(since.elapsed());
}

/// The ledger and its notifications: applied index, hints, checkpoints, fatal errors.
pub(crate) struct AppliedState {
    pub ledger: RwLock<Ledger>,
    /// Changed only under the write lock of the ledger.
    pub position: Mutex<AppliedPosition>,
    pub applied: watch::Sender<u64>,
    pub checkpoints: Arc<Checkpoints>,
    pub hints: broadcast::Sender<Hint>,
    pub fatal_errors: FatalErrorCell,
    /// Highest ledger level that this replica applies (P23).
    pub highest_level: u32,
    /// Health of the log that holds the entries. `None` in tests.
    log: Option<WalHandle>,
    /// False while the start replays entries. These send no hints (P10).
    live: AtomicBool,
}

impl AppliedState {
    pub fn new(ledger: Ledger, position: AppliedPosition, fatal_errors: FatalErrorCell) -> AppliedState {
        let applied = watch::Sender::new(ledger.head().applied);
        let (hints, _) = broadcast::channel(HINTS_MAX);
        AppliedState {
            ledger: RwLock::new(ledger),
            position: Mutex::new(position),
            applied,
            checkpoints: Arc::default(),
            hints,
            fatal_errors,
            highest_level: level::highest(),
            log: None,
            live: AtomicBool::new(false),
        }
    }

    /// Sets the log of the entries and the highest level.
    pub fn of_log(self, log: WalHandle, highest_level: u32) -> AppliedState {
        AppliedState { log: Some(log), highest_level, ..self }
    }

    /// Waits until every entry that is applied now is durable in the log. Raft applies an entry when most voters have
    /// it, possibly before this node has it on disk. A snapshot must not be ahead of the log, or the node could not
    /// start after a power cut. Blocks on the disk.
    ///
    /// # Errors
    /// The log has failed.
    pub fn wait_for_log(&self) -> Result<(), FatalError> {
        let Some(log) = &self.log else { return Ok(()) };
        log.wait_durable().map_err(|fatal_error| FatalError::Log(fatal_error.to_string()))
    }

    /// Runs a short read: the apply thread waits for it, and later readers wait for the apply thread.
    pub fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        read(&self.ledger.read())
    }

    /// Fails if the ledger is the empty replacement of a half-applied state. The caller must hold the ledger's lock.
    pub fn check_whole(&self) -> Result<(), FatalError> {
        match self.fatal_errors.get() {
            Some(fatal_error @ FatalError::Poison { .. }) => Err(fatal_error),
            _ => Ok(()),
        }
    }

    /// Starts to send effects as hints. Existing subscribers get `Resync` and read the state again.
    pub fn go_live(&self) {
        self.live.store(true, Ordering::Release);
        self.hint(Hint::Resync);
    }

    /// True if effects are sent as hints.
    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Sends a hint to all subscribers.
    pub fn hint(&self, hint: Hint) {
        // The send fails without a subscriber, which does no harm: later subscribers read the state.
        let _ = self.hints.send(hint);
    }
}
