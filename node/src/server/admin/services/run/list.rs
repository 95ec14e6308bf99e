//! The list of runs, latest first: those in the replicated state and those in the archive.
//!
//! The runs of the state and the list of the archive's parts are read at once, so a run that is archived meanwhile is
//! in one of them. Then parts are opened as far as the page needs their runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use reveille_ledger::ids::{PageId, RunId, ScheduleId, Time};
use reveille_ledger::{ArchivePartKey, Ledger, RunSummary};
use reveille_proto::admin::v1::{self, Freshness};

use crate::server::admin::archive::unless_lost;
use crate::server::admin::label_selector::Selector;
use crate::server::admin::lookup::check_schedule;
use crate::server::admin::paging::{EXAMINED_MAX, Paging};
use crate::server::admin::{Admin, ApiResult, Call, views};

/// Maximum number of rows of one source, state or archive, that are read for one page.
const EXAMINED_EACH_MAX: usize = EXAMINED_MAX / 2;
/// Opening a part of the archive costs as much as reading this many rows, at least.
const ROWS_PER_PART: usize = 100;

/// Selects the runs of a list.
pub struct RunFilter {
    pub tenant: String,
    pub schedule: String,
    pub states: Vec<v1::RunState>,
    pub selector: Selector,
    pub since: Option<Time>,
    pub until: Option<Time>,
}

impl RunFilter {
    fn selects(&self, run: &RunSummary) -> bool {
        *run.tenant == *self.tenant
            && (self.schedule.is_empty() || *run.name == *self.schedule)
            && (self.states.is_empty() || self.states.contains(&views::run_state(&run.state)))
            && self.until.is_none_or(|until| run.opened_at < until)
    }

    /// True if the selector selects the schedule. A deleted schedule has no labels.
    fn selects_schedule(&self, state: &Ledger, id: ScheduleId) -> bool {
        self.selector.means(state.schedules().get(&id).map(|schedule| &schedule.labels))
    }

    fn is_too_old(&self, opened_at: Time) -> bool {
        self.since.is_some_and(|since| opened_at < since)
    }
}

/// Selected runs of one source, latest first.
struct Rows<R> {
    runs: Vec<(RunId, R)>,
    /// The last run that was read. `None`: there are no more.
    end: Option<RunId>,
}

/// Merges the rows of both sources. Returns at most `size` of them, and the last run that was considered if there are
/// more.
fn merge<R>(state: Rows<R>, archive: Rows<R>, size: usize) -> (Vec<R>, Option<RunId>) {
    // Below the end of a source its runs are unknown.
    let end = state.end.max(archive.end);
    let mut runs: Vec<(RunId, R)> = state.runs.into_iter().chain(archive.runs).collect();
    runs.retain(|(id, _)| end.is_none_or(|end| *id >= end));
    runs.sort_by_key(|(id, _)| Reverse(*id));
    let more = runs.len() > size;
    runs.truncate(size);
    let last = if more { runs.last().map(|(id, _)| *id) } else { end };
    (runs.into_iter().map(|(_, run)| run).collect(), last)
}

/// Merges two lists of runs, each latest first.
fn latest_first(one: impl Iterator<Item = RunId>, other: impl Iterator<Item = RunId>) -> impl Iterator<Item = RunId> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || if one.peek() >= other.peek() { one.next() } else { other.next() })
}

/// Returns the selected runs of the state.
fn rows_of_state(ledger: &Ledger, filter: &RunFilter, paging: &Paging<RunId>) -> Rows<v1::Run> {
    let (mut runs, mut last) = (Vec::new(), None);
    let upper = paging.after.map_or(Bound::Unbounded, Bound::Included);
    let pages = ledger.pages().range((Bound::Unbounded, upper.map(PageId))).rev();
    // Ledger time never goes back, so all pages before the first one that is too old are too old as well.
    let pages = pages.take_while(|(_, page)| !filter.is_too_old(page.opened_at));
    let runs_of_pages = pages.flat_map(|(id, page)| page.runs.iter().rev().map(move |run| id.run_id(run)));
    let summaries = ledger.summaries().range((Bound::Unbounded, upper)).rev();
    let summaries = summaries.filter(|(_, summary)| !filter.is_too_old(summary.opened_at)).map(|(id, _)| *id);
    let all = latest_first(runs_of_pages, summaries);
    let rest = all.filter(|id| paging.after.is_none_or(|after| *id < after));
    for (examined, id) in rest.enumerate() {
        if runs.len() >= paging.size || examined >= EXAMINED_EACH_MAX {
            return Rows { runs, end: last };
        }
        last = Some(id);
        let selected = |run: &RunSummary| filter.selects(run) && filter.selects_schedule(ledger, run.schedule);
        if ledger.summary_of(id).is_some_and(|run| selected(&run)) {
            runs.extend(views::run_of(ledger, id).map(|run| (id, run)));
        }
    }
    Rows { runs, end: None }
}

/// Archived runs, latest first. The runs of a part finished together and did not open together, so parts overlap. A
/// part is opened only when its last run could be the next one.
struct PartQueue<P> {
    /// Last run and key of each part that is not opened, in this order.
    closed: Vec<(RunId, ArchivePartKey)>,
    /// Runs of opened parts.
    opened: BTreeMap<RunId, P>,
}

/// The next step through a [`PartQueue`].
enum PartStep<P> {
    /// The part must be opened.
    Open(ArchivePartKey),
    /// The next run.
    Run(RunId, P),
}

impl<P> PartQueue<P> {
    fn new(mut closed: Vec<(RunId, ArchivePartKey)>) -> PartQueue<P> {
        closed.sort_unstable();
        PartQueue { closed, opened: BTreeMap::new() }
    }

    /// Returns the next step. Ends where only runs below `floor` are left.
    fn step(&mut self, floor: Option<RunId>) -> Option<PartStep<P>> {
        let run = self.opened.last_key_value().map(|(run, _)| *run);
        let part = self.closed.last().map(|(last, _)| *last);
        run.max(part).filter(|next| floor.is_none_or(|floor| *next >= floor))?;
        if part > run {
            return self.closed.pop().map(|(_, key)| PartStep::Open(key));
        }
        self.opened.pop_last().map(|(run, part)| PartStep::Run(run, part))
    }
}

/// A page of runs.
pub struct RunPage {
    pub runs: Vec<v1::Run>,
    /// The last run that was read, if there are more.
    pub last: Option<RunId>,
    pub freshness: Option<Freshness>,
    /// True if a part of the archive that may have runs of the page, of its tenant, is lost.
    pub incomplete: bool,
}

impl Admin {
    /// Returns one page of runs.
    pub(super) async fn list_page(
        &self,
        filter: &RunFilter,
        paging: &Paging<RunId>,
        stale: bool,
        call: &Call,
    ) -> ApiResult<RunPage> {
        let query = self.try_read(stale, call, |ledger| {
            check_schedule(ledger, &filter.tenant, &filter.schedule)?;
            Ok((rows_of_state(ledger, filter, paging), ledger.parts().clone()))
        });
        let ((of_state, parts), freshness) = query.await?;
        let parts = parts.iter().filter(|(_, part)| part.may_have(&filter.tenant)).filter_map(|(key, part)| {
            let (first, last) = part.runs()?;
            paging.after.is_none_or(|after| first < after).then_some((last, *key))
        });
        let (of_archive, incomplete) = self.rows_of_archive(parts.collect(), filter, paging, of_state.end).await?;
        let (runs, last) = merge(of_state, of_archive, paging.size);
        Ok(RunPage { runs, last, freshness, incomplete })
    }

    /// Returns the selected runs of the archive from `floor` on, and whether a part that may have some is lost.
    async fn rows_of_archive(
        &self,
        parts: Vec<(RunId, ArchivePartKey)>,
        filter: &RunFilter,
        paging: &Paging<RunId>,
        floor: Option<RunId>,
    ) -> ApiResult<(Rows<v1::Run>, bool)> {
        let mut queue = PartQueue::new(parts);
        let (mut runs, mut last, mut examined, mut incomplete) = (Vec::new(), None, 0, false);
        while let Some(step) = queue.step(floor) {
            let (id, part): (RunId, Arc<Ledger>) = match step {
                PartStep::Open(key) => {
                    examined += ROWS_PER_PART;
                    let opened = unless_lost(self.open_part(key).await)?;
                    incomplete |= opened.is_err();
                    // The runs of a part whose retention has ended meanwhile are gone.
                    let Ok(Some(part)) = opened else { continue };
                    let ids = part.runs().map(|(id, ..)| id).chain(part.summaries().iter().map(|(id, _)| *id));
                    let ids = ids.filter(|id| paging.after.is_none_or(|after| *id < after));
                    queue.opened.extend(ids.map(|id| (id, Arc::clone(&part))));
                    continue;
                }
                PartStep::Run(id, part) => (id, part),
            };
            if last.is_some() && (runs.len() >= paging.size || examined >= EXAMINED_EACH_MAX) {
                return Ok((Rows { runs, end: last }, incomplete));
            }
            (last, examined) = (Some(id), examined + 1);
            let Some(run) = part.summary_of(id) else { continue };
            if filter.is_too_old(run.opened_at) {
                break;
            }
            let selected =
                filter.selects(&run) && self.context.replica.read(|state| filter.selects_schedule(state, run.schedule));
            if selected {
                runs.extend(views::run_of(&part, id).map(|run| (id, run)));
            }
        }
        Ok((Rows { runs, end: None }, incomplete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u64) -> RunId {
        RunId { index, place: 0 }
    }

    fn rows(runs: &[u64], end: Option<u64>) -> Rows<u64> {
        Rows { runs: runs.iter().map(|run| (id(*run), *run)).collect(), end: end.map(id) }
    }

    #[test]
    fn runs_of_both_sources_are_merged_latest_first() {
        let merged = merge(rows(&[9, 8, 3], None), rows(&[7, 4, 2], None), 10);
        assert_eq!(merged, (vec![9, 8, 7, 4, 3, 2], None));
        let merged = merge(rows(&[9, 8, 3], None), rows(&[7, 4, 2], None), 4);
        assert_eq!(merged, (vec![9, 8, 7, 4], Some(id(4))), "a full page ends with its last run");
        let merged = merge(rows(&[9, 8], None), rows(&[7], None), 3);
        assert_eq!(merged, (vec![9, 8, 7], None), "a full page may be the last one");
    }

    #[test]
    fn runs_and_summaries_of_the_state_are_one_list() {
        let lists = [vec![9, 5, 2], vec![7, 6, 1]].map(|list| list.into_iter().map(id));
        let [runs, summaries] = lists;
        let all: Vec<u64> = latest_first(runs, summaries).map(|run| run.index).collect();
        assert_eq!(all, [9, 7, 6, 5, 2, 1]);
    }

    #[test]
    fn page_ends_where_one_source_is_not_read_any_further() {
        let merged = merge(rows(&[9, 5], Some(5)), rows(&[8, 4], None), 10);
        assert_eq!(merged, (vec![9, 8, 5], Some(id(5))), "runs of the state may be between 5 and 4");
        let merged = merge(rows(&[9, 5], Some(5)), rows(&[8], Some(6)), 10);
        assert_eq!(merged, (vec![9, 8], Some(id(6))));
        let merged = merge(rows(&[], Some(5)), rows(&[8], None), 10);
        assert_eq!(merged, (vec![8], Some(id(5))), "the next page begins below the last run that was read");
    }

    /// Returns the runs of these parts in the order of the queue, and the parts in the order in which they were opened.
    fn run_queue(parts: &[&[u64]], floor: Option<u64>) -> (Vec<u64>, Vec<u64>) {
        let key = |place: usize| ArchivePartKey { index: place as u64, place: 0 };
        let last = |part: &&[u64]| id(part.iter().copied().max().unwrap_or_default());
        let closed = parts.iter().enumerate().map(|(place, part)| (last(part), key(place))).collect();
        let mut queue = PartQueue::new(closed);
        let (mut runs, mut opened) = (Vec::new(), Vec::new());
        while let Some(step) = queue.step(floor.map(id)) {
            match step {
                PartStep::Open(key) => {
                    opened.push(key.index);
                    queue.opened.extend(parts[key.index as usize].iter().map(|run| (id(*run), ())));
                }
                PartStep::Run(run, ()) => runs.push(run.index),
            }
        }
        (runs, opened)
    }

    #[test]
    fn parts_that_overlap_are_merged_and_opened_in_time() {
        assert_eq!(run_queue(&[&[1, 2, 3], &[4, 5]], None), (vec![5, 4, 3, 2, 1], vec![1, 0]));
        // Run 2 finished late.
        assert_eq!(run_queue(&[&[1, 3, 4], &[2, 6, 7]], None), (vec![7, 6, 4, 3, 2, 1], vec![1, 0]));
        assert_eq!(run_queue(&[], None), (vec![], vec![]));
    }

    #[test]
    fn part_below_the_floor_is_not_opened() {
        assert_eq!(run_queue(&[&[1, 2, 3], &[2, 6, 7]], Some(6)), (vec![7, 6], vec![1]));
        assert_eq!(run_queue(&[&[1, 2, 3]], Some(4)), (vec![], vec![]));
    }
}
