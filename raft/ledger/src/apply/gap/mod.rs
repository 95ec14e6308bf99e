//! `min_gap`: the least time between two emails of a schedule to one recipient (P17).
//!
//! The time is measured between the nominal instants of runs, so a fail-over, a slow relay or a late run does not
//! change it. A recipient counts in another run if it is sent, assumed or in doubt there, or was sent again while in
//! doubt. The check runs when a run opens and again at each claim, because an earlier run may send in between. A
//! recipient that is claimed in another run waits, since that email may still turn out not to be sent; if it has opted
//! out, it is suppressed. Requeue and resend skip recipients that `min_gap` would suppress; their state does not change.
//!
//! Recipients are compared by address key, because their numbers change when the audience is edited. A recipient is
//! *mailed nearby* if it has an email of another run within the gap, or may have one, and *claimed nearby* if it is
//! claimed in such a run.

mod backfill;
mod search;

use std::collections::{BTreeMap, BTreeSet};

pub use self::backfill::BackfillBatch;
pub use self::search::GapLookups;
use self::search::GapQuery;
use super::Context;
use crate::index::recipient_mapping::keys_of;
use crate::model::{
    Bitmap, CHUNK, ChunkKey, CommandRefusal, Hash, InstantOutcome, Ledger, OccurrenceName, PageId, RecipientState, Run,
    RunEventKind, RunId, ScheduleId, Time, remove_from_all, run_events, wave_after,
};

/// Slots of one run in a chunk whose recipients have an email of another run within the gap, or are claimed in one.
struct NearbySlots {
    run: RunId,
    mailed: Bitmap,
    claimed: Bitmap,
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
            for NearbySlots { run, mailed, .. } in self.find_nearby(key, &all) {
                self.suppress_pending(context, key, run, (mailed, RunEventKind::SuppressedByGap));
            }
        }
    }

    /// Holds back pending recipients that `min_gap` does not let claim now, and returns them: mailed nearby, so that
    /// they are suppressed, or claimed nearby, so that they wait. Of several runs to recipients that have opted out, each
    /// would wait for a wave of its own; so these are suppressed.
    pub(super) fn hold_back_inside_gap(&mut self, context: &mut Context, key: ChunkKey, slots: &Bitmap) -> Bitmap {
        let (mut held_back, mut waiting) = (Bitmap::new(), Bitmap::new());
        for NearbySlots { run, mailed, claimed } in self.find_nearby(key, slots) {
            held_back.add(&mailed);
            held_back.add(&claimed);
            let opted_out = self.opted_out_slots(run, key.number, &claimed);
            waiting.add(&claimed.and_not(&opted_out));
            self.suppress_pending(context, key, run, (mailed, RunEventKind::SuppressedByGap));
            self.suppress_pending(context, key, run, (opted_out, RunEventKind::SuppressedByOptOut));
        }
        if !waiting.is_empty()
            && let Some(chunk) = self.chunks.edit(&key)
        {
            // Removes them from all waves, also the present one, and adds them to the next one.
            remove_from_all(&mut chunk.waves, &waiting);
            chunk.waves.entry(wave_after(context.now)).or_default().add(&waiting);
        }
        held_back
    }

    /// Returns those of these slots of a run whose recipients have opted out or were erased.
    fn opted_out_slots(&self, id: RunId, chunk: u32, slots: &Bitmap) -> Bitmap {
        let Some((_, page, position)) = self.page_of(id).filter(|_| !slots.is_empty() && !self.opted_out.is_empty())
        else {
            return Bitmap::new();
        };
        let run = &page.runs[position];
        let keys = self.blob(&run.audience).map(keys_of).unwrap_or_default();
        let has_opted_out = |key: &String| self.opt_out_of(&(page.tenant.to_string(), key.clone())).is_some();
        let numbers = numbers_of(run, chunk, slots);
        let found = numbers
            .iter()
            .filter(|number| keys.get(usize::from(*number)).is_some_and(|key| key.is_empty() || has_opted_out(key)));
        slots_of(run, chunk, found.collect())
    }

    /// Checks that one more run with this due time would send to at least one recipient (P17). A recipient that is
    /// claimed in another run counts as one, because that claim may end without a handoff. `list`: hash and length of a
    /// stored list, if the run goes to other recipients than those of the schedule.
    ///
    /// # Errors
    /// Fails with the run that sent last, and the instant at which the first recipient may get another email.
    pub fn check_gap_leaves_recipient(
        &self,
        id: ScheduleId,
        due: Time,
        list: Option<(Hash, u32)>,
    ) -> Result<(), CommandRefusal> {
        let Some((query, all)) = self.query(id, due, list) else { return Ok(()) };
        let nearby = self.nearby_recipients(&mut GapLookups::default(), &query, &all);
        match nearby.last_mailed.filter(|_| nearby.mailed == all) {
            Some((run, last)) => Err(CommandRefusal::InsideGap { run, until: last.plus_ms(query.gap_ms) }),
            None => Ok(()),
        }
    }

    /// Returns the query for one more run of a schedule, and its recipients; `None` if there is no `min_gap`.
    fn query(&self, id: ScheduleId, due: Time, list: Option<(Hash, u32)>) -> Option<(GapQuery, Bitmap)> {
        let schedule = self.schedules.get(&id).filter(|schedule| schedule.settings.policies.min_gap_ms > 0)?;
        let (audience, recipients) = list.unwrap_or((schedule.audience, schedule.recipients));
        let gap_ms = schedule.settings.policies.min_gap_ms;
        let query = GapQuery { schedule: id, run: None, due, gap_ms, audience, recipients, through: u64::MAX };
        Some((query, Bitmap::range(0, recipients)))
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
        let kept = if self.archived_times(query.schedule).any_within_gap(&query) {
            recipients
        } else {
            self.nearby_recipients(lookups, &query, &recipients).mailed
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
        let nearby = self.nearby_recipients(&mut GapLookups::default(), &GapQuery { through, ..query }, &recipients);
        match nearby.last_mailed {
            Some((other, _)) => chunk.suppressed_by_gap.contains(slot).then_some(other),
            None => nearby.claimed_in.filter(|_| chunk.waves.values().any(|wave| wave.contains(slot))),
        }
    }

    /// Returns the log indices at which other runs opened that are within the gap of this run, or are unfinished.
    pub(super) fn openings_nearby(&self, id: RunId) -> BTreeSet<u64> {
        let Some(run) = self.run(id) else { return BTreeSet::new() };
        let nearby = self.nearby_runs(&GapQuery::of(id, run)).chain(self.all_unfinished(run.schedule));
        nearby.map(|(other, _)| other.index).collect()
    }

    /// Returns the last run of a schedule that sent an email or may have sent one, with its due time.
    pub fn last_mailed(&self, id: ScheduleId) -> Option<(RunId, Time)> {
        self.derived.mailed.last(id)
    }

    /// Returns the due time of the schedule's last archived run that was not triggered.
    pub fn last_archived(&self, id: ScheduleId) -> Option<Time> {
        let instants = self.history.range(..(id, OccurrenceName::Trigger(String::new()))).rev();
        let mut rows = instants.take_while(|((schedule, _), _)| *schedule == id);
        rows.find_map(|((_, first), row)| match (row, row.last(first)) {
            (InstantOutcome::Archived { ahead_max_ms, .. }, OccurrenceName::Civil { civil_ms, .. }) => {
                Some(Time(civil_ms).plus_ms(*ahead_max_ms))
            }
            (InstantOutcome::Archived { .. }, OccurrenceName::Instant(instant)) => Some(instant),
            _ => None,
        })
    }

    /// Number of recipients of a run that were suppressed by the gap.
    pub fn suppressed_by_gap_of(&self, id: RunId) -> u32 {
        let Some((page, whole, position)) = self.page_of(id) else { return 0 };
        let run = &whole.runs[position];
        let chunks = run.slots().chunks().filter_map(|number| {
            let chunk = self.chunks.get(&page.chunk(number))?;
            Some(chunk.suppressed_by_gap.and(&run.slots_in(number)).len())
        });
        chunks.sum()
    }

    fn suppress_pending(
        &mut self,
        context: &mut Context,
        key: ChunkKey,
        run: RunId,
        (slots, what): (Bitmap, RunEventKind),
    ) {
        if slots.is_empty() {
            return;
        }
        if what == RunEventKind::SuppressedByGap
            && let Some(chunk) = self.chunks.edit(&key)
        {
            chunk.suppressed_by_gap.add(&slots);
        }
        self.transition(context, key, &slots, RecipientState::Pending, RecipientState::Suppressed);
        self.record_run_event(context, run, what, BTreeMap::from([(key.number, slots)]));
    }

    /// Like [`Ledger::nearby_slots`], and keeps the mappings of the search.
    fn find_nearby(&mut self, key: ChunkKey, slots: &Bitmap) -> Vec<NearbySlots> {
        let mut lookups = GapLookups::default();
        let nearby = self.nearby_slots(&mut lookups, key, slots);
        self.keep_mappings(lookups);
        nearby
    }

    /// Returns, run by run, which of these slots were mailed nearby or are claimed nearby.
    fn nearby_slots(&self, lookups: &mut GapLookups, key: ChunkKey, slots: &Bitmap) -> Vec<NearbySlots> {
        let mut found = Vec::new();
        let (Some(page), Some(lowest), Some(highest)) = (self.pages.get(&key.page), slots.min(), slots.max()) else {
            return found;
        };
        let whole = |slot: u16| key.number * CHUNK + u32::from(slot);
        let start = page.run_of_slot(whole(lowest)).unwrap_or(0);
        let touched = page.runs.iter().skip(start).take_while(|run| run.first <= whole(highest));
        for run in touched.filter(|run| run.policies.min_gap_ms > 0) {
            let id = key.page.run_id(run);
            let recipients = numbers_of(run, key.number, slots);
            let nearby = self.nearby_recipients(lookups, &GapQuery::of(id, run), &recipients);
            let mailed = slots_of(run, key.number, nearby.mailed);
            let claimed = slots_of(run, key.number, nearby.claimed);
            found.push(NearbySlots { run: id, mailed, claimed });
        }
        found
    }
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
