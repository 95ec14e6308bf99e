//! The queue between submitters and the writer: it combines concurrent submissions into one group.
//!
//! A semaphore limits its bytes; a submission holds its permit until it is written. The writer takes all waiting
//! submissions at once, and the next group gathers during its sync. Records of commits and purges have no
//! waiting caller, so they do not wake the writer at once: they wait up to [`super::LAZY_MS`] for a larger group.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::OwnedSemaphorePermit;

use super::LAZY_MS;
use super::error::WalFailure;
use super::record::Record;

/// Callback that the writer calls once: with `Ok` after the sync that covers the records, or with the failure. It must
/// not block.
pub type OnDurable = Box<dyn FnOnce(Result<(), WalFailure>) + Send>;

/// Records of one submission. They are written in one batch.
pub(super) struct Submission {
    pub records: Vec<Record>,
    pub done: Option<OnDurable>,
    /// Its share of the queue, released when it is written. `None` in an inline log, which has no queue.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl Submission {
    /// Releases the share of the queue, then calls the callback.
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
    /// Time by which the waiting group must be written. `None`: nothing waits.
    deadline: Option<Instant>,
    closed: bool,
}

impl Queue {
    /// Adds a submission. `urgent` is true if a caller waits for durability.
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

    /// Waits until a group is due and takes all submissions. `None`: the queue is closed and empty.
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

    /// Takes all submissions without waiting. Used after a failure.
    pub fn drain(&self) -> Vec<Submission> {
        let mut waiting = self.waiting.lock();
        waiting.deadline = None;
        std::mem::take(&mut waiting.submissions)
    }

    /// Closes the queue: the writer writes the remaining submissions and ends.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_one();
    }
}
