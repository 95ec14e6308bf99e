//! State shared by the writer of the ledger and the mirror's thread: what to write, and how far the store is. Its lock is
//! never held during disk or ledger access.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{MirrorError, MirrorFailure};

/// The shared state and its conditions.
pub(super) struct MirrorShared {
    pub(super) every: Duration,
    pub(super) state: Mutex<MirrorState>,
    /// Something to do for the thread.
    pub(super) work: Condvar,
    /// Something done by the thread.
    pub(super) done: Condvar,
}

/// Invariant: `written <= given`.
#[derive(Default)]
pub(super) struct MirrorState {
    /// The next write is of all rows.
    pub(super) all: bool,
    /// Number of notes so far, and how many of them the store holds.
    pub(super) given: u64,
    pub(super) written: u64,
    pub(super) failed: Option<String>,
    /// A failure that was not reported yet.
    pub(super) unreported: Option<MirrorFailure>,
    pub(super) write_now: bool,
    pub(super) stopping: bool,
    pub(super) stopped: bool,
}

/// One write to do.
pub(super) struct WriteJob {
    pub(super) all: bool,
    pub(super) given: u64,
}

impl MirrorShared {
    pub(super) fn new(every: Duration) -> MirrorShared {
        MirrorShared { every, state: Mutex::default(), work: Condvar::new(), done: Condvar::new() }
    }

    /// Waits, at most `limit`, until `is_done`, or until the mirror has failed (while it stops: until it stopped).
    pub(super) fn wait_until(
        &self,
        state: &mut MutexGuard<'_, MirrorState>,
        limit: Duration,
        is_done: impl Fn(&MirrorState) -> bool,
    ) -> Result<(), MirrorError> {
        let end = Instant::now() + limit;
        loop {
            if is_done(state) {
                // `stopped` is also reached by a mirror that failed: say so.
                return state.failed.clone().map_or(Ok(()), |why| Err(MirrorError::Failed { why }));
            }
            if let (Some(why), false) = (&state.failed, state.stopping) {
                return Err(MirrorError::Failed { why: why.clone() });
            }
            if self.done.wait_until(state, end).timed_out() {
                return Err(MirrorError::TimedOut(limit));
            }
        }
    }
}

impl MirrorState {
    pub(super) fn fail(&mut self, failure: MirrorFailure) {
        self.failed = Some(with_cause(&failure));
        self.unreported = Some(failure);
    }

    pub(super) fn has_work(&self) -> bool {
        self.failed.is_none() && self.written < self.given
    }

    pub(super) fn take(&mut self) -> WriteJob {
        self.write_now = false;
        WriteJob { all: std::mem::take(&mut self.all), given: self.given }
    }
}

/// An error and what caused it, in one line.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
