//! Finds rows that are old enough to be pruned (P24), one batch at a time, so that no scan of the state is long.
//!
//! The leader's auditor calls it and keeps a [`PruneCursor`] between two batches. Without the cursor the scan begins
//! again. `apply` checks each named row again.

use std::ops::Bound;

use crate::apply::history_kept_until;
use crate::command::Prune;
use crate::model::{Ledger, Nominal, RunId, ScheduleId, Time};

/// Runs that one entry prunes at most; a page with more runs has its own entry.
pub const RUNS_MAX: usize = 1_000;
/// Rows of the history, and summaries, that one entry removes at most. A name has at most 128 bytes, so this is far
/// below the limit of an entry.
const NAMES_MAX: usize = 1_000;
/// Pages, summaries and rows of the history that one call reads at most.
const SCAN_MAX: usize = 4_096;

/// Position at which the last call stopped. The default begins a new scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneCursor {
    page: Option<RunId>,
    summary: Option<RunId>,
    history: Option<(ScheduleId, Nominal)>,
}

/// Returns the rows after `cursor` that may be removed by `now`, and where to continue. `None`: the scan is complete.
pub fn next_batch(ledger: &Ledger, cursor: &PruneCursor, now: Time) -> (Prune, Option<PruneCursor>) {
    let mut prune = Prune::default();
    let mut next = cursor.clone();
    let mut runs = 0;
    let mut more = false;
    for (scanned, (id, page)) in ledger.pages().range(after(&cursor.page)).enumerate() {
        let goes = ledger.kept_until(page).is_some_and(|until| until <= now);
        if scanned >= SCAN_MAX || goes && runs > 0 && runs + page.runs.len() > RUNS_MAX {
            more = true;
            break;
        }
        next.page = Some(*id);
        if goes {
            runs += page.runs.len();
            prune.pages.push(*id);
        }
    }
    for (scanned, (id, summary)) in ledger.summaries().range(after(&cursor.summary)).enumerate() {
        if scanned >= SCAN_MAX || prune.summaries.len() >= NAMES_MAX {
            more = true;
            break;
        }
        next.summary = Some(*id);
        if summary.kept_until() <= now {
            prune.summaries.push(*id);
        }
    }
    for (scanned, (name, row)) in ledger.history().range(after(&cursor.history)).enumerate() {
        if scanned >= SCAN_MAX || prune.history.len() >= NAMES_MAX {
            more = true;
            break;
        }
        next.history = Some(name.clone());
        if history_kept_until(&name.1, row).is_some_and(|until| until <= now) {
            prune.history.push(name.clone());
        }
    }
    (prune, more.then_some(next))
}

impl Prune {
    /// True if there is nothing to prune.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.summaries.is_empty() && self.history.is_empty()
    }
}

fn after<K: Clone>(cursor: &Option<K>) -> (Bound<K>, Bound<K>) {
    (cursor.clone().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}
