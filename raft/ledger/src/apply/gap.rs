//! `min_gap`: the least time between two emails of a schedule to one recipient (P17).
//!
//! The time is measured between the nominal instants of runs, so a fail-over, a slow relay or a late run does not
//! change it. A recipient counts in another run if it is sent, assumed or in doubt there. The check runs when a run
//! opens and again at each claim, because an earlier run may send in between. A recipient that is claimed in another
//! run waits, since that email may still turn out not to be sent. Requeue and resend skip recipients that `min_gap`
//! would suppress; their state does not change.
//!
//! Recipients are compared by address key, because their numbers change when the audience is edited.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::gap_neighbours::{ArchivedTimes, CLAIMED, GapLookups, GapQuery};
use crate::model::{
    Bitmap, CHUNK, ChunkKey, CommandRefusal, InstantOutcome, Ledger, Nominal, PageId, RecipientState, Run,
    RunEventKind, RunId, RunState, ScheduleId, Time, remove_from_all, run_events, wave_after,
};

/// The instants of one backfill, oldest first, with the recipients that they will send to (P17).
pub struct BackfillBatch {
    /// Cost and mappings of the lookups.
    pub lookups: GapLookups,
    schedule: ScheduleId,
    /// Recipients that a run will send to, by its due time: of open runs, and of instants of this batch.
    to_mail: BTreeMap<Time, Bitmap>,
    archived: ArchivedTimes,
}

/// Slots of one run in a chunk that count in another run within the gap, or are claimed in one.
struct Apart {
    run: RunId,
    near: Bitmap,
    waiting: Bitmap,
}

impl Ledger {
    /// Suppresses recipients of a new page that got an email within the gap.
    pub(super) fn suppress_inside_gap(&mut self, context: &mut Context, page: PageId) {
        let has_gap = |run: &Run| run.policies.min_gap_ms > 0;
        let Some(slots) = self.pages.get(&page).filter(|page| page.runs.iter().any(has_gap)).map(|page| page.slots)
        else {
            return;
        };
        for number in 0..slots.div_ceil(CHUNK) {
            let (key, all) = (page.chunk(number), Bitmap::range(0, slots - number * CHUNK));
            let apart = self.find_apart(key, &all);
            self.suppress_pending(context, key, apart);
        }
    }

    /// Returns pending recipients that cannot be claimed now: suppressed, or waiting for a claim of another run.
    pub(super) fn keep_apart(&mut self, context: &mut Context, key: ChunkKey, slots: &Bitmap) -> Bitmap {
        let apart = self.find_apart(key, slots);
        let (mut kept, mut waiting) = (Bitmap::new(), Bitmap::new());
        for of_run in &apart {
            kept.add(&of_run.near);
            waiting.add(&of_run.waiting);
        }
        self.suppress_pending(context, key, apart);
        if !waiting.is_empty()
            && let Some(chunk) = self.chunks.edit(&key)
        {
            // Removes them from all waves, also the present one, and adds them to the next one.
            remove_from_all(&mut chunk.waves, &waiting);
            chunk.waves.entry(wave_after(context.now)).or_default().add(&waiting);
        }
        kept.add(&waiting);
        kept
    }

    /// Checks that one more run with this due time would send to at least one recipient (P17). A recipient that is
    /// claimed in another run counts as one, because that claim may end without a handoff.
    ///
    /// # Errors
    /// Fails with the run that sent last, and the instant at which the first recipient may get another email.
    pub fn check_gap_leaves_recipient(&self, id: ScheduleId, due: Time) -> Result<(), CommandRefusal> {
        let Some((query, all)) = self.query(id, due) else { return Ok(()) };
        let neighbours = self.neighbours(&mut GapLookups::default(), &query, &all);
        match neighbours.mailed.filter(|_| neighbours.counts == all) {
            Some((run, last)) => Err(CommandRefusal::InsideGap { run, until: last.plus_ms(query.gap_ms) }),
            None => Ok(()),
        }
    }

    /// Begins a backfill of a schedule with the unfinished runs that have recipients to send to (P17). So a second
    /// backfill of a range opens no instant next to a run of the first.
    pub fn backfill_batch(&self, id: ScheduleId) -> BackfillBatch {
        let mut batch = BackfillBatch {
            lookups: GapLookups::default(),
            schedule: id,
            to_mail: BTreeMap::new(),
            archived: self.archived_times(id),
        };
        let Some((query, all)) = self.query(id, Time(0)) else { return batch };
        for (other, run) in self.all_unfinished(id) {
            let goes_on =
                matches!(run.state, RunState::Open | RunState::Paused { .. }) && run.finish_by > self.head.now;
            let states: &[RecipientState] =
                if goes_on { &[RecipientState::Pending, RecipientState::Claimed] } else { &CLAIMED };
            batch.lookups.runs += 1;
            let mapping = self.mapping(&mut batch.lookups, query.audience, run.audience);
            let to_mail = self.recipients_in(other, run, (states, &all, mapping));
            batch.to_mail.entry(run.due).or_default().add(&to_mail);
        }
        batch
    }

    /// True if an instant of a backfill may open (P17). It must send to at least one recipient: one without an email of
    /// a run, an open run or an instant of the batch within the gap. An instant near an archived run does not open.
    ///
    /// `apply` and the dry run ask this for each instant of the batch, in order.
    pub fn may_backfill(&self, batch: &mut BackfillBatch, due: Time) -> bool {
        let Some((query, mut left)) = self.query(batch.schedule, due) else { return true };
        if batch.archived.are_beside(&query) {
            return false;
        }
        for (_, mailed) in batch.to_mail.range(query.instants()).rev() {
            left.remove(mailed);
            if left.is_empty() {
                return false;
            }
        }
        left.remove(&self.neighbours(&mut batch.lookups, &query, &left).counts);
        let opens = !left.is_empty();
        if opens {
            batch.to_mail.entry(due).or_default().add(&left);
        }
        opens
    }

    /// Returns the query for one more run of a schedule, and its recipients; `None` if there is no `min_gap`.
    fn query(&self, id: ScheduleId, due: Time) -> Option<(GapQuery, Bitmap)> {
        let schedule = self.schedules.get(&id).filter(|schedule| schedule.settings.policies.min_gap_ms > 0)?;
        let (gap_ms, audience) = (schedule.settings.policies.min_gap_ms, schedule.audience);
        let query = GapQuery { schedule: id, run: None, due, gap_ms, audience, through: u64::MAX };
        Some((query, Bitmap::range(0, schedule.recipients)))
    }

    /// Returns recipients of a run that would be suppressed if they were sent again (P17): those that got an email of
    /// another run within the gap, or may have got one. If such a run is in the archive, these are all recipients.
    pub fn inside_gap(
        &self,
        lookups: &mut GapLookups,
        id: RunId,
        numbers: impl IntoIterator<Item = u32>,
    ) -> BTreeSet<u32> {
        let Some(run) = self.run(id).filter(|run| run.policies.min_gap_ms > 0) else { return BTreeSet::new() };
        let recipients: Bitmap = numbers.into_iter().filter_map(|number| u16::try_from(number).ok()).collect();
        let query = GapQuery::of(id, run);
        let kept = if self.archived_times(query.schedule).are_beside(&query) {
            recipients
        } else {
            self.neighbours(lookups, &query, &recipients).counts
        };
        kept.iter().map(u32::from).collect()
    }

    /// Returns the run because of which `min_gap` keeps a recipient from its email (P17): the recipient got an email of
    /// that run, may have got one, or is claimed in it.
    pub(crate) fn kept_apart_by(&self, run: RunId, number: u32) -> Option<RunId> {
        let (key, slot) = self.slot_of(run, number)?;
        let chunk = self.chunks.get(&key)?;
        let query = GapQuery::of(run, self.run(run)?);
        // Runs that opened after the suppression are not its reason.
        let run_events = self.run_events.range(run_events::keys_of(run));
        let suppressed = run_events.filter(|((_, _, chunk), run_events)| {
            run_events
                .iter()
                .any(|event| event.what == RunEventKind::SuppressedByGap && event.concerns(*chunk, (key.number, slot)))
        });
        let through = suppressed.map(|((_, index, _), _)| *index).next_back().unwrap_or(u64::MAX);
        let recipients: Bitmap = u16::try_from(number).ok().into_iter().collect();
        let neighbours = self.neighbours(&mut GapLookups::default(), &GapQuery { through, ..query }, &recipients);
        match neighbours.mailed {
            Some((other, _)) => chunk.suppressed_by_gap.contains(slot).then_some(other),
            None => neighbours.claimed_in.filter(|_| chunk.waves.values().any(|wave| wave.contains(slot))),
        }
    }

    /// Returns the last run of a schedule that sent an email or may have sent one, with its due time.
    pub fn last_mailed(&self, id: ScheduleId) -> Option<(RunId, Time)> {
        last_of(&self.derived.mailed, id)
    }

    /// Returns the due time of the schedule's last archived run that was not triggered.
    pub fn last_archived(&self, id: ScheduleId) -> Option<Time> {
        let instants = self.history.range(..(id, Nominal::Trigger(String::new()))).rev();
        let mut rows = instants.take_while(|((schedule, _), _)| *schedule == id);
        rows.find_map(|((_, first), row)| match (row, row.last(first)) {
            (InstantOutcome::Archived { ahead_max_ms, .. }, Nominal::Civil { civil_ms, .. }) => {
                Some(Time(civil_ms).plus_ms(*ahead_max_ms))
            }
            (InstantOutcome::Archived { .. }, Nominal::Instant(instant)) => Some(instant),
            _ => None,
        })
    }

    /// Number of recipients of a run that were suppressed by the gap.
    pub fn suppressed_by_gap_of(&self, id: RunId) -> u32 {
        let Some((page, whole, position)) = self.page_of(id) else { return 0 };
        let run = &whole.runs[position];
        let chunks = run.slots().chunks().filter_map(|number| {
            let chunk = self.chunks.get(&page.chunk(number))?;
            Some(chunk.suppressed_by_gap.and(&run.slots().in_chunk(number)).len())
        });
        chunks.sum()
    }

    fn suppress_pending(&mut self, context: &mut Context, key: ChunkKey, apart: Vec<Apart>) {
        for Apart { run, near, .. } in apart.into_iter().filter(|apart| !apart.near.is_empty()) {
            if let Some(chunk) = self.chunks.edit(&key) {
                chunk.suppressed_by_gap.add(&near);
            }
            self.transition(context, key, &near, RecipientState::Pending, RecipientState::Suppressed);
            self.record_run_event(context, run, RunEventKind::SuppressedByGap, BTreeMap::from([(key.number, near)]));
        }
    }

    fn find_apart(&mut self, key: ChunkKey, slots: &Bitmap) -> Vec<Apart> {
        let mut lookups = GapLookups::default();
        let apart = self.apart(&mut lookups, key, slots);
        self.keep_mappings(lookups);
        apart
    }

    /// Returns, run by run, which of these slots count in another run within the gap, or are claimed in one.
    fn apart(&self, lookups: &mut GapLookups, key: ChunkKey, slots: &Bitmap) -> Vec<Apart> {
        let mut apart = Vec::new();
        let (Some(page), Some(lowest), Some(highest)) = (self.pages.get(&key.page), slots.min(), slots.max()) else {
            return apart;
        };
        let whole = |slot: u16| key.number * CHUNK + u32::from(slot);
        let start = page.run_of_slot(whole(lowest)).unwrap_or(0);
        let touched = page.runs.iter().skip(start).take_while(|run| run.first <= whole(highest));
        for run in touched.filter(|run| run.policies.min_gap_ms > 0) {
            let id = key.page.run_id(run);
            let recipients = numbers_of(run, key.number, slots);
            let neighbours = self.neighbours(lookups, &GapQuery::of(id, run), &recipients);
            let (near, waiting) =
                (slots_of(run, key.number, neighbours.counts), slots_of(run, key.number, neighbours.claimed));
            apart.push(Apart { run: id, near, waiting });
        }
        apart
    }
}

fn last_of(index: &BTreeSet<(ScheduleId, Time, RunId)>, id: ScheduleId) -> Option<(RunId, Time)> {
    let mut last = index.range(..(id.next(), Time(i64::MIN), RunId { index: 0, place: 0 }));
    last.next_back().filter(|(of, ..)| *of == id).map(|(_, due, run)| (*run, *due))
}

/// Returns the recipient numbers of those slots of a chunk that belong to a run. A run with a gap has all its
/// recipients in its first chunk.
fn numbers_of(run: &Run, chunk: u32, slots: &Bitmap) -> Bitmap {
    if (run.first, chunk) == (0, 0) {
        return slots.and(&Bitmap::range(0, run.count));
    }
    let numbers = slots.iter().filter_map(|slot| (chunk * CHUNK + u32::from(slot)).checked_sub(run.first));
    numbers.filter(|number| *number < run.count).filter_map(|number| u16::try_from(number).ok()).collect()
}

/// Returns the slots of a run's recipients in a chunk, by their numbers.
fn slots_of(run: &Run, chunk: u32, numbers: Bitmap) -> Bitmap {
    if (run.first, chunk) == (0, 0) {
        return numbers;
    }
    let slots = numbers.iter().filter_map(|number| (run.first + u32::from(number)).checked_sub(chunk * CHUNK));
    slots.filter_map(|slot| u16::try_from(slot).ok()).collect()
}
