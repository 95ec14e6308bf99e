//! Finds runs that may leave the state and rows that are old enough to go (P24), one batch at a time, so that no scan
//! of the state is long.
//!
//! The leader's auditor calls it and keeps an [`ArchiveCursor`] between two batches. Without the cursor the scan begins
//! again. `apply` checks everything again.

use std::ops::Bound;

use crate::apply::history_kept_until;
use crate::command::Archive;
use crate::model::{ArchivePartKey, Hash, Ledger, OccurrenceName, Page, PageId, RunId, ScheduleId, Time};

/// Maximum number of runs that one entry archives: those of one full page. `apply` holds the lock of the ledger for
/// them.
pub const RUNS_MAX: usize = 512;
/// Maximum bytes of contents and lists that leave with the runs of one entry: `apply` packs them under the lock, and has
/// them twice in memory. A page alone may have more; what it has came by one entry.
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum number of rows of each other kind that one entry removes. A name has at most 128 bytes, so this is far below
/// the limit of an entry.
const ROWS_MAX: usize = 1_000;
/// Maximum number of runs, and of rows of each other table, that one call reads; a page with more runs is read whole.
const SCAN_MAX: usize = 2_048;

/// Position at which the last call stopped. The default begins a new scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveCursor {
    page: Option<PageId>,
    summary: Option<RunId>,
    history: Option<(ScheduleId, OccurrenceName)>,
    part: Option<ArchivePartKey>,
    blob: Option<Hash>,
}

/// Returns what follows `cursor` and may leave the state by `now`, and where to continue. `None`: the scan is complete.
/// Runs are archived `after_ms` after they finished.
pub fn next_batch(
    ledger: &Ledger,
    cursor: &ArchiveCursor,
    now: Time,
    after_ms: i64,
) -> (Archive, Option<ArchiveCursor>) {
    let mut archive = Archive { after_ms, ..Archive::default() };
    let mut next = cursor.clone();
    let mut sum = Leaving::default();
    let mut more = false;
    let mut scanned = 0;
    for (id, page) in ledger.pages().range(after(&cursor.page)) {
        let leaving = leaving(ledger, page, now, after_ms);
        let with_it = Leaving { runs: sum.runs + leaving.runs, bytes: sum.bytes + leaving.bytes };
        let is_too_large = with_it.runs > RUNS_MAX || with_it.bytes > BYTES_MAX;
        if scanned >= SCAN_MAX || leaving.runs > 0 && sum.runs > 0 && is_too_large {
            more = true;
            break;
        }
        next.page = Some(*id);
        scanned += page.runs.len();
        if leaving.runs > 0 {
            sum = with_it;
            archive.pages.push(*id);
        }
    }
    let mut scan = |found: &mut dyn FnMut() -> Option<bool>| {
        let mut taken = 0;
        for _ in 0..SCAN_MAX {
            match found() {
                None => return,
                Some(goes) => taken += usize::from(goes),
            }
            if taken >= ROWS_MAX {
                break;
            }
        }
        more = true;
    };
    let mut rows = ledger.summaries().range(after(&cursor.summary));
    scan(&mut || {
        let (id, summary) = rows.next()?;
        next.summary = Some(*id);
        let goes = summary.kept_until() <= now;
        archive.summaries.extend(goes.then_some(*id));
        Some(goes)
    });
    let mut rows = ledger.history().range(after(&cursor.history));
    scan(&mut || {
        let (name, row) = rows.next()?;
        next.history = Some(name.clone());
        let goes = history_kept_until(&name.1, row).is_some_and(|until| until <= now);
        archive.history.extend(goes.then(|| name.clone()));
        Some(goes)
    });
    let mut rows = ledger.parts().range(after(&cursor.part));
    scan(&mut || {
        let (key, part) = rows.next()?;
        next.part = Some(*key);
        let goes = part.is_over(now) || part.has_old_details(now);
        archive.parts.extend(goes.then_some(*key));
        Some(goes)
    });
    let mut rows = ledger.blobs().range(after(&cursor.blob));
    scan(&mut || {
        let (hash, blob) = rows.next()?;
        next.blob = Some(*hash);
        let goes = blob.is_unused(now);
        archive.blobs.extend(goes.then_some(*hash));
        Some(goes)
    });
    (archive, more.then_some(next))
}

/// What may leave the state.
#[derive(Default)]
struct Leaving {
    runs: usize,
    /// Bytes of the contents and lists that only these runs have.
    bytes: usize,
}

/// Returns which part of a page may leave the state.
fn leaving(ledger: &Ledger, page: &Page, now: Time, after_ms: i64) -> Leaving {
    let mut leaving = Leaving::default();
    for run in &page.runs {
        if ledger.leaving_times(run, after_ms).is_some_and(|times| times.have_come(now)) {
            let own =
                [run.content, run.audience].map(|hash| ledger.blobs().get(&hash).filter(|one| one.references == 1));
            leaving.bytes += own.into_iter().flatten().map(|blob| blob.bytes.len()).sum::<usize>();
            leaving.runs += 1;
        }
    }
    leaving
}

impl Archive {
    /// True if there is nothing to archive or to remove.
    pub fn is_empty(&self) -> bool {
        let Archive { pages, after_ms: _, summaries, history, parts, blobs } = self;
        pages.is_empty() && summaries.is_empty() && history.is_empty() && parts.is_empty() && blobs.is_empty()
    }
}

fn after<K: Clone>(cursor: &Option<K>) -> (Bound<K>, Bound<K>) {
    (cursor.clone().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}
