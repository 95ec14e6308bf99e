//! Settle: what became of the recipients of one row (P4, P6, P14).
//!
//! A negative outcome moves only recipients that are still in that row, claimed or in doubt; for all
//! others it is evidence and changes nothing. An accept is true for ever. So a settle that comes twice,
//! late, or after another decision changes nothing more.

use super::Context;
use super::moves::Place;
use crate::bitmap::{Bitmap, CHUNK};
use crate::command::{Refused, RowOutcome, Scope};
use crate::effect::Effect;
use crate::ids::{Fence, RunId, Time};
use crate::reply::Outcome;
use crate::state::{DeadLetter, Ledger, Row, Run, RunState, Standing, bucket_after};

/// How long greylisting is waited out before the next attempt. Milliseconds (RFC 6647 section 2.1 speaks of
/// one minute to an hour; five minutes is what most greylisters ask for).
pub const GREYLIST_MS: i64 = 5 * 60_000;
/// How long a recipient waits whose refusal concerned content or sender. Milliseconds.
pub const POLICY_WAIT_MS: i64 = 5 * 60_000;
/// Refusals about content or sender in a row that pause a run (P6).
pub const POLICY_REFUSALS_MAX: u8 = 10;

/// One settled recipient: where it was, where it goes, and what is written beside it.
struct Verdict {
    to: Standing,
    wait_until: Option<Time>,
    letter: Option<DeadLetter>,
}

impl Ledger {
    pub(super) fn settle(&mut self, context: &mut Context, outcomes: &[RowOutcome]) -> Outcome {
        Outcome::Moved(outcomes.iter().map(|outcome| self.settle_row(context, outcome)).sum())
    }

    fn settle_row(&mut self, context: &mut Context, outcome: &RowOutcome) -> u64 {
        let key = (outcome.page, outcome.fence);
        let (mut row, was_open) = match (self.rows.get(&outcome.fence), self.closed.get(&key)) {
            (Some(row), _) => (row.clone(), true),
            (None, Some(row)) => (row.clone(), false),
            (None, None) => return 0,
        };
        if (row.page, row.chunk) != (outcome.page, outcome.chunk) {
            return 0;
        }
        let before = row.clone();
        let mut moved = self.accept(context, outcome.fence, &mut row, &outcome.accepted);
        moved += self.refuse(context, &mut row, &outcome.refused);
        moved += self.give_back(context, &mut row, &outcome.released, false);
        moved += self.give_back(context, &mut row, &outcome.suppressed, true);
        moved += self.bury(context, &mut row, &outcome.unsendable);
        moved += self.doubt(context, &mut row, &outcome.in_doubt);
        if row != before {
            row.settled_index = context.index;
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
        self.closed.put((row.page, fence), row);
    }

    /// P14, first line: an accept is true for ever.
    fn accept(&mut self, context: &mut Context, fence: Fence, row: &mut Row, accepted: &Bitmap) -> u64 {
        let place = (row.page, row.chunk);
        let fresh = accepted.and(&row.granted).and_not(&row.sent);
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
        let elsewhere = fresh.and_not(&claimed).and_not(&doubted);
        let mut moved = claimed.len() + doubted.len();
        for slot in elsewhere.iter() {
            moved += self.accept_elsewhere(context, fence, place, slot);
        }
        for slot in fresh.iter() {
            self.edit_run(place, slot, |run| run.policy_refusals = 0);
        }
        u64::from(moved)
    }

    /// An accept for a recipient that is not in its row any more.
    fn accept_elsewhere(&mut self, context: &mut Context, fence: Fence, place: Place, slot: u16) -> u32 {
        let Some(standing) = self.chunks.get(&place).and_then(|chunk| chunk.standing(slot)) else { return 0 };
        let one: Bitmap = [slot].into_iter().collect();
        match standing {
            Standing::Pending | Standing::Assumed => {}
            Standing::Claimed | Standing::InDoubt => self.take_from_row(context, fence, place, slot),
            Standing::Sent => {
                self.edit_run(place, slot, |run| run.known_duplicates = run.known_duplicates.saturating_add(1));
                context.alarm(format!("known duplicate: slot {slot} of {} was accepted under {fence} too", place.0));
                return 0;
            }
            Standing::Dead | Standing::Suppressed | Standing::Expired | Standing::Cancelled => {
                self.edit_run(place, slot, |run| run.contradictions = run.contradictions.saturating_add(1));
                context.alarm(format!("contradiction: slot {slot} of {} is closed, yet {fence} was accepted", place.0));
                return 0;
            }
        }
        self.shift(context, place, &one, standing, Standing::Sent);
        context.emit(Effect::RunChanged(place.0));
        1
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
        row.settled_index = context.index;
        if had_claims && row.claimed.is_empty() {
            context.emit(Effect::RowClosed { fence, holder: row.holder });
        }
        self.put_row(fence, row, true);
    }

    /// Released or suppressed: definitely not handed off.
    fn give_back(&mut self, context: &mut Context, row: &mut Row, slots: &Bitmap, opted_out: bool) -> u64 {
        let mut moved = 0;
        for slot in slots.and(&row.granted).iter() {
            moved += self.definite(context, row, slot, |run, attempts, now| match () {
                () if opted_out => Verdict { to: Standing::Suppressed, wait_until: None, letter: None },
                () => demanded(run, attempts, now, None),
            });
        }
        moved
    }

    /// P6: a definite refusal, by the scope of the answer.
    fn refuse(&mut self, context: &mut Context, row: &mut Row, refused: &[Refused]) -> u64 {
        let mut moved = 0;
        for answer in refused {
            let held = row.claimed.contains(answer.slot) || row.in_doubt.contains(answer.slot);
            moved += self.definite(context, row, answer.slot, |run, attempts, now| judge(run, attempts, now, answer));
            if held {
                self.watch_policy(context, (row.page, row.chunk), answer);
            }
        }
        moved
    }

    /// It cannot be composed, now or ever: dead, with the cause.
    fn bury(&mut self, context: &mut Context, row: &mut Row, unsendable: &[(u16, String)]) -> u64 {
        let mut moved = 0;
        for (slot, cause) in unsendable {
            moved += self.definite(context, row, *slot, |_, attempts, now| Verdict {
                to: Standing::Dead,
                wait_until: None,
                letter: Some(DeadLetter {
                    code: 0,
                    enhanced: None,
                    text: cause.clone(),
                    attempts,
                    since: now,
                    discarded: false,
                }),
            });
        }
        moved
    }

    /// Moves one recipient that is in this row by a definite not-sent; disproves an assumption.
    fn definite(
        &mut self,
        context: &mut Context,
        row: &mut Row,
        slot: u16,
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
        self.shift(context, place, &one, from, verdict.to);
        if let (Some(until), Some(chunk)) = (verdict.wait_until, self.chunks.edit(&place))
            && verdict.to == Standing::Pending
        {
            chunk.waves.entry(bucket_after(until)).or_default().insert(slot);
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

    /// P14, last line: in doubt moves only what is claimed in this row.
    fn doubt(&mut self, context: &mut Context, row: &mut Row, in_doubt: &Bitmap) -> u64 {
        let slots = in_doubt.and(&row.claimed);
        row.claimed.remove(&slots);
        row.in_doubt.add(&slots);
        self.shift(context, (row.page, row.chunk), &slots, Standing::Claimed, Standing::InDoubt);
        u64::from(slots.len())
    }

    /// P6: ten answers in a row for good that do not name the mailbox pause the run.
    fn watch_policy(&mut self, context: &mut Context, place: Place, answer: &Refused) {
        let names_mailbox = answer.enhanced.is_some_and(|(_, subject, _)| subject == 1 || subject == 2);
        if answer.code < 500 || names_mailbox {
            return;
        }
        let mut halted = None;
        self.edit_run(place, answer.slot, |run| {
            run.policy_refusals = run.policy_refusals.saturating_add(1);
            if run.policy_refusals >= POLICY_REFUSALS_MAX && run.state == RunState::Open {
                let reason = format!(
                    "{POLICY_REFUSALS_MAX} refusals in a row do not name a mailbox, the last one: {} {}",
                    answer.code, answer.text
                );
                halted = Some(format!("run of {} is paused: {reason}", run.name));
                run.state = RunState::Paused { reason };
            }
        });
        if let Some(text) = halted {
            context.emit(Effect::RunChanged(place.0));
            context.alarm(text);
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

/// Where a definite not-sent leads: what the run now demands, else back, after `wait_until`.
fn demanded(run: &Run, attempts: u8, now: Time, wait_until: Option<Time>) -> Verdict {
    let stale = run.state == RunState::Expired || run.finish_by <= now;
    match run.state {
        RunState::Cancelled => Verdict { to: Standing::Cancelled, wait_until: None, letter: None },
        _ if stale && attempts > 0 => {
            let text = "the deadline passed before another attempt".to_owned();
            let letter = DeadLetter { code: 0, enhanced: None, text, attempts, since: now, discarded: false };
            Verdict { to: Standing::Dead, wait_until: None, letter: Some(letter) }
        }
        _ if stale => Verdict { to: Standing::Expired, wait_until: None, letter: None },
        _ => Verdict { to: Standing::Pending, wait_until, letter: None },
    }
}

/// P6: what an answer means for the recipient.
fn judge(run: &Run, attempts: u8, now: Time, answer: &Refused) -> Verdict {
    match answer.scope {
        Scope::Relay => demanded(run, attempts, now, Some(now)),
        Scope::Greylist => demanded(run, attempts, now, Some(now.plus_ms(GREYLIST_MS))),
        Scope::Policy => demanded(run, attempts, now, Some(now.plus_ms(POLICY_WAIT_MS))),
        Scope::Mailbox => {
            let attempts = attempts.saturating_add(1);
            let letter = DeadLetter {
                code: answer.code,
                enhanced: answer.enhanced,
                text: answer.text.clone(),
                attempts,
                since: now,
                discarded: false,
            };
            if answer.code >= 500 || attempts >= run.policies.max_attempts {
                return Verdict { to: Standing::Dead, wait_until: None, letter: Some(letter) };
            }
            let until = now.plus_ms(run.policies.backoff_ms(attempts));
            let verdict = demanded(run, attempts, now, Some(until));
            Verdict { letter: Some(letter), ..verdict }
        }
    }
}
