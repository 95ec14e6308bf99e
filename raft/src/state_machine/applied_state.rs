//! The applied state, and what announces it: shared by the machine that changes it and everything that reads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use reveille_ledger::{Ledger, level};
use tokio::sync::{broadcast, watch};

use super::position::AppliedPosition;
use crate::fatal_error::{FatalError, FatalErrorCell};
use crate::state_machine::checkpoints::Checkpoints;
use crate::state_machine::hint::{HINTS_MAX, Hint};
use crate::wal::WalHealth;

/// The state and its announcements.
pub(crate) struct AppliedState {
    pub ledger: RwLock<Ledger>,
    /// Changed only while the ledger's lock is held for writing.
    pub position: Mutex<AppliedPosition>,
    /// The state store lacks more than the rows that are marked as changed: it is to be written anew. Changed only
    /// while the ledger's lock is held for writing.
    pub anew: AtomicBool,
    pub applied: watch::Sender<u64>,
    pub checkpoints: Checkpoints,
    pub hints: broadcast::Sender<Hint>,
    pub fatal_errors: FatalErrorCell,
    /// The highest level that this replica applies (P23).
    pub highest_level: u32,
    /// The log of these entries; none in tests.
    log: Option<WalHealth>,
    /// Entries that are applied again while Raft starts give no hints (P10).
    live: AtomicBool,
    /// Walks over the whole state that hold its lock for reading now.
    walks: AtomicUsize,
}

/// One of the walks over the whole state; it ends before its lock does.
struct Walk<'a>(&'a AtomicUsize);

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl AppliedState {
    pub fn new(ledger: Ledger, position: AppliedPosition, anew: bool, fatal_errors: FatalErrorCell) -> AppliedState {
        let applied = watch::Sender::new(ledger.head().applied);
        let (hints, _) = broadcast::channel(HINTS_MAX);
        AppliedState {
            ledger: RwLock::new(ledger),
            position: Mutex::new(position),
            anew: AtomicBool::new(anew),
            applied,
            checkpoints: Checkpoints::default(),
            hints,
            fatal_errors,
            highest_level: level::highest(),
            log: None,
            live: AtomicBool::new(false),
            walks: AtomicUsize::new(0),
        }
    }

    /// The state of entries of this log, which applies levels up to this one.
    pub fn of_log(self, log: WalHealth, highest_level: u32) -> AppliedState {
        AppliedState { log: Some(log), highest_level, ..self }
    }

    /// Waits until the log is durable up to every entry that is applied by now. Raft applies an entry as soon as most
    /// voters have it, which may be before this node has it on disk. What is on disk of the state must not go beyond the
    /// log there: after a power cut the node could not start. Blocks for as long as the disk of the log takes.
    ///
    /// # Errors
    /// The log has failed.
    pub fn wait_for_log(&self) -> Result<(), FatalError> {
        let Some(log) = &self.log else { return Ok(()) };
        log.wait_durable().map_err(|fatal_error| FatalError::Log(fatal_error.to_string()))
    }

    /// A look at the state, which is short. While somebody walks over all of it, the machine may be waiting for that;
    /// a lock that lets nobody past whoever waits to write would then keep gates and leases out for as long. So in
    /// that time a look joins the walk. After it they stand behind the machine as ever: it never starves.
    pub fn read<R>(&self, look: impl FnOnce(&Ledger) -> R) -> R {
        let ledger = match self.walks.load(Ordering::Acquire) {
            0 => self.ledger.read(),
            _ => self.ledger.read_recursive(),
        };
        look(&ledger)
    }

    /// A walk over the whole state, under its lock: nothing is applied meanwhile, and looks go on.
    pub fn walk<R>(&self, ledger: RwLockReadGuard<'_, Ledger>, walk: impl FnOnce(&Ledger) -> R) -> R {
        self.walks.fetch_add(1, Ordering::Release);
        let walking = Walk(&self.walks);
        let found = walk(&ledger);
        drop(walking);
        drop(ledger);
        found
    }

    /// A state that may be kept: not the empty one that stands in for a half-applied entry. Asked under the ledger's lock.
    pub fn check_whole(&self) -> Result<(), FatalError> {
        match self.fatal_errors.get() {
            Some(fatal_error @ FatalError::Poison { .. }) => Err(fatal_error),
            _ => Ok(()),
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
        self.hint(Hint::Resync);
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Far beyond what any step takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "not within a minute: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn while_somebody_walks_over_the_state_and_the_machine_waits_others_look_at_it() {
        let applied_state =
            Arc::new(AppliedState::new(Ledger::new(), AppliedPosition::default(), false, FatalErrorCell::new()));
        let (end, ends) = mpsc::channel::<()>();
        let walker = Arc::clone(&applied_state);
        let walker = thread::spawn(move || walker.walk(walker.ledger.read(), |_| ends.recv().is_ok()));
        until("it walks", || applied_state.walks.load(Ordering::Acquire) == 1);
        let machine = Arc::clone(&applied_state);
        let machine = thread::spawn(move || machine.ledger.write().skip(1));
        until("the machine waits", || applied_state.ledger.try_read().is_none());
        let (tell, told) = mpsc::channel();
        let reader = Arc::clone(&applied_state);
        let reader = thread::spawn(move || tell.send(reader.read(|ledger| ledger.head().applied)));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(0), "the state that is walked over");
        end.send(()).expect("it walks still");
        assert!(walker.join().expect("it ends"));
        machine.join().expect("it writes");
        assert!(reader.join().expect("it ends").is_ok());
        assert_eq!(
            (applied_state.read(|ledger| ledger.head().applied), applied_state.walks.load(Ordering::Acquire)),
            (1, 0)
        );
    }
}
