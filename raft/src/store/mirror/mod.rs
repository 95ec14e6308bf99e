//! The thread that keeps a [`StateStore`] close behind the state in memory.
//!
//! The writer of the state calls [`Mirror::note`] and never waits for the disk. At most four times a second the thread takes
//! the changed rows from the [`Source`] and writes them with their position as one write.
//!
//! A slow disk makes fewer, larger writes: only keys of changed rows wait, and after a write the thread pauses as long as the
//! write took. A failed mirror reports the failure once, writes nothing, and waits for [`Mirror::rebuild`]; it never stops the
//! node.

mod shared;
mod worker;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::execution::Execution;

use super::{Changes, Row, StateStore, StoreError};
use shared::MirrorShared;
use worker::MirrorWorker;

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
    fn take(&mut self, all: bool) -> Result<StateUpdate, String>;
}

/// Rows to write, and the meta of the very state that they are of.
#[derive(Debug)]
pub struct StateUpdate {
    /// The rows.
    pub rows: UpdatedRows,
    /// How far that state is.
    pub meta: Vec<u8>,
}

/// Some rows of a state, or all.
#[derive(Debug)]
pub enum UpdatedRows {
    /// Those that changed.
    Changed(Changes),
    /// The store is rewritten from these.
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
    /// It has failed and waits for `rebuild`.
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
    shared: Arc<MirrorShared>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Starts to follow on `store`, which must hold the state that the changes of `source` start from (else the
    /// source must give all rows first). `tell` is called from there, once for each failure; it must not block.
    ///
    /// With [`Execution::Inline`] it is a task of the caller's runtime that polls four times as often as it may write, and
    /// no caller can wait for it: no [`Mirror::flush_now`], no [`Mirror::stop`].
    ///
    /// Errors: the operating system gave no thread.
    pub fn start(
        execution: Execution,
        store: Box<dyn StateStore>,
        source: Box<dyn Source>,
        every: Duration,
        tell: impl FnMut(MirrorFailure) + Send + 'static,
    ) -> std::io::Result<Mirror> {
        let shared = Arc::new(MirrorShared::new(every));
        let of_thread = shared.clone();
        let worker = MirrorWorker::new(of_thread, store, source, tell);
        let thread = match execution {
            Execution::Threads => {
                Some(std::thread::Builder::new().name("state-mirror".into()).spawn(move || worker.run())?)
            }
            Execution::Inline => {
                tokio::spawn(worker.run_inline());
                None
            }
        };
        Ok(Mirror { shared, thread })
    }

    /// The source has changed: to be called after it has, at an entry's end. Never waits for the disk.
    pub fn note(&self) {
        self.shared.state.lock().given += 1;
        self.shared.work.notify_one();
    }

    /// Rewrites the store from all rows of the source: this is how a failed store recovers.
    pub fn rebuild(&self) {
        let mut state = self.shared.state.lock();
        state.failed = None;
        state.all = true;
        state.given += 1;
        self.shared.work.notify_one();
    }

    /// Writes at once and waits, at most `limit`, until the store holds everything noted before this call.
    pub fn flush_now(&self, limit: Duration) -> Result<(), MirrorError> {
        let mut state = self.shared.state.lock();
        let target = state.given;
        state.write_now = true;
        self.shared.work.notify_one();
        self.shared.wait_until(&mut state, limit, |state| state.written >= target)
    }

    /// Writes what waits, closes the store and ends the thread; waits at most `limit` for it.
    pub fn stop(mut self, limit: Duration) -> Result<(), MirrorError> {
        {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            self.shared.work.notify_one();
            self.shared.wait_until(&mut state, limit, |state| state.stopped)?;
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
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_one();
    }
}
