//! The history of a schedule, latest first: the outcome of each instant, and the triggered runs.
//!
//! The state orders instants by time and triggers by request id. Both are read backwards and merged by log index. The
//! state has the names of archived instants, but not their runs, and it forgets archived triggers. Both are read from
//! the chain of the schedule's archived runs.
//!
//! An entry keeps its place when its run is archived, so pages neither repeat nor skip it.

use std::collections::BTreeMap;
use std::ops::Bound;

use reveille_ledger::ids::{OccurrenceName, RunId, ScheduleId};
use reveille_ledger::instant_range::InstantRange;
use reveille_ledger::{InstantOutcome, Ledger, Schedule};
use reveille_proto::admin::v1::HistoryEntry;
use serde::{Deserialize, Serialize};

use crate::server::admin::archive::{ArchiveChain, ArchivedRun, unless_lost};
use crate::server::admin::paging::Paging;
use crate::server::admin::{Admin, ApiResult, views};

/// Rows that are read beyond the end of a page. Where the clocks of a zone go back, a range of archived names begins
/// before names of the other fold and ends after them.
const ROWS_BEYOND: usize = 8;

/// Where a page ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryCursor {
    /// The last instant that was returned.
    instant: Option<OccurrenceName>,
    /// The last trigger that was returned.
    trigger: Option<TriggerKey>,
    /// The run that was archived last when the page was read, and the first one in the chain that was not returned.
    /// Runs between them need not be read again.
    chain: Option<(RunId, Option<RunId>)>,
}

/// Log index and request id of a trigger.
type TriggerKey = (u64, String);

impl HistoryCursor {
    /// True if the entry of this run is not after the cursor.
    fn has_returned(&self, run: RunId, occurrence: &OccurrenceName) -> bool {
        match occurrence {
            OccurrenceName::Trigger(request) => {
                self.trigger.as_ref().is_some_and(|last| (run.index, request) >= (last.0, &last.1))
            }
            OccurrenceName::Civil { .. } | OccurrenceName::Instant(_) => {
                self.instant.as_ref().is_some_and(|last| occurrence >= last)
            }
        }
    }
}

/// What is known about an entry.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// All of it.
    Entry(HistoryEntry),
    /// Its run, which is in the archive.
    Run(RunId),
    /// It opened, and its run must be found in the chain.
    Archived,
}

/// The next step through the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next archived run must be read first.
    ReadArchive,
    /// An instant is next.
    Instant,
    /// A trigger is next.
    Trigger,
    /// Nothing is left.
    End,
}

/// The entries of one page, and some more.
pub struct HistoryPage {
    size: usize,
    instants: BTreeMap<OccurrenceName, Outcome>,
    triggers: BTreeMap<TriggerKey, Outcome>,
    /// True if the state has further rows.
    more: bool,
    /// Moves with each entry that is taken.
    cursor: HistoryCursor,
    /// The run that was archived last.
    last_archived: Option<RunId>,
    /// Archived runs of instants.
    found: BTreeMap<OccurrenceName, RunId>,
    /// The runs that were read from the chain, in its order.
    from_chain: Vec<(RunId, OccurrenceName)>,
    /// All runs that are left in the chain were archived up to this log index. `None`: the chain has ended.
    archived_through: Option<u64>,
    /// True if the chain has ended because a part of the archive is lost: further runs are not known.
    is_broken: bool,
}

/// Returns the key that separates the instants of a schedule from its triggers, which follow.
fn first_trigger(id: ScheduleId) -> (ScheduleId, OccurrenceName) {
    (id, OccurrenceName::Trigger(String::new()))
}

fn first_instant(id: ScheduleId) -> (ScheduleId, OccurrenceName) {
    (id, OccurrenceName::Civil { civil_ms: i64::MIN, fold: 0 })
}

impl HistoryPage {
    /// Reads the state.
    pub fn read(ledger: &Ledger, id: ScheduleId, schedule: &Schedule, paging: &Paging<HistoryCursor>) -> HistoryPage {
        let cursor = paging.after.clone().unwrap_or_default();
        let mut page = HistoryPage::new(paging.size, cursor, schedule.plan.archived);
        page.read_instants(ledger, id);
        page.read_triggers(ledger, id);
        page
    }

    fn new(size: usize, cursor: HistoryCursor, last_archived: Option<RunId>) -> HistoryPage {
        HistoryPage {
            size,
            instants: BTreeMap::new(),
            triggers: BTreeMap::new(),
            more: false,
            cursor,
            last_archived,
            found: BTreeMap::new(),
            from_chain: Vec::new(),
            archived_through: Some(u64::MAX),
            is_broken: false,
        }
    }

    /// Reads one instant more than the page has.
    fn read_instants(&mut self, ledger: &Ledger, id: ScheduleId) {
        let before = self.cursor.instant.clone();
        let end = before.clone().map_or_else(|| first_trigger(id), |occurrence| (id, occurrence));
        let rows = ledger.history().range((Bound::Included(first_instant(id)), Bound::Excluded(end)));
        let mut beyond = 0;
        for ((_, occurrence), row) in rows.rev() {
            if self.instants.len() > self.size {
                beyond += 1;
                if beyond > ROWS_BEYOND {
                    self.more = true;
                    break;
                }
            }
            let outcome = match row {
                InstantOutcome::Opened(run) => Outcome::Entry(views::opened(occurrence, *run, ledger)),
                InstantOutcome::Explained { instants, reason, index } => {
                    Outcome::Entry(views::explained(occurrence, instants, (*reason, *index)))
                }
                InstantOutcome::ArchivedTrigger { run, .. } => Outcome::Run(*run),
                InstantOutcome::Archived { instants, .. } => {
                    let names = names_before(occurrence, instants, before.as_ref(), self.size + 1);
                    self.instants.extend(names.into_iter().map(|name| (name, Outcome::Archived)));
                    continue;
                }
            };
            self.instants.insert(occurrence.clone(), outcome);
        }
        while self.instants.len() > self.size + 1 {
            self.instants.pop_first();
            self.more = true;
        }
    }

    /// Reads one trigger more than the page has.
    fn read_triggers(&mut self, ledger: &Ledger, id: ScheduleId) {
        let end = first_instant(id.next());
        let rows = ledger.history().range((Bound::Included(first_trigger(id)), Bound::Excluded(end)));
        let mut triggers: BTreeMap<TriggerKey, (&OccurrenceName, &InstantOutcome)> = BTreeMap::new();
        for ((_, occurrence), row) in rows {
            let (OccurrenceName::Trigger(request), Some(run)) = (occurrence, row.run()) else { continue };
            if self.cursor.has_returned(run, occurrence) {
                continue;
            }
            if triggers.len() > self.size {
                self.more = true;
                // Most rows are below the page. Under the lock, nothing is copied for them.
                let lowest = triggers.first_key_value();
                if lowest.is_some_and(|((index, lowest), _)| (run.index, request) < (*index, lowest)) {
                    continue;
                }
                triggers.pop_first();
            }
            triggers.insert((run.index, request.clone()), (occurrence, row));
        }
        self.triggers.extend(triggers.into_iter().filter_map(|(key, (occurrence, row))| {
            let outcome = match row {
                InstantOutcome::Opened(run) => Outcome::Entry(views::opened(occurrence, *run, ledger)),
                row => Outcome::Run(row.run()?),
            };
            Some((key, outcome))
        }));
    }

    /// Returns the next step.
    fn step(&mut self) -> Step {
        let instant = loop {
            let Some((occurrence, outcome)) = self.instants.last_key_value() else { break None };
            break match (outcome, self.found.get(occurrence)) {
                (Outcome::Entry(entry), _) => Some(entry.index),
                (Outcome::Run(run), _) | (Outcome::Archived, Some(run)) => Some(run.index),
                (Outcome::Archived, None) if self.archived_through.is_some() => return Step::ReadArchive,
                (Outcome::Archived, None) if self.is_broken => return Step::Instant,
                (Outcome::Archived, None) => {
                    // The archive does not have the run any more.
                    self.cursor.instant = self.instants.pop_last().map(|(occurrence, _)| occurrence);
                    continue;
                }
            };
        };
        let trigger = self.triggers.last_key_value().map(|((index, _), _)| *index);
        // A run that is left in the chain may be a later trigger if it may have opened later.
        if self.archived_through.is_some_and(|through| instant.max(trigger).is_none_or(|latest| latest < through)) {
            return Step::ReadArchive;
        }
        match (instant, trigger) {
            (None, None) => Step::End,
            (Some(instant), trigger) if trigger.is_none_or(|trigger| instant >= trigger) => Step::Instant,
            _ => Step::Trigger,
        }
    }

    /// Adds the next archived run. `None`: the chain has ended.
    fn add(&mut self, run: Option<ArchivedRun>) {
        self.archived_through = run.as_ref().map(|run| run.archived_index);
        let Some(ArchivedRun { id, occurrence, .. }) = run else { return };
        self.from_chain.push((id, occurrence.clone()));
        if self.cursor.has_returned(id, &occurrence) {
            return;
        }
        match occurrence {
            // The state still has the names of triggers that were archived lately.
            OccurrenceName::Trigger(request) => {
                self.triggers.entry((id.index, request)).or_insert(Outcome::Run(id));
            }
            OccurrenceName::Civil { .. } | OccurrenceName::Instant(_) => {
                self.found.insert(occurrence, id);
            }
        }
    }

    /// Takes the entry of this step.
    fn take(&mut self, step: Step) -> Option<(OccurrenceName, Outcome)> {
        match step {
            Step::Instant => {
                let (occurrence, outcome) = self.instants.pop_last()?;
                self.cursor.instant = Some(occurrence.clone());
                let outcome = match (outcome, self.found.remove(&occurrence)) {
                    (Outcome::Archived, Some(run)) => Outcome::Run(run),
                    (outcome, _) => outcome,
                };
                Some((occurrence, outcome))
            }
            Step::Trigger => {
                let (key, outcome) = self.triggers.pop_last()?;
                let occurrence = OccurrenceName::Trigger(key.1.clone());
                self.cursor.trigger = Some(key);
                Some((occurrence, outcome))
            }
            Step::ReadArchive | Step::End => None,
        }
    }

    /// Returns where the page ended. `next`: the next run of the chain.
    fn end(self, next: Option<RunId>) -> HistoryCursor {
        let left = self.from_chain.iter().find(|(run, occurrence)| !self.cursor.has_returned(*run, occurrence));
        let first_left = left.map(|(run, _)| *run).or(next);
        HistoryCursor { chain: self.last_archived.map(|last| (last, first_left)), ..self.cursor }
    }

    /// Returns the entries of the page, after those of `begun`. Also returns where the page ended if there is more.
    pub async fn complete(
        mut self,
        admin: &Admin,
        begun: Option<HistoryEntry>,
    ) -> ApiResult<(Vec<HistoryEntry>, Option<HistoryCursor>)> {
        let mut entries: Vec<HistoryEntry> = begun.into_iter().collect();
        let mut chain = ArchiveChain::new(admin, self.last_archived).skipping(self.cursor.chain);
        loop {
            if entries.len() >= self.size && !(self.instants.is_empty() && self.triggers.is_empty()) {
                return Ok((entries, Some(self.end(chain.position()))));
            }
            match self.step() {
                Step::ReadArchive => {
                    self.add(chain.next().await?);
                    self.is_broken = chain.broken.is_some();
                }
                Step::End => {
                    let more = self.more;
                    return Ok((entries, more.then(|| self.end(chain.position()))));
                }
                step => match self.take(step) {
                    Some((_, Outcome::Entry(entry))) => entries.push(entry),
                    Some((occurrence, Outcome::Run(run))) => match unless_lost(admin.part_of(run, None).await)? {
                        Ok(part) => entries.extend(part.map(|(_, part)| views::opened(&occurrence, run, &part))),
                        Err(_) => entries.push(views::opened_and_lost(&occurrence, Some(run))),
                    },
                    Some((occurrence, Outcome::Archived)) => entries.push(views::opened_and_lost(&occurrence, None)),
                    None => {}
                },
            }
        }
    }
}

/// Returns the last names of a range before `before`, at most so many.
fn names_before(
    first: &OccurrenceName,
    range: &InstantRange,
    before: Option<&OccurrenceName>,
    most: usize,
) -> Vec<OccurrenceName> {
    let name =
        |range: &InstantRange, first: &OccurrenceName, at: u32| range.part(first, at, at + 1).map(|(name, _)| name);
    let is_before = |at| before.is_none_or(|before| name(range, first, at).is_some_and(|name| name < *before));
    let (mut end, mut above) = (0, range.count());
    while end < above {
        let middle = end + (above - end) / 2;
        if is_before(middle) {
            end = middle + 1;
        } else {
            above = middle;
        }
    }
    let begin = end.saturating_sub(u32::try_from(most).unwrap_or(u32::MAX));
    let Some((first, range)) = range.part(first, begin, end) else { return Vec::new() };
    (0..range.count()).filter_map(|at| name(&range, &first, at)).collect()
}

#[cfg(test)]
mod tests;
