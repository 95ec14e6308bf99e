//! Pages and chunks: where the recipients of runs that opened together are stored.
//!
//! Runs of small audiences that are due together open as one **page** and share its slots; a run of millions is a
//! page of its own. Code below the page handles only chunks of 65,536 slots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Bitmap, Deferrals, RecipientState, Run, Time};

/// Runs that opened together and share slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Tenant.
    pub tenant: String,
    /// Pool of relays.
    pub pool: String,
    /// Priority.
    pub priority: u8,
    /// When its runs were due.
    pub due: Time,
    /// Ledger time at which it opened.
    pub opened_at: Time,
    /// Cluster incarnation in which it opened: part of every Message-ID (P21).
    pub cluster_incarnation: u64,
    /// Its runs, by place; slots of one follow those of the other.
    pub runs: Vec<Run>,
    /// Slots in all.
    pub slots: u32,
}

impl Page {
    /// Index of the run to which a slot of the page belongs.
    pub fn run_of_slot(&self, slot: u32) -> Option<usize> {
        let place = self.runs.partition_point(|run| run.first <= slot).checked_sub(1)?;
        (slot < self.runs[place].first + self.runs[place].count).then_some(place)
    }

    /// Does any run of it have something pending or claimed?
    pub fn is_open(&self) -> bool {
        self.runs.iter().any(|run| !run.counts.is_finished())
    }
}

/// 65,536 slots of a page: where each recipient stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// One set a state; they are disjoint and together all slots (P1).
    pub sets: [Bitmap; 9],
    /// Pending recipients that wait for an instant: by 30 s bucket since the epoch.
    pub waves: BTreeMap<i64, Bitmap>,
    /// Counted attempts, where there are any.
    pub attempts: BTreeMap<u16, u8>,
    /// Recipients that a relay has deferred, until their state is terminal; of those that expired, the last answer.
    pub deferrals: Deferrals,
    /// Who was being prepared when its owner died, and has not come past a gate since (P12): pending, or
    /// held by a row of its own.
    pub crash_suspects: Bitmap,
    /// Of those suppressed: who got an email of another run too near to this one (P17).
    pub suppressed_by_gap: Bitmap,
    /// Recipients that a requeue moved to another pool than their page's: by pool, disjoint, none empty,
    /// whatever they stand at.
    pub pool_overrides: BTreeMap<String, Bitmap>,
}

impl Chunk {
    /// These slots by the pool that they go by; none is their page's own. No part is empty.
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

    /// The pool that a slot goes by, where it is not its page's own.
    pub fn pool_of(&self, slot: u16) -> Option<&str> {
        self.pool_overrides.iter().find(|(_, slots)| slots.contains(slot)).map(|(pool, _)| pool.as_str())
    }

    /// Is nothing of it pending or claimed?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.set(RecipientState::Pending).is_empty() && self.set(RecipientState::Claimed).is_empty()
    }

    /// Takes as little memory as it can: not much of it is expected to move any more.
    pub(crate) fn rest(&mut self) {
        self.sets.iter_mut().for_each(Bitmap::optimize);
    }

    /// The slots of one state.
    pub fn set(&self, state: RecipientState) -> &Bitmap {
        &self.sets[state as usize]
    }

    /// Where a slot stands.
    pub fn state(&self, slot: u16) -> Option<RecipientState> {
        RecipientState::ALL.into_iter().find(|state| self.set(*state).contains(slot))
    }

    /// Pending slots whose wave has come in by `now`.
    pub fn claimable(&self, now: Time) -> Bitmap {
        let mut slots = self.set(RecipientState::Pending).clone();
        for waiting in self.waves.range(bucket_after(now)..).map(|(_, slots)| slots) {
            slots.remove(waiting);
        }
        slots
    }

    /// When the next wave comes in after `now`.
    pub fn next_wave(&self, now: Time) -> Option<Time> {
        self.waves.range(bucket_after(now)..).next().map(|(bucket, _)| wave_start(*bucket))
    }
}

/// Width of a retry wave. Milliseconds.
pub const WAVE_MS: i64 = 30_000;

/// The first bucket that has not come in at `now`.
pub fn bucket_after(now: Time) -> i64 {
    now.0.div_euclid(WAVE_MS) + 1
}

/// When a bucket comes in; at the end of time where that is.
pub fn wave_start(bucket: i64) -> Time {
    Time(bucket.saturating_mul(WAVE_MS))
}
