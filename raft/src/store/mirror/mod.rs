//! The thread that keeps a [`StateStore`] close behind the state in memory.
//!
//! The state gathers by itself which of its rows changed. Whoever changes it rings ([`Mirror::note`]) and never waits
//! for the disk. Every 250 ms the thread asks the [`Source`] for what changed since it last asked, and writes that
//! with its meta as one write. So a row that changes a hundred times in between is encoded once.
//!
//! * **Falling behind.** A slow disk makes fewer, larger writes: what waits is a key for each row that changed, and
//!   no bytes. A source that will not gather any more keys forgets them, and gives the whole state instead.
//!   After a write the thread rests at least as long as the write took: it never takes more than half a core.
//! * **Failing.** A mirror that failed writes nothing, tells its owner once, and waits for [`Mirror::rebuild`]. It
//!   never stops the node: the log and the snapshots are the truth.
//!
//! It is not a queue of entries, and not a promise: what was noted is on disk after `flush`, and even then only as far
//! as the store promises.

mod desk;
mod scribe;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::drive::Drive;

use super::{Changes, Row, StateStore, StoreError};
use desk::Desk;
use scribe::Scribe;

/// From the start of one write to the start of the next, at least: a restart replays at most that much plus one
/// write.
pub const MIRROR_EVERY: Duration = Duration::from_millis(250);

/// The state that a mirror follows. It gathers by itself what changed.
pub trait Source: Send {
    /// What changed since the last call; every row when `all` is asked, or when the source does not know what the
    /// store lacks. Called from the mirror's thread, which holds no lock then.
    ///
    /// # Errors
    /// Why it cannot be written at all.
    fn take(&mut self, all: bool) -> Result<Taken, String>;
}

/// Rows to write, and the meta of the very state that they are of.
#[derive(Debug)]
pub struct Taken {
    /// The rows.
    pub rows: Rows,
    /// How far that state is.
    pub meta: Vec<u8>,
}

/// Some rows of a state, or all.
#[derive(Debug)]
pub enum Rows {
    /// Those that changed.
    Changed(Changes),
    /// The store is written anew from these.
    All(Vec<Row>),
}

/// Why a mirror stopped following.
#[derive(Debug, thiserror::Error)]
pub enum MirrorFailure {
    /// The store did not take a write.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state cannot be written.
    #[error("the state cannot be mirrored: {0}")]
    Source(String),
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
    /// Starts to follow on `store`, which must hold the state that the changes of `source` start from (else the
    /// source must give all rows first). `tell` is called from there, once for each failure; it must not block.
    ///
    /// With [`Drive::Inline`] it is a task of the caller's runtime that looks four times as often as it may write, and
    /// nobody can wait for it: no [`Mirror::flush_now`], no [`Mirror::stop`].
    ///
    /// Errors: the operating system gave no thread.
    pub fn start(
        drive: Drive,
        store: Box<dyn StateStore>,
        source: Box<dyn Source>,
        every: Duration,
        tell: impl FnMut(MirrorFailure) + Send + 'static,
    ) -> std::io::Result<Mirror> {
        let desk = Arc::new(Desk::new(every));
        let of_thread = desk.clone();
        let scribe = Scribe::new(of_thread, store, source, tell);
        let thread = match drive {
            Drive::Thread => Some(std::thread::Builder::new().name("state-mirror".into()).spawn(move || scribe.run())?),
            Drive::Inline => {
                tokio::spawn(scribe.run_inline());
                None
            }
        };
        Ok(Mirror { desk, thread })
    }

    /// The source has changed: to be called after it has, at an entry's end. Never waits for the disk.
    pub fn note(&self) {
        self.desk.papers.lock().given += 1;
        self.desk.work.notify_one();
    }

    /// Writes the store anew from all rows of the source. This is how a store that failed comes back.
    pub fn rebuild(&self) {
        let mut papers = self.desk.papers.lock();
        papers.failed = None;
        papers.all = true;
        papers.given += 1;
        self.desk.work.notify_one();
    }

    /// Writes at once and waits, at most `limit`, until the store holds everything noted before this call.
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
