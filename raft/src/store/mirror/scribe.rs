//! The mirror's thread: takes what waits from the desk and writes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Changes, Row, StateStore, StoreError};
use super::MirrorFailure;
use super::desk::{Desk, Work, with_cause};

/// A write that takes longer is worth a line in the log.
const SLOW: Duration = Duration::from_secs(2);

/// The thread's side: the only one that touches the store.
pub(super) struct Scribe {
    desk: Arc<Desk>,
    store: Box<dyn StateStore>,
    tell: Box<dyn FnMut(MirrorFailure) + Send>,
    rest_until: Instant,
}

/// What the thread does next.
enum Step {
    Write(Work),
    Tell(MirrorFailure),
    End,
}

impl Scribe {
    pub(super) fn new(
        desk: Arc<Desk>,
        store: Box<dyn StateStore>,
        tell: impl FnMut(MirrorFailure) + Send + 'static,
    ) -> Scribe {
        Scribe { desk, store, tell: Box::new(tell), rest_until: Instant::now() }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.next() {
                Step::Write(work) => self.write(work),
                Step::Tell(failure) => (self.tell)(failure),
                Step::End => break,
            }
        }
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
            if let Some(failure) = papers.untold.take() {
                return Step::Tell(failure);
            }
            if !papers.has_work() {
                if papers.stopping {
                    return Step::End;
                }
                papers.hurry = false;
                self.desk.work.wait(&mut papers);
            } else if papers.hurry || papers.stopping || Instant::now() >= self.rest_until {
                return Step::Write(papers.take());
            } else {
                self.desk.work.wait_until(&mut papers, self.rest_until);
            }
        }
    }

    fn write(&mut self, work: Work) {
        let begun = Instant::now();
        let rows = work.replacement.as_ref().map_or(0, Vec::len) + work.changes.len();
        let result = self.put(work.replacement, &work.changes, &work.meta);
        let took = begun.elapsed();
        if took > SLOW {
            tracing::warn!(rows, ?took, "a write of the state mirror was slow; changes coalesce meanwhile");
        }
        self.rest_until = (begun + self.desk.pace.interval).max(begun + took * 2);

        let mut papers = self.desk.papers.lock();
        match result {
            Ok(()) => papers.written = work.given,
            // A rebuild that was asked for in the meantime supersedes what failed; its own write will tell.
            Err(error) if papers.replacement.is_some() => {
                tracing::warn!(why = with_cause(&error), "the state mirror failed before its rebuild");
            }
            Err(error) => papers.fail(error.into()),
        }
        drop(papers);
        self.desk.done.notify_all();
    }

    fn put(&mut self, replacement: Option<Vec<Row>>, changes: &Changes, meta: &[u8]) -> Result<(), StoreError> {
        let Some(rows) = replacement else { return self.store.write(changes, meta) };
        // What came after the rows were taken goes in at once: rows and meta must be of one state.
        let mut state: BTreeMap<_, _> = rows.into_iter().collect();
        for (key, value) in changes {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        self.store.replace(&mut state.into_iter(), meta)
    }
}
