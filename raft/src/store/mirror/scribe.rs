//! The mirror's thread: takes from the source what changed, and writes it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::StateStore;
use super::desk::{Desk, Order, Papers, with_cause};
use super::{MirrorFailure, Rows, Source};

/// A write that takes longer is worth a line in the log.
const SLOW: Duration = Duration::from_secs(2);

/// The thread's side: the only one that touches the store.
pub(super) struct Scribe {
    desk: Arc<Desk>,
    store: Box<dyn StateStore>,
    source: Box<dyn Source>,
    tell: Box<dyn FnMut(MirrorFailure) + Send>,
    rest_until: Instant,
}

/// What the thread does next.
enum Step {
    Write(Order),
    Tell(MirrorFailure),
    End,
}

/// When there is something to do.
enum Due {
    Now(Step),
    At(Instant),
    /// When somebody rings.
    Nothing,
}

impl Scribe {
    pub(super) fn new(
        desk: Arc<Desk>,
        store: Box<dyn StateStore>,
        source: Box<dyn Source>,
        tell: impl FnMut(MirrorFailure) + Send + 'static,
    ) -> Scribe {
        Scribe { desk, store, source, tell: Box::new(tell), rest_until: Instant::now() }
    }

    pub(super) fn run(mut self) {
        loop {
            let step = self.next();
            if !self.take(step) {
                return self.end();
            }
        }
    }

    /// The same as a task, which nobody wakes.
    pub(super) async fn run_inline(mut self) {
        loop {
            let due = self.due(&mut self.desk.papers.lock());
            let Due::Now(step) = due else {
                tokio::time::sleep(self.desk.every / 4).await;
                continue;
            };
            if !self.take(step) {
                return self.end();
            }
        }
    }

    /// Whether it goes on.
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Write(order) => self.write(order),
            Step::Tell(failure) => (self.tell)(failure),
            Step::End => return false,
        }
        true
    }

    fn end(self) {
        if let Err(error) = self.store.close() {
            // Nobody waits for a state that the log holds too.
            tracing::warn!(why = with_cause(&error), "the state store did not close cleanly");
        }
        self.desk.papers.lock().stopped = true;
        self.desk.done.notify_all();
    }

    fn next(&self) -> Step {
        let mut papers = self.desk.papers.lock();
        loop {
            match self.due(&mut papers) {
                Due::Now(step) => return step,
                Due::Nothing => self.desk.work.wait(&mut papers),
                Due::At(then) => drop(self.desk.work.wait_until(&mut papers, then)),
            }
        }
    }

    fn due(&self, papers: &mut Papers) -> Due {
        if let Some(failure) = papers.untold.take() {
            return Due::Now(Step::Tell(failure));
        }
        if !papers.has_work() {
            papers.hurry = false;
            return if papers.stopping { Due::Now(Step::End) } else { Due::Nothing };
        }
        if papers.hurry || papers.stopping || Instant::now() >= self.rest_until {
            return Due::Now(Step::Write(papers.take()));
        }
        Due::At(self.rest_until)
    }

    fn write(&mut self, order: Order) {
        let begun = Instant::now();
        let (rows, result) = self.put(order.all);
        let took = begun.elapsed();
        if took > SLOW {
            tracing::warn!(rows, ?took, "a write of the state mirror was slow; changes gather meanwhile");
        }
        self.rest_until = (begun + self.desk.every).max(begun + took * 2);

        let mut papers = self.desk.papers.lock();
        match result {
            Ok(()) => papers.written = order.given,
            // A rebuild that was asked for in the meantime supersedes what failed; its own write will tell.
            Err(error) if papers.all => {
                tracing::warn!(why = with_cause(&error), "the state mirror failed before its rebuild");
            }
            Err(error) => papers.fail(error),
        }
        drop(papers);
        self.desk.done.notify_all();
    }

    /// One write: of how many rows, and what came of it.
    fn put(&mut self, all: bool) -> (usize, Result<(), MirrorFailure>) {
        let taken = match self.source.take(all) {
            Ok(taken) => taken,
            Err(why) => return (0, Err(MirrorFailure::Source(why))),
        };
        let (rows, result) = match taken.rows {
            Rows::Changed(changes) => (changes.len(), self.store.write(&changes, &taken.meta)),
            Rows::All(rows) => (rows.len(), self.store.replace(&mut rows.into_iter(), &taken.meta)),
        };
        (rows, result.map_err(MirrorFailure::from))
    }
}
