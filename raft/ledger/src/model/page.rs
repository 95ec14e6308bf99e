//! Pages and chunks: the storage of recipients of runs that opened together.
//!
//! Runs of small audiences that are due together open as one **page** and share its slots. A run of millions has its
//! own page. Code below the page handles only chunks of 65,536 slots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::index::SharedValues;
use crate::model::{Bitmap, CHUNK, Deferrals, RecipientState, Run, RunId, Time, remove_from_all};

/// Runs that opened together and share slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Tenant of its runs.
    pub tenant: Arc<str>,
    /// Pool of relays that sends it, unless a chunk has overrides.
    pub pool: Arc<str>,
    /// Priority of its runs; higher numbers go first within the tenant.
    pub priority: u8,
    /// When its runs were due.
    pub due: Time,
    /// Ledger time at which it opened.
    pub opened_at: Time,
    /// Cluster incarnation in which it opened; it is part of every Message-ID (P21).
    pub cluster_incarnation: u64,
    /// Its runs, in the order in which they opened, which is that of their slots. Runs that were archived are missing.
    pub runs: Vec<Run>,
    /// Number of slots when it opened. The slots of archived runs have no state.
    pub slots: u32,
}

impl Page {
    /// Shares its texts, and the names and policies of its runs, with other pages.
    pub(crate) fn intern(&mut self, shared: &mut SharedValues) {
        [&mut self.tenant, &mut self.pool].into_iter().for_each(|text| shared.texts.intern(text));
        for run in &mut self.runs {
            shared.texts.intern(&mut run.name);
            shared.policies.intern(&mut run.policies);
        }
    }

    /// Returns true if all its runs are late: missed and caught up, or backfilled (P16). A page has either late runs or
    /// others.
    pub fn is_late(&self) -> bool {
        self.runs.first().is_none_or(|run| run.cause.is_late())
    }

    /// Position of a run; `None` if it is not in the page.
    pub fn position_of(&self, run: RunId) -> Option<usize> {
        self.runs.binary_search_by_key(&run.place, |known| known.place).ok()
    }

    /// The slots of its runs in one of its chunks.
    pub(crate) fn slots_of_chunk(&self, chunk: u32) -> Bitmap {
        let mut slots = Bitmap::new();
        for run in &self.runs {
            run.slots().add_to(&mut slots, chunk);
        }
        slots
    }

    /// Position of the run that has a slot of the page; `None` if there is none.
    pub fn run_of_slot(&self, slot: u32) -> Option<usize> {
        let position = self.runs.partition_point(|run| run.first <= slot).checked_sub(1)?;
        (slot < self.runs[position].first + self.runs[position].count).then_some(position)
    }

    /// When its recipients may be claimed first. Messages may open long before they are due.
    pub fn starts_at(&self) -> Time {
        self.due.max(self.opened_at)
    }

    /// True if a recipient of one of its runs is pending or claimed.
    pub fn is_open(&self) -> bool {
        self.runs.iter().any(|run| !run.counts.is_finished())
    }
}

/// The slots of a run in its page: `count` slots, the first of which is `first`.
#[derive(Clone, Copy)]
pub(crate) struct RunSlots {
    pub first: u32,
    pub count: u32,
}

impl RunSlots {
    /// Returns the slots within a chunk of the page; empty if the run has none there.
    pub fn in_chunk(self, chunk: u32) -> Bitmap {
        let mut slots = Bitmap::new();
        self.add_to(&mut slots, chunk);
        slots
    }

    /// Adds the slots within a chunk of the page. A page has up to 512 runs, so no set is made for each.
    pub fn add_to(self, slots: &mut Bitmap, chunk: u32) {
        let base = u64::from(chunk) * u64::from(CHUNK);
        let (first, end) = (u64::from(self.first), u64::from(self.first) + u64::from(self.count));
        let within = |slot: u64| slot.saturating_sub(base).min(u64::from(CHUNK)) as u32;
        slots.add_range(within(first), within(end) - within(first));
    }

    /// Returns the range of chunks that have slots of the run.
    pub fn chunks(self) -> Range<u32> {
        self.first / CHUNK..self.first.saturating_add(self.count).div_ceil(CHUNK)
    }

    /// Returns the numbers of the recipients that are in a chunk.
    pub fn numbers_in(self, chunk: u32) -> Range<u32> {
        let base = u64::from(chunk) * u64::from(CHUNK);
        let number = |slot: u64| slot.saturating_sub(u64::from(self.first)).min(u64::from(self.count)) as u32;
        number(base)..number(base + u64::from(CHUNK))
    }
}

/// 65,536 slots of a page, with the state of each recipient.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// One set for each state. The sets are disjoint and together have all slots (P1).
    pub sets: [Bitmap; 9],
    /// Pending recipients that wait, by the wave in which they become claimable: a number of 30 s since 1970.
    pub waves: BTreeMap<i64, Bitmap>,
    /// Counted attempts, by slot; slots without attempts are left out.
    pub attempts: BTreeMap<u16, u8>,
    /// Recipients that a relay has deferred, until their state is terminal. Expired recipients keep their last answer.
    pub deferrals: Deferrals,
    /// Recipients whose preparation was interrupted by their owner's crash, and that have not passed a gate since
    /// (P12). Each is pending, or in a claim of its own.
    pub crash_suspects: Bitmap,
    /// Suppressed recipients that got an email of another run within `min_gap` (P17).
    pub suppressed_by_gap: Bitmap,
    /// Recipients that were sent again while in doubt. Whatever their state is, they may have the email of the handoff
    /// in doubt, so they count for `min_gap` (P17).
    pub resent: Bitmap,
    /// Recipients that a requeue moved to another pool, by pool and in any state. The sets are disjoint and not empty.
    pub pool_overrides: BTreeMap<String, Bitmap>,
}

impl Chunk {
    /// Splits these slots by pool; `None` is the page's own pool. No part is empty.
    pub fn by_pool(&self, slots: &Bitmap) -> Vec<(Option<&str>, Bitmap)> {
        let mut rest = slots.clone();
        let mut parts = Vec::new();
        for (pool, moved) in &self.pool_overrides {
            parts.push((Some(pool.as_str()), rest.and(moved)));
            rest.remove(moved);
        }
        parts.insert(0, (None, rest));
        parts.retain(|(_, slots)| !slots.is_empty());
        parts
    }

    /// The pool of a slot; `None` if it is the page's own.
    pub fn pool_of(&self, slot: u16) -> Option<&str> {
        self.pool_overrides.iter().find(|(_, slots)| slots.contains(slot)).map(|(pool, _)| pool.as_str())
    }

    /// True if no recipient is pending or claimed.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.set(RecipientState::Pending).is_empty() && self.set(RecipientState::Claimed).is_empty()
    }

    /// Compresses its sets. Called when few further changes are expected.
    pub(crate) fn compress(&mut self) {
        self.sets.iter_mut().for_each(Bitmap::optimize);
    }

    /// Removes all that is known about these slots.
    pub(crate) fn remove(&mut self, slots: &Bitmap) {
        self.sets.iter_mut().for_each(|set| set.remove(slots));
        remove_from_all(&mut self.waves, slots);
        self.attempts.retain(|slot, _| !slots.contains(*slot));
        self.deferrals.remove(slots);
        self.crash_suspects.remove(slots);
        self.suppressed_by_gap.remove(slots);
        self.resent.remove(slots);
        remove_from_all(&mut self.pool_overrides, slots);
    }

    /// The slots in a state.
    pub fn set(&self, state: RecipientState) -> &Bitmap {
        &self.sets[state as usize]
    }

    /// The state of a slot; `None` if the chunk has no such slot.
    pub fn state(&self, slot: u16) -> Option<RecipientState> {
        RecipientState::ALL.into_iter().find(|state| self.set(*state).contains(slot))
    }

    /// Returns the pending slots that may be claimed at `now`: those that do not wait for a later wave.
    pub fn claimable(&self, now: Time) -> Bitmap {
        let mut slots = self.set(RecipientState::Pending).clone();
        for waiting in self.waves.range(wave_after(now)..).map(|(_, slots)| slots) {
            slots.remove(waiting);
        }
        slots
    }

    /// Returns when the next wave after `now` becomes claimable; `None` if no recipient waits.
    pub fn next_wave(&self, now: Time) -> Option<Time> {
        self.waves.range(wave_after(now)..).next().map(|(wave, _)| wave_start(*wave))
    }
}

/// Length of a wave. Milliseconds.
pub const WAVE_MS: i64 = 30_000;

/// Returns the first wave that is not claimable at `now`.
pub fn wave_after(now: Time) -> i64 {
    now.0.div_euclid(WAVE_MS) + 1
}

/// Returns when a wave becomes claimable. Does not overflow.
pub fn wave_start(wave: i64) -> Time {
    Time(wave.saturating_mul(WAVE_MS))
}
