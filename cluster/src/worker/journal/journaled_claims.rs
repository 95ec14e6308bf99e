//! The content of a journal: for each open claim, the last step of each recipient.
//!
//! The writer keeps it to refuse a second `handoff` and to rewrite its file. The reader builds the same from a file. Both
//! use the rules of [`JournaledClaims::append`].

use std::collections::BTreeMap;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{ClaimOutcome, OutcomeSource, ReleaseReason};
use reveille_ledger::ids::{ChunkKey, Fence};

use super::record::{ClaimedSlot, JournalStep, Record};

/// The claims of a journal, by fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournaledClaims(BTreeMap<Fence, JournaledClaim>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct JournaledClaim {
    chunk: ChunkKey,
    /// The step that counts for each recipient, by slot.
    steps: BTreeMap<u16, JournalStep>,
}

impl JournaledClaims {
    /// Adds one record. `accepted` is never replaced (P4), and `composing` and `composed` replace neither `handoff` nor a
    /// refusal.
    pub(super) fn append(&mut self, record: &Record) {
        let ClaimedSlot { chunk, fence, slot } = record.claimed_slot;
        let new = || JournaledClaim { chunk, steps: BTreeMap::new() };
        let steps = &mut self.0.entry(fence).or_insert_with(new).steps;
        if steps.get(&slot).is_none_or(|former| replaces(&record.step, former)) {
            steps.insert(slot, record.step.clone());
        }
    }

    /// Returns true if this recipient of this claim has a `handoff` or an answer: another one would be a second
    /// handoff.
    pub(super) fn has_handoff(&self, claimed_slot: &ClaimedSlot) -> bool {
        let step = self.step(claimed_slot.fence, claimed_slot.slot);
        matches!(step, Some(JournalStep::Handoff | JournalStep::Accepted | JournalStep::Refused(_)))
    }

    /// Removes a closed claim.
    pub(super) fn forget(&mut self, fence: Fence) {
        self.0.remove(&fence);
    }

    /// Returns the shortest list of records with the same content.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.0.iter().flat_map(|(fence, claim)| {
            let (chunk, fence) = (claim.chunk, *fence);
            let claimed_slot = move |slot: u16| ClaimedSlot { chunk, fence, slot };
            claim.steps.iter().map(move |(slot, step)| Record { claimed_slot: claimed_slot(*slot), step: step.clone() })
        })
    }

    /// Returns the step that counts for a recipient; `None` if it has no record.
    pub fn step(&self, fence: Fence, slot: u16) -> Option<&JournalStep> {
        self.0.get(&fence)?.steps.get(&slot)
    }

    /// Returns the slots of a claim that a relay accepted.
    pub fn accepted(&self, fence: Fence) -> Bitmap {
        let steps = self.0.get(&fence).into_iter().flat_map(|claim| &claim.steps);
        steps.filter(|(_, step)| **step == JournalStep::Accepted).map(|(slot, _)| *slot).collect()
    }

    /// Returns the chunk of a claim; `None` if it has no records.
    pub(super) fn chunk(&self, fence: Fence) -> Option<ChunkKey> {
        self.0.get(&fence).map(|claim| claim.chunk)
    }

    /// Returns all claims that have records, each with its chunk.
    pub fn claims(&self) -> impl Iterator<Item = (Fence, ChunkKey)> + '_ {
        self.0.iter().map(|(fence, claim)| (*fence, claim.chunk))
    }

    /// Returns the outcome of a claim of an earlier incarnation whose recipients `slots` are still claimed (P10).
    /// `accepted` and a refusal settle as such, `handoff` is in doubt, and everything else is released. The outcome names
    /// the recipients that were being composed, and whether they are the only one in the whole journal (P12).
    pub fn outcome(&self, chunk: ChunkKey, fence: Fence, slots: &Bitmap) -> ClaimOutcome {
        let mut outcome = ClaimOutcome { source: OutcomeSource::Journal, ..ClaimOutcome::empty(chunk, fence) };
        for slot in slots.iter() {
            match self.step(fence, slot) {
                Some(JournalStep::Accepted) => drop(outcome.accepted.insert(slot)),
                Some(JournalStep::Handoff) => drop(outcome.in_doubt.insert(slot)),
                Some(JournalStep::Composing) => outcome.release(ReleaseReason::OwnerCrashedComposing, slot),
                Some(JournalStep::Composed) | None => outcome.release(ReleaseReason::OwnerCrashed, slot),
                Some(JournalStep::Refused(refused)) => outcome.refused.push(refused.clone()),
            }
        }
        outcome.alone = !outcome.interrupted().is_empty() && self.composing_count() == 1;
        outcome
    }

    /// Returns the number of recipients in all claims that were being composed.
    fn composing_count(&self) -> usize {
        self.0.values().flat_map(|claim| claim.steps.values()).filter(|step| **step == JournalStep::Composing).count()
    }
}

/// True if a new step replaces the one that counted.
fn replaces(step: &JournalStep, former: &JournalStep) -> bool {
    match former {
        JournalStep::Accepted => false,
        JournalStep::Handoff | JournalStep::Refused(_) => {
            !matches!(step, JournalStep::Composing | JournalStep::Composed)
        }
        JournalStep::Composing | JournalStep::Composed => true,
    }
}
