//! The ledger, its lock and its notifications. The apply thread changes the ledger; all other code only reads it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use reveille_ledger::{Ledger, level};
use tokio::sync::{broadcast, watch};

use super::position::AppliedPosition;
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::state_machine::checkpoints::Checkpoints;
use crate::state_machine::hint::{HINTS_MAX, Hint};
use crate::wal::WalHealth;

/// The ledger and its notifications: applied index, hints, checkpoints, fatal errors.
pub(crate) struct AppliedState {
    pub ledger: RwLock<Ledger>,
    /// Changed only under the write lock of the ledger.
    pub position: Mutex<AppliedPosition>,
    pub applied: watch::Sender<u64>,
    pub checkpoints: Checkpoints,
    pub hints: broadcast::Sender<Hint>,
    pub fatal_errors: FatalErrorCell,
    /// Highest ledger level that this replica applies (P23).
    pub highest_level: u32,
    /// Health of the log that holds the entries. `None` in tests.
    log: Option<WalHealth>,
    /// False while the start replays entries. These send no hints (P10).
    live: AtomicBool,
    /// Number of full scans that hold the ledger's read lock now.
    scans: AtomicUsize,
}

/// Counts a running full scan. Must be dropped before the ledger's lock.
struct Scan<'a>(&'a AtomicUsize);

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl AppliedState {
    pub fn new(ledger: Ledger, position: AppliedPosition, fatal_errors: FatalErrorCell) -> AppliedState {
        let applied = watch::Sender::new(ledger.head().applied);
        let (hints, _) = broadcast::channel(HINTS_MAX);
        AppliedState {
            ledger: RwLock::new(ledger),
            position: Mutex::new(position),
            applied,
            checkpoints: Checkpoints::default(),
            hints,
            fatal_errors,
            highest_level: level::highest(),
            log: None,
            live: AtomicBool::new(false),
            scans: AtomicUsize::new(0),
        }
    }

    /// Sets the log of the entries and the highest level.
    pub fn of_log(self, log: WalHealth, highest_level: u32) -> AppliedState {
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

    /// Runs a short read. The lock prefers writers: a reader waits behind a waiting apply thread. During a full scan
    /// that wait is too long for gates and leases. Then reads use `read_recursive`, which overtakes the waiting writer.
    pub fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        let ledger = match self.scans.load(Ordering::Acquire) {
            0 => self.ledger.read(),
            _ => self.ledger.read_recursive(),
        };
        read(&ledger)
    }

    /// Scans the whole state under its lock. Nothing is applied meanwhile; other reads proceed.
    pub fn full_scan<R>(&self, ledger: RwLockReadGuard<'_, Ledger>, scan: impl FnOnce(&Ledger) -> R) -> R {
        self.scans.fetch_add(1, Ordering::Release);
        let scanning = Scan(&self.scans);
        let found = scan(&ledger);
        drop(scanning);
        drop(ledger);
        found
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Limit of each step, far longer than any step takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "not within a minute: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn read_during_full_scan_passes_waiting_writer() {
        let applied_state =
            Arc::new(AppliedState::new(Ledger::new(), AppliedPosition::default(), FatalErrorCell::new()));
        let (end, ends) = mpsc::channel::<()>();
        let scanner = Arc::clone(&applied_state);
        let scanner = thread::spawn(move || scanner.full_scan(scanner.ledger.read(), |_| ends.recv().is_ok()));
        until("it scans", || applied_state.scans.load(Ordering::Acquire) == 1);
        let machine = Arc::clone(&applied_state);
        let machine = thread::spawn(move || machine.ledger.write().skip(1));
        until("the writer waits", || applied_state.ledger.try_read().is_none());
        let (tell, told) = mpsc::channel();
        let reader = Arc::clone(&applied_state);
        let reader = thread::spawn(move || tell.send(reader.read(|ledger| ledger.head().applied)));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(0), "the state that is scanned");
        end.send(()).expect("it still scans");
        assert!(scanner.join().expect("it ends"));
        machine.join().expect("it writes");
        assert!(reader.join().expect("it ends").is_ok());
        assert_eq!(
            (applied_state.read(|ledger| ledger.head().applied), applied_state.scans.load(Ordering::Acquire)),
            (1, 0)
        );
    }
}
