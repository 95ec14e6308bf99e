//! The least distance between two mails of a schedule to one recipient (P17).
//!
//! What counts is the distance of the runs' nominal instants, not when anything was sent: so a fail-over, a slow
//! relay or a late run changes nothing. A recipient counts in another run when it is sent, assumed or in doubt
//! there. It is looked at when a run opens, and again when somebody is claimed, for a run that opened before may
//! send meanwhile. Who is claimed elsewhere waits: that may turn out not to have been sent.
//!
//! Recipients are compared by their address key, for their numbers change with the audience.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::moves::Place;
use crate::bitmap::{Bitmap, CHUNK};
use crate::content::Recipients;
use crate::ids::{Hash, RunId, ScheduleId, Time};
use crate::refusal::Refusal;
use crate::rulings::Ruled;
use crate::state::{Ledger, Run, Standing};

/// What other runs say of a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// It got a mail, or may have: last in this run, at this nominal instant.
    Counts(RunId, Time),
    /// It may be getting one, of this run.
    Claimed(RunId),
}

/// A run as the gap sees it, opened or not.
#[derive(Clone, Copy)]
struct Asking {
    /// Its schedule.
    schedule: ScheduleId,
    /// Itself, where it has opened.
    run: Option<RunId>,
    due: Time,
    gap_ms: i64,
    audience: Hash,
    count: u32,
    /// Log index of the last entry whose runs it sees.
    through: u64,
}

impl Asking {
    fn of(id: RunId, run: &Run) -> Asking {
        Asking {
            schedule: run.schedule,
            run: Some(id),
            due: run.due,
            gap_ms: run.policies.min_gap_ms,
            audience: run.audience,
            count: run.count,
            through: u64::MAX,
        }
    }
}

impl Ledger {
    /// Who of a page that has just opened is too near to what was sent: suppressed from the start.
    pub(super) fn suppress_too_near(&mut self, context: &mut Context, page: RunId) {
        let has_gap = |run: &Run| run.policies.min_gap_ms > 0;
        let Some(slots) = self.pages.get(&page).filter(|page| page.runs.iter().any(has_gap)).map(|page| page.slots)
        else {
            return;
        };
        for chunk in 0..slots.div_ceil(CHUNK) {
            let all = Bitmap::range(0, slots - chunk * CHUNK);
            let (near, _) = self.apart((page, chunk), &all);
            self.suppress_pending(context, (page, chunk), &near);
        }
    }

    /// Who of these, all pending, cannot be claimed now: suppressed, or waiting for another run's row.
    pub(super) fn keep_apart(&mut self, context: &mut Context, place: Place, slots: &Bitmap) -> Bitmap {
        let (mut near, waiting) = self.apart(place, slots);
        self.suppress_pending(context, place, &near);
        if !waiting.is_empty()
            && let Some(chunk) = self.chunks.edit(&place)
        {
            // From the wave that has come in to the next one.
            chunk.waves.retain(|_, wave| {
                wave.remove(&waiting);
                !wave.is_empty()
            });
        }
        for slot in waiting.iter() {
            self.wait(place, slot, context.now);
        }
        near.add(&waiting);
        near
    }

    /// May anybody get a mail of one more run that is due then (P17)? Claimed elsewhere, it may.
    ///
    /// # Errors
    /// With the run that mailed last, and the instant at which the first of them may get another one.
    pub fn may_anybody(&self, id: ScheduleId, due: Time) -> Result<(), Refusal> {
        let mut earliest: Option<(Time, RunId)> = None;
        for beside in self.before_it_opens(id, due) {
            let Some(Beside::Counts(run, last)) = beside else { return Ok(()) };
            let gap_ms = self.schedules.get(&id).map_or(0, |schedule| schedule.policies.min_gap_ms);
            let until = (last.plus_ms(gap_ms), run);
            earliest = Some(earliest.map_or(until, |known| known.min(until)));
        }
        earliest.map_or(Ok(()), |(until, run)| Err(Refusal::InsideGap { run, until }))
    }

    /// The run that keeps a recipient from its mail, if that is why it gets none (P17): it got one of that, or
    /// may have, or is claimed in it.
    pub(crate) fn kept_apart_by(&self, run: RunId, number: u32) -> Option<RunId> {
        let (page, chunk, slot) = self.place_of(run, number)?;
        let place = chunk;
        let chunk = self.chunks.get(&(page, place))?;
        let asking = Asking::of(run, self.run(run)?);
        // What opened after it was suppressed is not why.
        let rulings = self.rulings.range((run, 0)..=(run, u64::MAX));
        let suppressed = rulings.filter(|(_, rulings)| {
            rulings.iter().any(|ruling| ruling.what == Ruled::TooNear && ruling.concerns(place, slot))
        });
        let through = suppressed.map(|((_, index), _)| *index).next_back().unwrap_or(u64::MAX);
        let beside = self.beside(Asking { through, ..asking });
        match (*beside.get(number as usize)?)? {
            Beside::Counts(other, _) => chunk.too_near.contains(slot).then_some(other),
            Beside::Claimed(other) => chunk.waves.values().any(|wave| wave.contains(slot)).then_some(other),
        }
    }

    /// The last run of a schedule of which somebody got a mail, or may have; of its last 1,024 runs.
    pub fn last_mailed(&self, id: ScheduleId) -> Option<(RunId, Time)> {
        let first = (id, Time(i64::MIN), RunId { index: 0, place: 0 });
        let end = (ScheduleId(id.0.saturating_add(1)), first.1, first.2);
        let runs = self.derived.by_instant.range(first..end).rev().take(LAST_RUNS_MAX);
        runs.map(|(_, due, run)| (*run, *due)).find(|(run, _)| self.run(*run).is_some_and(mailed_anybody))
    }

    /// How many recipients of a run were suppressed by the gap.
    pub fn too_near_of(&self, id: RunId) -> u32 {
        let Some((page, whole, place)) = self.page_of(id) else { return 0 };
        let run = &whole.runs[place];
        let chunks = Self::chunks_of_run(run.first, run.count).filter_map(|number| {
            let chunk = self.chunks.get(&(page, number))?;
            Some(chunk.too_near.and(&Self::slots_of_run(run.first, run.count, number)).len())
        });
        chunks.sum()
    }

    /// Pairs of runs that are nearer than the gap of both, with somebody claimed in both: there are none.
    pub(crate) fn claimed_beside(&self) -> Vec<(RunId, RunId)> {
        let is_claimed = |run: &Run| run.policies.min_gap_ms > 0 && run.counts.get(Standing::Claimed) > 0;
        let claimed = |id: RunId, run: &Run| -> BTreeSet<u32> {
            self.mailed(id, run)
                .filter(|(_, standing)| *standing == Standing::Claimed)
                .map(|(number, _)| number)
                .collect()
        };
        let mut found = Vec::new();
        for (id, _, run) in self.runs().filter(|(_, _, run)| is_claimed(run)) {
            let near = |other: &Run| run.due.since_ms(other.due).saturating_abs() < other.policies.min_gap_ms;
            let own = claimed(id, run);
            for (other, beside) in self.neighbours(Asking::of(id, run)).filter(|(_, beside)| is_claimed(beside)) {
                let numbers = self.renumbered(beside.audience, run.audience);
                let known = |number: u32| numbers.get(number as usize).copied().flatten();
                let both = claimed(other, beside).into_iter().filter_map(known).any(|number| own.contains(&number));
                if id < other && near(beside) && both {
                    found.push((id, other));
                }
            }
        }
        found
    }

    fn suppress_pending(&mut self, context: &mut Context, place: Place, near: &Bitmap) {
        if near.is_empty() {
            return;
        }
        if let Some(chunk) = self.chunks.edit(&place) {
            chunk.too_near.add(near);
        }
        self.shift(context, place, near, Standing::Pending, Standing::Suppressed);
        let mut of_runs: BTreeMap<RunId, Bitmap> = BTreeMap::new();
        for slot in near.iter() {
            if let Some((run, _)) = self.recipient_at(place, slot) {
                of_runs.entry(run).or_default().insert(slot);
            }
        }
        for (run, slots) in of_runs {
            self.rule(context, run, Ruled::TooNear, BTreeMap::from([(place.1, slots)]));
        }
    }

    /// Of these slots: who counts in a run too near, and who is claimed in one.
    fn apart(&self, place: Place, slots: &Bitmap) -> (Bitmap, Bitmap) {
        let (mut near, mut waiting) = (Bitmap::new(), Bitmap::new());
        let (Some(page), Some(lowest), Some(highest)) = (self.pages.get(&place.0), slots.min(), slots.max()) else {
            return (near, waiting);
        };
        let whole = |slot: u16| place.1 * CHUNK + u32::from(slot);
        let start = page.run_of_slot(whole(lowest)).unwrap_or(0);
        let touched = page.runs.iter().enumerate().skip(start).take_while(|(_, run)| run.first <= whole(highest));
        for (number, run) in touched.filter(|(_, run)| run.policies.min_gap_ms > 0) {
            let id = RunId { index: place.0.index, place: place.0.place + number as u32 };
            let beside = self.beside(Asking::of(id, run));
            if beside.is_empty() {
                continue;
            }
            for slot in slots.and(&Self::slots_of_run(run.first, run.count, place.1)).iter() {
                match beside.get((whole(slot) - run.first) as usize) {
                    Some(Some(Beside::Counts(..))) => _ = near.insert(slot),
                    Some(Some(Beside::Claimed(_))) => _ = waiting.insert(slot),
                    _ => {}
                }
            }
        }
        (near, waiting)
    }

    /// What other runs would say of a schedule's recipients if one more were due then; nothing where none does.
    fn before_it_opens(&self, id: ScheduleId, due: Time) -> Vec<Option<Beside>> {
        let Some(schedule) = self.schedules.get(&id) else { return Vec::new() };
        let (gap_ms, audience, count) = (schedule.policies.min_gap_ms, schedule.audience, schedule.recipients);
        self.beside(Asking { schedule: id, run: None, due, gap_ms, audience, count, through: u64::MAX })
    }

    /// What other runs say of each recipient, by number; empty where none does. The latest that counts, or else
    /// that it is claimed in one.
    ///
    /// The work is in proportion to the recipients and to the mails within the gap. These are few, however many
    /// runs there were: that is what the gap is for.
    fn beside(&self, asking: Asking) -> Vec<Option<Beside>> {
        let mut beside = Vec::new();
        let mut numbers: BTreeMap<Hash, Vec<Option<u32>>> = BTreeMap::new();
        for (other, run) in self.neighbours(asking) {
            beside.resize(asking.count as usize, None);
            let is_same = run.audience == asking.audience;
            if !is_same && !numbers.contains_key(&run.audience) {
                numbers.insert(run.audience, self.renumbered(run.audience, asking.audience));
            }
            let number = |theirs: u32| match numbers.get(&run.audience) {
                Some(known) if !is_same => known.get(theirs as usize).copied().flatten(),
                _ => Some(theirs),
            };
            for (theirs, standing) in self.mailed(other, run) {
                let Some(known) = number(theirs).and_then(|number| beside.get_mut(number as usize)) else { continue };
                match standing {
                    Standing::Claimed => _ = known.get_or_insert(Beside::Claimed(other)),
                    _ => *known = Some(Beside::Counts(other, run.due)),
                }
            }
        }
        beside
    }

    /// Other runs of its schedule that are less than the gap away, and in which somebody got a mail, may have got
    /// one, or is claimed; in the order of their instants.
    fn neighbours(&self, asking: Asking) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        let lowest = RunId { index: 0, place: 0 };
        let first = (asking.schedule, asking.due.plus_ms(1_i64.saturating_sub(asking.gap_ms)), lowest);
        let end = (asking.schedule, asking.due.plus_ms(asking.gap_ms), lowest);
        let others = self.derived.by_instant.range(first..end.max(first));
        let known = others.filter_map(move |(_, _, other)| Some((*other, self.run(*other)?)));
        let is_seen = move |other: &RunId| asking.run != Some(*other) && other.index <= asking.through;
        known.filter(move |(other, run)| is_seen(other) && mailed_anybody(run))
    }

    /// Recipients of a run that count, or are claimed.
    fn mailed<'l>(&'l self, id: RunId, run: &'l Run) -> impl Iterator<Item = (u32, Standing)> + 'l {
        let page = self.page_of(id).map(|(page, ..)| page);
        let chunks = Self::chunks_of_run(run.first, run.count)
            .filter_map(move |number| Some((number, self.chunks.get(&(page?, number))?)));
        chunks.flat_map(move |(number, chunk)| {
            let own = Self::slots_of_run(run.first, run.count, number);
            NEAR.into_iter().flat_map(move |standing| {
                let slots: Vec<u16> = chunk.set(standing).and(&own).iter().collect();
                slots.into_iter().map(move |slot| (number * CHUNK + u32::from(slot) - run.first, standing))
            })
        })
    }

    /// For each recipient of one audience its number in another one that has the same address.
    fn renumbered(&self, from: Hash, to: Hash) -> Vec<Option<u32>> {
        let list = |hash: &Hash| match self.blob(hash).and_then(Recipients::from_blob) {
            Some(Recipients::Inline(audience)) => audience.recipients,
            // A schedule to a sealed audience has no `min_gap`.
            Some(Recipients::Sealed(_)) | None => Vec::new(),
        };
        let (theirs, own) = (list(&from), list(&to));
        let numbers: BTreeMap<&str, u32> =
            own.iter().zip(0..).map(|(one, number)| (one.key.as_str(), number)).collect();
        theirs.iter().map(|one| numbers.get(one.key.as_str()).copied()).collect()
    }
}

/// Those who got a mail or may have, and those who may be getting one.
const NEAR: [Standing; 4] = [Standing::Sent, Standing::Assumed, Standing::InDoubt, Standing::Claimed];

/// Runs of a schedule that are looked at for the last one that mailed anybody.
const LAST_RUNS_MAX: usize = 1_024;

fn mailed_anybody(run: &Run) -> bool {
    NEAR.into_iter().any(|standing| run.counts.get(standing) > 0)
}
