//! How far an import is, and what stands in its way: told while it goes on, and once more when it ends early.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::cli::failure::{Exit, Failure};
use crate::format;

/// What the threads and tasks of one import have done.
#[derive(Default)]
pub struct Progress {
    /// Rows that were read.
    pub read: AtomicU64,
    /// Parts that were sent.
    pub sent: AtomicU32,
    /// Parts that were there.
    pub there: AtomicU32,
    /// Parts that were checked again before the seal.
    pub checked: AtomicU32,
    /// What waits, and why; parts travel side by side.
    waiting: Mutex<BTreeMap<String, Failure>>,
}

impl Progress {
    /// Parts that were sent, and those that were there.
    pub fn parts(&self) -> (u32, u32) {
        (self.sent.load(Ordering::Relaxed), self.there.load(Ordering::Relaxed))
    }

    /// `what` could not be done, and is tried again.
    pub fn waits(&self, what: &str, why: &Failure) {
        self.waiting.lock().insert(what.to_owned(), why.clone());
    }

    /// It is done.
    pub fn goes_on(&self, what: &str) {
        self.waiting.lock().remove(what);
    }

    /// Behind what is said of it: what it waits for, if it does.
    pub fn told(&self, words: String) -> String {
        match self.waiting.lock().values().next() {
            Some(why) => format!("{words}; waits: {}", why.message),
            None => words,
        }
    }

    /// The time that it was given is over.
    pub fn late(&self) -> Failure {
        let (exit, reason) = (Exit::TimedOut, "TIMED_OUT".into());
        let why = self.waiting.lock().values().next().cloned();
        let message = "the time is over".to_owned();
        match why {
            Some(why) => {
                Failure { exit, reason, message: format!("{message}, while it waits: {}", why.message), ..why }
            }
            None => Failure { exit, reason, message, ..Failure::default() },
        }
    }

    /// The same failure with what is there already, and how to go on.
    pub fn cut_short(&self, failure: Failure) -> Failure {
        const AGAIN: &str = "the same command again: what is there is not sent again";
        let (sent, there) = self.parts();
        let parts = format::counted((sent + there).into(), "part");
        let message = format!("{}; on a majority of nodes: {parts}", failure.message);
        let next = failure.next.map_or_else(|| AGAIN.to_owned(), |first| format!("{first}; then {AGAIN}"));
        Failure { message, next: Some(next), ..failure }
    }
}
