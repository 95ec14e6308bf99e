//! What the state weighs: the bytes that its rows take in memory and where they are stored.
//!
//! On disk it is exact: keys and values as they are written. In memory a row counts twice its size, since the leaves
//! of a tree are at least half full; and what it points to. That is exact for what grows with the recipients (sets
//! and packed rows); of everything else it is nearly all text, and counts as much as it has bytes when written.
//!
//! A look costs an encoding of every row. So it is made in portions, each at a state of its own, and by nobody who
//! applies.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::model::{
    Bitmap, Campaign, Chunk, Claim, ClaimEvent, ClosedClaimBlock, DeadLetter, InstantOutcome, Node, OptedOut, Page,
    PoolRow, Relay, RunEvent, RunSummary, Schedule, SealedAudience, StoredAnswer, StoredBlob, TakenBack, Tenant,
};
use crate::storage::form::RowForm;

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// In memory.
    pub memory: u64,
    /// As rows of the state store or of a snapshot.
    pub disk: u64,
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.memory += other.memory;
        self.disk += other.disk;
    }
}

impl Weight {
    /// Of a row of a table.
    pub(crate) fn of<K, V: Held>(key_bytes: usize, value: &V, level: u32) -> Weight {
        let encoded = value.row_len(level);
        let in_tree = 2 * (size_of::<K>() + size_of::<V>());
        Weight { memory: (in_tree + value.heap(encoded)) as u64, disk: (key_bytes + encoded) as u64 }
    }
}

/// What is held in a table.
pub trait Held: RowForm {
    /// The bytes that it points to, where it is written in `encoded` bytes.
    fn heap(&self, encoded: usize) -> usize {
        encoded
    }
}

macro_rules! mostly_text {
    ($($row:ty),* $(,)?) => {$(impl Held for $row {})*};
}
mostly_text!(
    StoredAnswer,
    Campaign,
    DeadLetter,
    InstantOutcome,
    Node,
    OptedOut,
    Page,
    Relay,
    Schedule,
    SealedAudience,
    StoredBlob,
    RunSummary,
    TakenBack,
    Tenant,
    Vec<RunEvent>,
    PoolRow,
);

impl Held for ClosedClaimBlock {
    fn heap(&self, _: usize) -> usize {
        self.heap_bytes()
    }
}

impl Held for Claim {
    fn heap(&self, encoded: usize) -> usize {
        let sets = [&self.granted, &self.claimed, &self.in_doubt, &self.sent, &self.assumed];
        let of_moments = |event: &ClaimEvent| size_of::<ClaimEvent>() + event.some().map_or(0, Bitmap::heap_bytes);
        encoded
            + sets.into_iter().map(Bitmap::heap_bytes).sum::<usize>()
            + self.history.iter().map(of_moments).sum::<usize>()
    }
}

impl Held for Chunk {
    fn heap(&self, _: usize) -> usize {
        let sets = self.sets.iter().chain([&self.crash_suspects, &self.suppressed_by_gap]);
        let sets = sets.map(Bitmap::heap_bytes).sum::<usize>();
        let attempts = 2 * self.attempts.len() * (size_of::<u16>() + size_of::<u8>());
        let deferrals = self.deferrals.iter().map(|(deferral, set)| 2 * size_of_val(deferral) + set.heap_bytes());
        sets + attempts
            + deferrals.sum::<usize>()
            + in_tree(&self.waves, |_| 0)
            + in_tree(&self.pool_overrides, String::len)
    }
}

fn in_tree<K>(sets: &BTreeMap<K, Bitmap>, key: impl Fn(&K) -> usize) -> usize {
    sets.iter().map(|(of, set)| 2 * (size_of::<K>() + size_of::<Bitmap>()) + key(of) + set.heap_bytes()).sum()
}
