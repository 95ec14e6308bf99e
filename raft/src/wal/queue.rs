//! The queue between submitters and the writer: what makes groups of what comes together.
//!
//! It is bounded in bytes by permits of a semaphore that each submission holds until it is written. The
//! writer takes all that waits at once; while it syncs, the next group gathers. Records that nobody waits
//! for (commits, purges) do not wake it by themselves: they lie up to [`super::LAZY_MS`] for company.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::OwnedSemaphorePermit;

use super::LAZY_MS;
use super::error::WalFailure;
use super::record::Record;

/// Told once, after the sync that covers the records (`Ok`) or when that can not come to pass. Called by the
/// writer: it must not block.
pub type OnDurable = Box<dyn FnOnce(Result<(), WalFailure>) + Send>;

/// Records of one submission, written together.
pub(super) struct Submission {
    pub records: Vec<Record>,
    pub done: Option<OnDurable>,
    /// Its share of the queue, given back once it is written. The inline drive has no queue.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl Submission {
    /// Gives its share of the queue back, then tells who waits.
    pub fn answer(self, outcome: Result<(), WalFailure>) {
        drop(self.permit);
        if let Some(done) = self.done {
            done(outcome);
        }
    }
}

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    submissions: Vec<Submission>,
    /// When the first of them must be written at the latest.
    deadline: Option<Instant>,
    closed: bool,
}

impl Queue {
    /// Adds a submission. `urgent`: somebody waits for it.
    pub fn push(&self, submission: Submission, urgent: bool) {
        let now = Instant::now();
        let due = if urgent { now } else { now + Duration::from_millis(LAZY_MS) };
        let mut waiting = self.waiting.lock();
        waiting.submissions.push(submission);
        let earlier = waiting.deadline.is_none_or(|deadline| due < deadline);
        if earlier {
            waiting.deadline = Some(due);
            self.changed.notify_one();
        }
    }

    /// Waits for work and takes all of it; `None` when the queue is closed and empty.
    pub fn take(&self) -> Option<Vec<Submission>> {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.deadline {
                Some(deadline) if waiting.closed || deadline <= Instant::now() => {
                    waiting.deadline = None;
                    return Some(std::mem::take(&mut waiting.submissions));
                }
                Some(deadline) => drop(self.changed.wait_until(&mut waiting, deadline)),
                None if waiting.closed => return None,
                None => self.changed.wait(&mut waiting),
            }
        }
    }

    /// Takes what is there, without waiting: what a failed log turns away.
    pub fn drain(&self) -> Vec<Submission> {
        let mut waiting = self.waiting.lock();
        waiting.deadline = None;
        std::mem::take(&mut waiting.submissions)
    }

    /// No more will come; the writer ends when it has written what is there.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_one();
    }
}
