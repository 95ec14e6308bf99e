//! What a journal knows: for each row that is open, how far each of its recipients came.
//!
//! The writer keeps it to refuse a second `begin` and to write its file anew; the reader builds the same
//! from a file. One set of rules for both: [`Rows::note`].

use std::collections::BTreeMap;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{ClaimOutcome, OutcomeSource, Refused, ReleaseReason};
use reveille_ledger::ids::{Fence, RunId};

use super::record::{Act, Answer, Place, Record};

/// How far a recipient came in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournaledState {
    /// Composing had begun, the hand-off had not.
    OpenOnly,
    /// The terminator may have been written; no answer is known.
    Begun,
    /// The relay took it.
    Accepted,
    /// The relay refused it.
    Refused(Answer),
    /// Composing had ended, the hand-off had not begun.
    Composed,
}

/// Fates by row and slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(BTreeMap<Fence, Row>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    page: RunId,
    chunk: u32,
    states: BTreeMap<u16, JournaledState>,
    begun: Bitmap,
}

impl Rows {
    /// Takes in one record. `accepted` is true for ever (P4); `open` never takes back what is known.
    pub(super) fn note(&mut self, record: &Record) {
        let Place { page, chunk, fence, slot } = record.place;
        let new = || Row { page, chunk, states: BTreeMap::new(), begun: Bitmap::new() };
        let row = self.0.entry(fence).or_insert_with(new);
        if record.act == Act::Begin {
            row.begun.insert(slot);
        }
        let former = row.states.remove(&slot);
        row.states.insert(slot, after(former, &record.act));
    }

    /// Was a `begin` noted for this recipient in this row?
    pub(super) fn has_begun(&self, place: &Place) -> bool {
        self.0.get(&place.fence).is_some_and(|row| row.begun.contains(place.slot))
    }

    /// Forgets a row that is closed.
    pub(super) fn forget(&mut self, fence: Fence) {
        self.0.remove(&fence);
    }

    /// The shortest list of records that says the same.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.0.iter().flat_map(|(fence, row)| {
            row.states.iter().map(|(slot, state)| {
                let place = Place { page: row.page, chunk: row.chunk, fence: *fence, slot: *slot };
                let act = match state {
                    JournaledState::OpenOnly => Act::Open,
                    JournaledState::Begun => Act::Begin,
                    JournaledState::Accepted => Act::Accepted,
                    JournaledState::Refused(answer) => Act::Refused(answer.clone()),
                    JournaledState::Composed => Act::Composed,
                };
                Record { place, act }
            })
        })
    }

    /// How far a recipient came; none when nothing was written about it.
    pub fn state(&self, fence: Fence, slot: u16) -> Option<&JournaledState> {
        self.0.get(&fence)?.states.get(&slot)
    }

    /// Who was accepted in a row.
    pub fn accepted(&self, fence: Fence) -> Bitmap {
        let states = self.0.get(&fence).into_iter().flat_map(|row| &row.states);
        states.filter(|(_, state)| **state == JournaledState::Accepted).map(|(slot, _)| *slot).collect()
    }

    /// Page and chunk of a row, if anything is known of it.
    pub(super) fn chunk(&self, fence: Fence) -> Option<(RunId, u32)> {
        self.0.get(&fence).map(|row| (row.page, row.chunk))
    }

    /// The rows of which anything is known, each with its page and chunk.
    pub fn places(&self) -> impl Iterator<Item = (Fence, (RunId, u32))> + '_ {
        self.0.iter().map(|(fence, row)| (*fence, (row.page, row.chunk)))
    }

    /// The outcome of a row of a former incarnation whose recipients `slots` are still claimed (P10):
    /// accepted, refused by its answer, begun is in doubt, and everything else is released. Who was open is
    /// named, and whether nothing else was in the whole journal (P12).
    pub fn outcome(&self, page: RunId, chunk: u32, fence: Fence, slots: &Bitmap) -> ClaimOutcome {
        let mut outcome = ClaimOutcome { source: OutcomeSource::Journal, ..ClaimOutcome::empty(page, chunk, fence) };
        for slot in slots.iter() {
            match self.state(fence, slot) {
                Some(JournaledState::Accepted) => drop(outcome.accepted.insert(slot)),
                Some(JournaledState::Begun) => drop(outcome.in_doubt.insert(slot)),
                Some(JournaledState::OpenOnly) => outcome.release(ReleaseReason::OwnerDiedPreparing, slot),
                Some(JournaledState::Composed) | None => outcome.release(ReleaseReason::OwnerDied, slot),
                Some(JournaledState::Refused(answer)) => outcome.refused.push(refused(slot, answer)),
            }
        }
        outcome.alone = !outcome.was_open().is_empty() && self.open_count() == 1;
        outcome
    }

    /// Recipients that are open, in all rows.
    fn open_count(&self) -> usize {
        let states = self.0.values().flat_map(|row| row.states.values());
        states.filter(|state| **state == JournaledState::OpenOnly).count()
    }
}

fn refused(slot: u16, answer: &Answer) -> Refused {
    let Answer { code, enhanced, scope, text, words } = answer.clone();
    Refused { slot, code, enhanced, text, scope, words }
}

fn after(former: Option<JournaledState>, act: &Act) -> JournaledState {
    match (former, act) {
        (Some(JournaledState::Accepted), _) | (_, Act::Accepted) => JournaledState::Accepted,
        (None | Some(JournaledState::Composed), Act::Open) => JournaledState::OpenOnly,
        (None | Some(JournaledState::OpenOnly), Act::Composed) => JournaledState::Composed,
        (Some(known), Act::Open | Act::Composed) => known,
        (_, Act::Begin) => JournaledState::Begun,
        (_, Act::Refused(answer)) => JournaledState::Refused(answer.clone()),
    }
}
