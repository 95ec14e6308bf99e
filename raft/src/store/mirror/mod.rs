//! The thread that keeps a [`StateStore`] close behind the state in memory.
//!
//! The machine hands over what an entry changed ([`Mirror::follow`]); nobody ever waits for the disk. Changes
//! coalesce by key, the latest wins, and every 250 ms all of them go out as one write with the newest meta.
//!
//! * **Falling behind.** A slow disk makes fewer, larger writes: what waits is at most one value for each key that
//!   changed, so at most the size of the state. Beyond [`Pace::waiting_bytes`] the mirror gives up instead of eating
//!   the memory. After a write the thread rests at least as long as the write took: it never takes more than half a
//!   core.
//! * **Failing.** A mirror that failed drops what it is given, tells its owner once, and waits for
//!   [`Mirror::rebuild`]. It never stops the node: the log and the snapshots are the truth.
//!
//! It is not a queue of entries, and not a promise: what was handed over is on disk after `flush`, and even then only
//! as far as the store promises.

mod desk;
mod scribe;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Row, StateStore, StoreError};
use desk::Desk;
use scribe::Scribe;

/// How often the mirror writes, and how much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From the start of one write to the start of the next, at least.
    pub interval: Duration,
    /// Bytes of keys and values that may wait; beyond it the mirror fails with "fell behind".
    pub waiting_bytes: usize,
}

impl Default for Pace {
    /// 250 ms: a restart replays at most that much plus one write. 256 MiB: a state that changes more than this while
    /// one write lasts has a disk that will not catch up.
    fn default() -> Pace {
        Pace { interval: Duration::from_millis(250), waiting_bytes: 256 << 20 }
    }
}

/// Why a mirror stopped following.
#[derive(Debug, thiserror::Error)]
pub enum MirrorFailure {
    /// The store did not take a write.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk is too slow for what changes. Rebuild when there is less to do.
    #[error("the state mirror fell behind: {waiting_bytes} bytes wait for the disk")]
    FellBehind {
        /// Bytes that waited, and were dropped.
        waiting_bytes: usize,
    },
}

/// Why a wait for the mirror did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// It does not follow any more; `rebuild` mends it.
    #[error("the state mirror failed: {why}")]
    Failed {
        /// Why.
        why: String,
    },
    /// The disk did not answer in time. The write goes on.
    #[error("the state mirror did not finish within {0:?}")]
    TimedOut(Duration),
}

/// The handle. Dropping it lets the thread write what waits and end by itself.
pub struct Mirror {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Starts the thread on `store`, which must hold the state that the next changes start from (or be rebuilt
    /// first). `tell` is called from the thread, once for each failure; it must not block.
    ///
    /// Errors: the operating system gave no thread.
    pub fn start(
        store: Box<dyn StateStore>,
        pace: Pace,
        tell: impl FnMut(MirrorFailure) + Send + 'static,
    ) -> std::io::Result<Mirror> {
        let desk = Arc::new(Desk::new(pace));
        let of_thread = desk.clone();
        let thread = std::thread::Builder::new()
            .name("state-mirror".into())
            .spawn(move || Scribe::new(of_thread, store, tell).run())?;
        Ok(Mirror { desk, thread: Some(thread) })
    }

    /// Takes the rows that changed and the meta of the state after them. Never waits for the disk. Changes and meta of
    /// one call are written together or not at all, so a call must end at an entry's end.
    pub fn follow(&self, changes: impl IntoIterator<Item = (Vec<u8>, Option<Vec<u8>>)>, meta: Vec<u8>) {
        let mut papers = self.desk.papers.lock();
        if papers.failed.is_some() {
            return;
        }
        for (key, value) in changes {
            papers.add(key, value);
        }
        papers.meta = meta;
        papers.given += 1;
        if papers.waiting_bytes > self.desk.pace.waiting_bytes {
            let waiting_bytes = papers.waiting_bytes;
            papers.fail(MirrorFailure::FellBehind { waiting_bytes });
            self.desk.done.notify_all();
        }
        self.desk.work.notify_one();
    }

    /// Starts anew from all rows of a state and its meta; what waited is superseded. This is how a store that is
    /// empty, damaged or failed comes back. Later calls of `follow` go on from here.
    pub fn rebuild(&self, rows: Vec<Row>, meta: Vec<u8>) {
        let mut papers = self.desk.papers.lock();
        papers.forget();
        papers.failed = None;
        papers.replacement = Some(rows);
        papers.meta = meta;
        papers.given += 1;
        self.desk.work.notify_one();
    }

    /// Writes at once and waits, at most `limit`, until the store holds everything handed over before this call.
    pub fn flush_now(&self, limit: Duration) -> Result<(), MirrorError> {
        let mut papers = self.desk.papers.lock();
        let target = papers.given;
        papers.hurry = true;
        self.desk.work.notify_one();
        self.desk.wait_until(&mut papers, limit, |papers| papers.written >= target)
    }

    /// Writes what waits, closes the store and ends the thread; waits at most `limit` for it.
    pub fn stop(mut self, limit: Duration) -> Result<(), MirrorError> {
        {
            let mut papers = self.desk.papers.lock();
            papers.stopping = true;
            self.desk.work.notify_one();
            self.desk.wait_until(&mut papers, limit, |papers| papers.stopped)?;
        }
        if let Some(thread) = self.thread.take() {
            // The thread said that it is at its end; its panic, if any, was reported by the panic hook.
            let _ = thread.join();
        }
        Ok(())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.desk.papers.lock().stopping = true;
        self.desk.work.notify_one();
    }
}
