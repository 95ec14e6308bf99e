//! The mirror's thread: takes changed rows from the source and writes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::StateStore;
use super::shared::{MirrorShared, MirrorState, WriteJob, with_cause};
use super::{MirrorFailure, Source, UpdatedRows};

/// A write that takes longer is worth a line in the log.
const SLOW: Duration = Duration::from_secs(2);

/// The thread's side: the only one that touches the store.
pub(super) struct MirrorWorker {
    shared: Arc<MirrorShared>,
    store: Box<dyn StateStore>,
    source: Box<dyn Source>,
    on_failure: Box<dyn FnMut(MirrorFailure) + Send>,
    rest_until: Instant,
}

/// What the thread does next.
enum NextAction {
    Write(WriteJob),
    Report(MirrorFailure),
    End,
}

/// When there is something to do.
enum Due {
    Now(NextAction),
    At(Instant),
    /// When notified.
    Nothing,
}

impl MirrorWorker {
    pub(super) fn new(
        shared: Arc<MirrorShared>,
        store: Box<dyn StateStore>,
        source: Box<dyn Source>,
        on_failure: impl FnMut(MirrorFailure) + Send + 'static,
    ) -> MirrorWorker {
        MirrorWorker { shared, store, source, on_failure: Box::new(on_failure), rest_until: Instant::now() }
    }

    pub(super) fn run(mut self) {
        loop {
            let action = self.next();
            if !self.take(action) {
                return self.end();
            }
        }
    }

    /// [`MirrorWorker::run`] as a task that polls.
    pub(super) async fn run_inline(mut self) {
        loop {
            let due = self.due(&mut self.shared.state.lock());
            let Due::Now(action) = due else {
                tokio::time::sleep(self.shared.every / 4).await;
                continue;
            };
            if !self.take(action) {
                return self.end();
            }
        }
    }

    /// Whether it goes on.
    fn take(&mut self, action: NextAction) -> bool {
        match action {
            NextAction::Write(job) => self.write(job),
            NextAction::Report(failure) => (self.on_failure)(failure),
            NextAction::End => return false,
        }
        true
    }

    fn end(self) {
        if let Err(error) = self.store.close() {
            // No caller depends on it: the log has the state too.
            tracing::warn!(why = with_cause(&error), "the state store did not close cleanly");
        }
        self.shared.state.lock().stopped = true;
        self.shared.done.notify_all();
    }

    fn next(&self) -> NextAction {
        let mut state = self.shared.state.lock();
        loop {
            match self.due(&mut state) {
                Due::Now(action) => return action,
                Due::Nothing => self.shared.work.wait(&mut state),
                Due::At(then) => drop(self.shared.work.wait_until(&mut state, then)),
            }
        }
    }

    fn due(&self, state: &mut MirrorState) -> Due {
        if let Some(failure) = state.unreported.take() {
            return Due::Now(NextAction::Report(failure));
        }
        if !state.has_work() {
            state.write_now = false;
            return if state.stopping { Due::Now(NextAction::End) } else { Due::Nothing };
        }
        if state.write_now || state.stopping || Instant::now() >= self.rest_until {
            return Due::Now(NextAction::Write(state.take()));
        }
        Due::At(self.rest_until)
    }

    fn write(&mut self, job: WriteJob) {
        let begun = Instant::now();
        let (rows, result) = self.put(job.all);
        let took = begun.elapsed();
        if took > SLOW {
            tracing::warn!(rows, ?took, "a write of the state mirror was slow; changes gather meanwhile");
        }
        self.rest_until = (begun + self.shared.every).max(begun + took * 2);

        let mut state = self.shared.state.lock();
        match result {
            Ok(()) => state.written = job.given,
            // A rebuild that was asked for in the meantime supersedes what failed; its own write will tell.
            Err(error) if state.all => {
                tracing::warn!(why = with_cause(&error), "the state mirror failed before its rebuild");
            }
            Err(error) => state.fail(error),
        }
        drop(state);
        self.shared.done.notify_all();
    }

    /// One write: of how many rows, and what came of it.
    fn put(&mut self, all: bool) -> (usize, Result<(), MirrorFailure>) {
        let taken = match self.source.take(all) {
            Ok(taken) => taken,
            Err(why) => return (0, Err(MirrorFailure::Source(why))),
        };
        let (rows, result) = match taken.rows {
            UpdatedRows::Changed(changes) => (changes.len(), self.store.write(&changes, &taken.meta)),
            UpdatedRows::All(rows) => (rows.len(), self.store.replace(&mut rows.into_iter(), &taken.meta)),
        };
        (rows, result.map_err(MirrorFailure::from))
    }
}
