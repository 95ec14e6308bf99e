//! Settle: what became of the recipients of one row (P4, P14). What a refusal means is in `refused.rs`.
//!
//! A negative outcome moves only recipients that are still in that row, claimed or in doubt; for all
//! others it is evidence and changes nothing. An accept is true for ever. So a settle that comes twice,
//! late, or after another decision changes nothing more.

use super::Context;
use super::moves::Place;
use super::refused::demanded;
use crate::bitmap::{Bitmap, CHUNK};
use crate::causes::DeathCause;
use crate::command::{RowOutcome, Unsendable, Why, Witness};
use crate::effect::Effect;
use crate::ids::{Fence, RunId, Time};
use crate::moments::{Doubt, What};
use crate::reply::Outcome;
use crate::state::{DeadLetter, Ledger, Row, Run, Standing, bucket_after};

/// Where a settled recipient goes, and what is written beside it.
pub(super) struct Verdict {
    pub to: Standing,
    /// Where it goes back: not before then.
    pub wait_until: Option<Time>,
    /// Counted attempts and last answer; put on the dead-letter list where it dies of them.
    pub letter: Option<DeadLetter>,
}

impl Ledger {
    pub(super) fn settle(&mut self, context: &mut Context, outcomes: &[RowOutcome]) -> Outcome {
        Outcome::Moved(outcomes.iter().map(|outcome| self.settle_row(context, outcome)).sum())
    }

    fn settle_row(&mut self, context: &mut Context, outcome: &RowOutcome) -> u64 {
        let place = (outcome.page, outcome.chunk);
        let (mut row, was_open) = match self.rows.get(&outcome.fence) {
            Some(row) if (row.page, row.chunk) != place => return 0,
            Some(row) => (row.clone(), true),
            None => match self.closed_row(place, outcome.fence) {
                Some(row) => (row, false),
                None => return 0,
            },
        };
        let before = row.clone();
        let mut moved = self.accept(context, &mut row, outcome);
        name_relay(context, &mut row, outcome);
        moved += self.refuse(context, &mut row, &outcome.refused);
        moved += self.release(context, &mut row, outcome);
        moved += self.suppress(context, &mut row, &outcome.suppressed);
        moved += self.bury(context, &mut row, &outcome.unsendable);
        moved += self.doubt(context, &mut row, outcome);
        if row != before {
            if !before.claimed.is_empty() && row.claimed.is_empty() {
                context.emit(Effect::RowClosed { fence: outcome.fence, holder: row.holder });
            }
            self.put_row(outcome.fence, row, was_open);
        }
        moved
    }

    /// Puts a row where it belongs: among the open ones, or among the evidence.
    pub(super) fn put_row(&mut self, fence: Fence, row: Row, was_open: bool) {
        if !row.is_closed() {
            self.rows.put(fence, row);
            return;
        }
        if was_open {
            self.rows.remove(&fence);
        }
        self.put_closed(fence, &row);
    }

    /// P14, first line: an accept is true for ever.
    fn accept(&mut self, context: &mut Context, row: &mut Row, outcome: &RowOutcome) -> u64 {
        let (fence, place) = (outcome.fence, (row.page, row.chunk));
        let fresh = outcome.accepted.and(&row.granted).and_not(&row.sent);
        if fresh.is_empty() {
            return 0;
        }
        row.sent.add(&fresh);
        let claimed = fresh.and(&row.claimed);
        let doubted = fresh.and(&row.in_doubt);
        row.claimed.remove(&claimed);
        row.in_doubt.remove(&doubted);
        self.shift(context, place, &claimed, Standing::Claimed, Standing::Sent);
        self.shift(context, place, &doubted, Standing::InDoubt, Standing::Sent);
        let mut moved = claimed.len() + doubted.len();
        let taken = match &outcome.said {
            Some(said) if row.granted.len() == 1 => What::Taken(said.clone()),
            _ => What::Accepted,
        };
        row.note(context, (taken.clone(), Standing::Sent), &claimed);
        row.note(context, (taken, Standing::Sent), &doubted);
        for slot in fresh.and_not(&claimed).and_not(&doubted).iter() {
            let Some((what, to)) = self.accept_elsewhere(context, fence, place, slot) else { continue };
            moved += u32::from(what == What::Accepted);
            row.note(context, (what, to), &[slot].into_iter().collect());
        }
        self.forgive(place, &fresh);
        u64::from(moved)
    }

    /// P6: an accept ends a row of refusals by policy, of each run that had one.
    fn forgive(&mut self, place: Place, slots: &Bitmap) {
        let Some(page) = self.pages.get(&place.0) else { return };
        let (Some(lowest), Some(highest)) = (slots.min(), slots.max()) else { return };
        let number = |slot: u16| page.run_of_slot(place.1 * CHUNK + u32::from(slot));
        let (Some(first), Some(last)) = (number(lowest), number(highest)) else { return };
        let had = |number: &usize| {
            let run = &page.runs[*number];
            let accepted = || !Ledger::slots_of_run(run.first, run.count, place.1).and(slots).is_empty();
            !run.policy_refusals.is_empty() && accepted()
        };
        let forgiven: Vec<usize> = (first..=last).filter(had).collect();
        if forgiven.is_empty() {
            return;
        }
        if let Some(page) = self.pages.edit(&place.0) {
            forgiven.into_iter().for_each(|number| page.runs[number].policy_refusals.clear());
        }
    }

    /// An accept for a recipient that is not in its row any more: what it comes to.
    fn accept_elsewhere(
        &mut self,
        context: &mut Context,
        fence: Fence,
        place: Place,
        slot: u16,
    ) -> Option<(What, Standing)> {
        let standing = self.chunks.get(&place).and_then(|chunk| chunk.standing(slot))?;
        let one: Bitmap = [slot].into_iter().collect();
        match standing {
            Standing::Pending | Standing::Assumed => {}
            Standing::Claimed | Standing::InDoubt => self.take_from_row(context, fence, place, slot),
            Standing::Sent => {
                self.edit_run(place, slot, |run| run.known_duplicates = run.known_duplicates.saturating_add(1));
                context.alarm(format!("known duplicate: slot {slot} of {} was accepted under {fence} too", place.0));
                return Some((What::KnownDuplicate, standing));
            }
            Standing::Dead | Standing::Suppressed | Standing::Expired | Standing::Cancelled => {
                self.edit_run(place, slot, |run| run.contradictions = run.contradictions.saturating_add(1));
                context.alarm(format!("contradiction: slot {slot} of {} is closed, yet {fence} was accepted", place.0));
                return Some((What::Contradiction, standing));
            }
        }
        self.shift(context, place, &one, standing, Standing::Sent);
        context.emit(Effect::RunChanged(place.0));
        Some((What::Accepted, Standing::Sent))
    }

    /// Takes a recipient out of whichever other open row holds it.
    fn take_from_row(&mut self, context: &mut Context, but: Fence, place: Place, slot: u16) {
        let holds =
            |row: &Row| (row.page, row.chunk) == place && (row.claimed.contains(slot) || row.in_doubt.contains(slot));
        let Some(fence) = self.rows.iter().find(|(fence, row)| **fence != but && holds(row)).map(|(fence, _)| *fence)
        else {
            return;
        };
        let Some(mut row) = self.rows.get(&fence).cloned() else { return };
        let one: Bitmap = [slot].into_iter().collect();
        let had_claims = !row.claimed.is_empty();
        row.claimed.remove(&one);
        row.in_doubt.remove(&one);
        row.note(context, (What::AcceptedElsewhere, Standing::Sent), &one);
        if had_claims && row.claimed.is_empty() {
            context.emit(Effect::RowClosed { fence, holder: row.holder });
        }
        self.put_row(fence, row, true);
    }

    /// Released: definitely not handed off. Who was being prepared when the holder died is a suspect from
    /// here on; a suspect that was alone at a death has killed twice and dies of it (P12).
    fn release(&mut self, context: &mut Context, row: &mut Row, outcome: &RowOutcome) -> u64 {
        let place = (row.page, row.chunk);
        let mut moved = 0;
        let released = outcome.released.iter().flat_map(|(why, slots)| slots.iter().map(move |slot| (*why, slot)));
        for (why, slot) in released {
            let was_open = why == Why::HolderDiedPreparing;
            let killed_again = was_open && outcome.alone && self.is_suspect(place, slot);
            let what = What::Released(Some(why));
            let left = self.definite(context, row, (slot, what), |run, attempts, now| {
                match demanded(run, attempts, now, None) {
                    Verdict { to: Standing::Pending, .. } if killed_again => killed_its_holder(attempts, now),
                    verdict => verdict,
                }
            });
            if was_open && left > 0 && self.stands(place, slot, Standing::Pending) {
                self.edit_suspects(place, |suspects| {
                    suspects.insert(slot);
                });
            }
            moved += left;
        }
        moved
    }

    /// Suppressed: definitely not handed off, because it opted out.
    fn suppress(&mut self, context: &mut Context, row: &mut Row, slots: &Bitmap) -> u64 {
        let mut moved = 0;
        for slot in slots.and(&row.granted).iter() {
            let verdict = Verdict { to: Standing::Suppressed, wait_until: None, letter: None };
            moved += self.definite(context, row, (slot, What::Suppressed), |_, _, _| verdict);
        }
        moved
    }

    /// It cannot be composed, now or ever: dead, with the cause.
    fn bury(&mut self, context: &mut Context, row: &mut Row, unsendable: &[(u16, Unsendable)]) -> u64 {
        let mut moved = 0;
        for (slot, cause) in unsendable {
            let what = What::Unsendable(cause.clone());
            moved += self.definite(context, row, (*slot, what), |_, attempts, now| Verdict {
                to: Standing::Dead,
                wait_until: None,
                letter: Some(DeadLetter {
                    code: 0,
                    enhanced: None,
                    cause: DeathCause::Unsendable(cause.clone()),
                    attempts,
                    since: now,
                    discarded: false,
                }),
            });
        }
        moved
    }

    /// Moves one recipient that is in this row by a definite not-sent; disproves an assumption.
    pub(super) fn definite(
        &mut self,
        context: &mut Context,
        row: &mut Row,
        (slot, what): (u16, What),
        verdict: impl FnOnce(&Run, u8, Time) -> Verdict,
    ) -> u64 {
        let place = (row.page, row.chunk);
        let from = match () {
            () if row.claimed.contains(slot) => Standing::Claimed,
            () if row.in_doubt.contains(slot) => Standing::InDoubt,
            () if row.assumed.contains(slot) && self.stands(place, slot, Standing::Assumed) => Standing::Assumed,
            () => return 0,
        };
        let one: Bitmap = [slot].into_iter().collect();
        row.claimed.remove(&one);
        row.in_doubt.remove(&one);
        row.assumed.remove(&one);
        if from == Standing::Assumed {
            self.edit_run(place, slot, |run| run.assumptions_disproved = run.assumptions_disproved.saturating_add(1));
        }
        let attempts = self.chunks.get(&place).and_then(|chunk| chunk.attempts.get(&slot).copied()).unwrap_or(0);
        let Some(run) = self.run_at(place, slot) else { return 0 };
        let verdict = verdict(run, attempts, context.now);
        row.note(context, (what, verdict.to), &one);
        self.shift(context, place, &one, from, verdict.to);
        if let (Standing::Pending, Some(until)) = (verdict.to, verdict.wait_until) {
            self.wait(place, slot, until);
        }
        if let Some(letter) = verdict.letter {
            if letter.attempts > attempts
                && let Some(chunk) = self.chunks.edit(&place)
            {
                chunk.attempts.insert(slot, letter.attempts);
            }
            if verdict.to == Standing::Dead
                && let Some(key) = self.recipient_at(place, slot)
            {
                self.dead.put(key, letter);
            }
        }
        1
    }

    /// A pending recipient waits for the wave of `until`.
    pub(super) fn wait(&mut self, place: Place, slot: u16, until: Time) {
        if let Some(chunk) = self.chunks.edit(&place) {
            chunk.waves.entry(bucket_after(until)).or_default().insert(slot);
        }
    }

    /// P14, last line: in doubt moves only what is claimed in this row. Of those who are in doubt because their
    /// holder was lost, it is the last word: nothing that is still to come will resolve them.
    fn doubt(&mut self, context: &mut Context, row: &mut Row, outcome: &RowOutcome) -> u64 {
        let doubt = match outcome.witness {
            Witness::Holder => Doubt::NoAnswer,
            Witness::Journal => Doubt::Begun,
            Witness::NoJournal => Doubt::NoJournal,
        };
        let slots = outcome.in_doubt.and(&row.claimed);
        let given_up = row.moments.given_up(&row.granted).and(&row.in_doubt).and(&outcome.in_doubt);
        row.note(context, (What::InDoubt(doubt), Standing::InDoubt), &given_up);
        row.note(context, (What::InDoubt(doubt), Standing::InDoubt), &slots);
        row.claimed.remove(&slots);
        row.in_doubt.add(&slots);
        self.shift(context, (row.page, row.chunk), &slots, Standing::Claimed, Standing::InDoubt);
        self.clear_suspects((row.page, row.chunk), &slots);
        u64::from(slots.len())
    }

    fn is_suspect(&self, place: Place, slot: u16) -> bool {
        self.chunks.get(&place).is_some_and(|chunk| chunk.suspects.contains(slot))
    }

    /// P12: they came past a gate, or a relay has answered about them: they do not kill who prepares them.
    pub(super) fn clear_suspects(&mut self, place: Place, slots: &Bitmap) {
        if self.chunks.get(&place).is_some_and(|chunk| !chunk.suspects.and(slots).is_empty()) {
            self.edit_suspects(place, |suspects| suspects.remove(slots));
        }
    }

    fn edit_suspects(&mut self, place: Place, edit: impl FnOnce(&mut Bitmap)) {
        if let Some(chunk) = self.chunks.edit(&place) {
            edit(&mut chunk.suspects);
        }
    }

    fn stands(&self, place: Place, slot: u16, standing: Standing) -> bool {
        self.chunks.get(&place).is_some_and(|chunk| chunk.set(standing).contains(slot))
    }

    fn run_at(&self, place: Place, slot: u16) -> Option<&Run> {
        let page = self.pages.get(&place.0)?;
        page.runs.get(page.run_of_slot(place.1 * CHUNK + u32::from(slot))?)
    }

    pub(super) fn edit_run(&mut self, place: Place, slot: u16, edit: impl FnOnce(&mut Run)) {
        let Some(page) = self.pages.edit(&place.0) else { return };
        if let Some(number) = page.run_of_slot(place.1 * CHUNK + u32::from(slot)) {
            edit(&mut page.runs[number]);
        }
    }

    /// The run and the recipient's number in it.
    pub fn recipient_at(&self, place: (RunId, u32), slot: u16) -> Option<(RunId, u32)> {
        let page = self.pages.get(&place.0)?;
        let whole = place.1 * CHUNK + u32::from(slot);
        let number = page.run_of_slot(whole)?;
        let run = RunId { index: place.0.index, place: place.0.place + number as u32 };
        Some((run, whole - page.runs[number].first))
    }
}

impl Row {
    /// Notes what this entry did to `slots`, and where they stand after it.
    pub(super) fn note(&mut self, context: &Context, fate: (What, Standing), slots: &Bitmap) {
        self.moments.note((context.index, context.now), fate, slots, &self.granted);
    }
}

/// Of a test mail that its relay refused or left in doubt: in whose log to look.
fn name_relay(context: &Context, row: &mut Row, outcome: &RowOutcome) {
    let Some(said) = outcome.said.as_ref().filter(|_| row.granted.len() == 1) else { return };
    let refused: Bitmap = outcome.refused.iter().map(|refused| refused.slot).collect();
    let mut answered = outcome.in_doubt.clone();
    answered.add(&refused);
    row.note(context, (What::Asked(said.relay.clone()), Standing::Claimed), &answered.and(&row.claimed));
}

/// P12: prepared with nothing else open, it has killed its holder a second time.
fn killed_its_holder(attempts: u8, now: Time) -> Verdict {
    let cause = DeathCause::HolderDied;
    let letter = DeadLetter { code: 0, enhanced: None, cause, attempts, since: now, discarded: false };
    Verdict { to: Standing::Dead, wait_until: None, letter: Some(letter) }
}
