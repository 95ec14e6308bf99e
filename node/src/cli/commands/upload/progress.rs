//! Progress of an import and the causes of its delays, for progress lines and for the failure if it ends early.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::cli::commands::{Exit, Failure, format};

/// Counters that the threads and tasks of one import share.
#[derive(Default)]
pub struct Progress {
    /// Rows read so far.
    pub read: AtomicU64,
    /// Parts sent.
    pub sent: AtomicU32,
    /// Parts that the nodes already had.
    pub there: AtomicU32,
    /// Parts that the cluster checked again before the seal.
    pub checked: AtomicU32,
    /// The parts that are being retried, with the last failure. Several parts are sent at the same time.
    waiting: Mutex<BTreeMap<String, Failure>>,
}

impl Progress {
    /// Returns the number of parts sent, and of parts that the nodes already had.
    pub fn parts(&self) -> (u32, u32) {
        (self.sent.load(Ordering::Relaxed), self.there.load(Ordering::Relaxed))
    }

    /// Records that `what` failed and is being retried.
    pub fn waits(&self, what: &str, why: &Failure) {
        self.waiting.lock().insert(what.to_owned(), why.clone());
    }

    /// Records that `what` succeeded.
    pub fn goes_on(&self, what: &str) {
        self.waiting.lock().remove(what);
    }

    /// Adds to a progress line what the import is waiting for.
    pub fn line(&self, words: String) -> String {
        match self.waiting.lock().values().next() {
            Some(why) => format!("{words}; waits: {}", why.message),
            None => words,
        }
    }

    /// Failure because `--timeout` ended, with what the import was waiting for.
    pub fn late(&self) -> Failure {
        let why = self.waiting.lock().values().next().cloned();
        let waits = why.as_ref().map(|why| format!(", while it waits: {}", why.message)).unwrap_or_default();
        let (exit, reason) = (Exit::TimedOut, "TIMED_OUT".into());
        Failure { exit, reason, message: format!("the time is over{waits}"), ..why.unwrap_or_default() }
    }

    /// Adds to a failure the number of parts on the nodes, and how to continue.
    pub fn cut_short(&self, failure: Failure) -> Failure {
        const AGAIN: &str = "the same command again: what is there is not sent again";
        let (sent, there) = self.parts();
        let parts = format::counted((sent + there).into(), "part");
        let message = format!("{}; on a majority of nodes: {parts}", failure.message);
        let next = failure.next.map_or_else(|| AGAIN.to_owned(), |first| format!("{first}; then {AGAIN}"));
        Failure { message, next: Some(next), ..failure }
    }
}
