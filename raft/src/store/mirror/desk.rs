//! What lies between the machine and the mirror's thread: the changes that wait, and how far the store is.
//!
//! Both sides hold its lock for moments only, never while the disk works.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::super::{Changes, Row};
use super::{MirrorError, MirrorFailure, Pace};

/// The desk, and the two bells on it.
pub(super) struct Desk {
    pub(super) pace: Pace,
    pub(super) papers: Mutex<Papers>,
    /// Something to do for the thread.
    pub(super) work: Condvar,
    /// Something done by the thread.
    pub(super) done: Condvar,
}

/// Invariants: `waiting_bytes` is the sum over `waiting`; `written <= given`; while `failed`, nothing waits.
#[derive(Default)]
pub(super) struct Papers {
    pub(super) replacement: Option<Vec<Row>>,
    pub(super) waiting: Changes,
    pub(super) waiting_bytes: usize,
    pub(super) meta: Vec<u8>,
    /// Number of hand-overs so far, and how many of them the store holds.
    pub(super) given: u64,
    pub(super) written: u64,
    pub(super) failed: Option<String>,
    /// A failure that the owner has not been told of yet.
    pub(super) untold: Option<MirrorFailure>,
    pub(super) hurry: bool,
    pub(super) stopping: bool,
    pub(super) stopped: bool,
}

/// What the thread took from the desk.
pub(super) struct Work {
    pub(super) replacement: Option<Vec<Row>>,
    pub(super) changes: Changes,
    pub(super) meta: Vec<u8>,
    pub(super) given: u64,
}

impl Desk {
    pub(super) fn new(pace: Pace) -> Desk {
        Desk { pace, papers: Mutex::default(), work: Condvar::new(), done: Condvar::new() }
    }

    /// Waits, at most `limit`, until `is_done`, or until the mirror has failed (while it stops: until it stopped).
    pub(super) fn wait_until(
        &self,
        papers: &mut MutexGuard<'_, Papers>,
        limit: Duration,
        is_done: impl Fn(&Papers) -> bool,
    ) -> Result<(), MirrorError> {
        let end = Instant::now() + limit;
        loop {
            if is_done(papers) {
                // `stopped` is also reached by a mirror that failed: say so.
                return papers.failed.clone().map_or(Ok(()), |why| Err(MirrorError::Failed { why }));
            }
            if let (Some(why), false) = (&papers.failed, papers.stopping) {
                return Err(MirrorError::Failed { why: why.clone() });
            }
            if self.done.wait_until(papers, end).timed_out() {
                return Err(MirrorError::TimedOut(limit));
            }
        }
    }
}

impl Papers {
    pub(super) fn add(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let (key_bytes, value_bytes) = (key.len(), weight(&value));
        match self.waiting.insert(key, value) {
            Some(former) => self.waiting_bytes -= weight(&former),
            None => self.waiting_bytes += key_bytes,
        }
        self.waiting_bytes += value_bytes;
    }

    pub(super) fn forget(&mut self) {
        self.replacement = None;
        self.waiting = Changes::new();
        self.waiting_bytes = 0;
    }

    pub(super) fn fail(&mut self, failure: MirrorFailure) {
        self.forget();
        self.failed = Some(with_cause(&failure));
        self.untold = Some(failure);
    }

    pub(super) fn has_work(&self) -> bool {
        self.failed.is_none() && self.written < self.given
    }

    pub(super) fn take(&mut self) -> Work {
        self.hurry = false;
        self.waiting_bytes = 0;
        Work {
            replacement: self.replacement.take(),
            changes: std::mem::take(&mut self.waiting),
            meta: self.meta.clone(),
            given: self.given,
        }
    }
}

fn weight(value: &Option<Vec<u8>>) -> usize {
    value.as_ref().map_or(0, Vec::len)
}

/// An error and what caused it, in one line.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
