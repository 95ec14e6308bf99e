//! One recipient's whole story in one run, told from the rows that held it.

use crate::ids::{Fence, Holder, RunId, Time};
use crate::moments::Moment;
use crate::rulings::{self, Ruling};
use crate::state::{DeadLetter, Ledger, Row, Standing, wave_start};

/// What happened to a recipient, in the order of log indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Where it stands now.
    pub standing: Standing,
    /// Its rows, oldest first.
    pub rows: Vec<Chapter>,
    /// What befell it without a row's doing, by log index.
    pub rulings: Vec<(u64, Ruling)>,
    /// When its next attempt may be, where it waits.
    pub waits_until: Option<Time>,
    /// Basic code of the last answer that deferred it, while it waits or after it expired.
    pub deferred: Option<u16>,
    /// Its dead letter.
    pub dead: Option<DeadLetter>,
    /// The run less than the `min_gap` away that keeps it from its mail, or makes it wait (P17).
    pub kept_apart_by: Option<RunId>,
}

/// One row that held the recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// The row; its index is the log index of the claim.
    pub fence: Fence,
    /// Who worked it.
    pub holder: Holder,
    /// When it was claimed.
    pub claimed_at: Time,
    /// What became of the recipient in this row, in the order of log indices; nothing yet where it is still
    /// claimed.
    pub moments: Vec<Moment>,
}

impl Ledger {
    /// The story of recipient `number` of `run`; none when there is no such recipient.
    pub fn story(&self, run: RunId, number: u32) -> Option<Story> {
        let (page, chunk, slot) = self.place_of(run, number)?;
        let slots = self.chunks.get(&(page, chunk))?;
        let held = |row: &Row| row.granted.contains(slot);
        let open = self.rows.iter().filter(|(_, row)| (row.page, row.chunk) == (page, chunk) && held(row));
        let mut rows: Vec<Chapter> = open.map(|(fence, row)| chapter(*fence, row, slot)).collect();
        let closed = self.closed_rows_of((page, chunk)).filter(|(_, row)| held(row));
        rows.extend(closed.map(|(fence, row)| chapter(fence, &row, slot)));
        rows.sort_by_key(|chapter| chapter.fence);
        let waiting = slots.waves.iter().find(|(_, wave)| wave.contains(slot));
        let rulings = self.rulings.range(rulings::keys_of(run));
        let rulings = rulings.flat_map(|((_, index, of), rulings)| {
            let concerns = |ruling: &&Ruling| ruling.concerns(*of, (chunk, slot));
            rulings.iter().filter(concerns).map(move |ruling| (*index, ruling))
        });
        Some(Story {
            standing: slots.standing(slot)?,
            rows,
            rulings: rulings.map(|(index, ruling)| (index, ruling.clone())).collect(),
            waits_until: waiting.map(|(bucket, _)| wave_start(*bucket)),
            deferred: slots.deferrals.get(slot).map(|deferral| deferral.code),
            dead: self.dead.get(&(run, number)).cloned(),
            kept_apart_by: self.kept_apart_by(run, number),
        })
    }
}

fn chapter(fence: Fence, row: &Row, slot: u16) -> Chapter {
    let mine = row.moments.iter().filter(|moment| moment.slots(&row.granted).contains(slot));
    Chapter { fence, holder: row.holder, claimed_at: row.claimed_at, moments: mine.cloned().collect() }
}
