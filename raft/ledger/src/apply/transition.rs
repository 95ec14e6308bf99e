//! The only place where a recipient changes its state.
//!
//! A transition moves slots from one set of a chunk to another and moves the counts of their runs by the same number.
//! So the sum over all states stays the size of the audience (P1), whatever the commands do.

use std::collections::BTreeMap;

use super::Context;
use crate::effect::Effect;
use crate::model::{
    Bitmap, CHUNK, CanaryVerdict, Ledger, PauseReason, RecipientState, Run, RunEventKind, RunId, RunState,
};
use crate::model::{DeadLetter, Time};

/// Key of a chunk: its page and its number.
pub(super) type ChunkKey = (RunId, u32);

/// The next state of a settled recipient, with its wait or its dead letter.
pub(super) struct Transition {
    pub to: RecipientState,
    /// Earliest time of the next attempt, if the next state is `Pending`.
    pub wait_until: Option<Time>,
    /// Counted attempts and last answer; stored as a dead letter if the next state is `Dead`.
    pub letter: Option<DeadLetter>,
}

impl Ledger {
    /// Moves slots of one chunk from state `from` to `to`.
    ///
    /// # Panics
    /// Panics if a slot is in another state: an error of the ledger itself (P1).
    pub(super) fn transition(
        &mut self,
        context: &mut Context,
        place: ChunkKey,
        slots: &Bitmap,
        from: RecipientState,
        to: RecipientState,
    ) {
        if slots.is_empty() || from == to {
            return;
        }
        let Some(chunk) = self.chunks.edit(&place) else { return };
        let moved = slots.and(chunk.set(from));
        assert_eq!(moved.len(), slots.len(), "P1: {slots:?} do not all stand at {from:?} in {place:?}");
        chunk.sets[from as usize].remove(slots);
        chunk.sets[to as usize].add(slots);
        if to.is_terminal() {
            chunk.crash_suspects.remove(slots);
        }
        if to.is_terminal() && to != RecipientState::Expired {
            chunk.deferrals.remove(slots);
        }
        if from == RecipientState::Pending {
            chunk.waves.retain(|_, waiting| {
                waiting.remove(slots);
                !waiting.is_empty()
            });
        }
        if chunk.is_at_rest() {
            chunk.rest();
        }
        self.transition_counts(context, place, slots, from, to);
        if from == RecipientState::Claimed || to == RecipientState::Claimed {
            self.note_pools(context, place, slots, (from, to));
        }
        if to == RecipientState::Pending {
            self.derived.open_pages.insert(place.0);
            context.emit(Effect::WorkAppeared(place.0));
        }
    }

    fn transition_counts(
        &mut self,
        context: &mut Context,
        (id, chunk): ChunkKey,
        slots: &Bitmap,
        from: RecipientState,
        to: RecipientState,
    ) {
        let bounce_breaker = &self.limits().bounce_breaker;
        let (Some(page), Some(lowest)) = (self.pages.edit(&id), slots.min()) else { return };
        note_claimed(&mut self.derived.claimed, &page.tenant, (from, to), slots.len());
        let base = chunk * CHUNK;
        let mut left = slots.len();
        let start = page.run_of_slot(base + u32::from(lowest)).unwrap_or(0);
        let (mut turned, mut mailed, mut judged) = (Vec::new(), Vec::new(), Vec::new());
        for (place, run) in page.runs.iter_mut().enumerate().skip(start) {
            if left == 0 {
                break;
            }
            let first = run.first.saturating_sub(base);
            let last = (run.first + run.count - 1).saturating_sub(base).min(CHUNK - 1);
            let count = slots.count_in(first..=last);
            if count == 0 {
                continue;
            }
            left -= count;
            let name = RunId { index: id.index, place: id.place + place as u32 };
            let mailed_before = run.counts.has_emails();
            run.counts.transition(from, to, count);
            if run.counts.has_emails() != mailed_before {
                mailed.push((!mailed_before, (run.schedule, run.due, name)));
            }
            match (run.counts.is_finished(), run.finished_index) {
                (true, None) => {
                    run.finished_index = Some(context.index);
                    run.finished_at = Some(context.now);
                    run.blocked = None;
                    context.emit(Effect::RunFinished(name));
                    turned.push((run.schedule, name));
                }
                (false, Some(_)) => {
                    (run.finished_index, run.finished_at) = (None, None);
                    turned.push((run.schedule, name));
                }
                _ => {}
            }
            run.state = state_after_move(run);
            run.note_canary(chunk, slots, (from, to));
            let of_canary = run.judge_canary().map(|canary| match canary.verdict {
                CanaryVerdict::Held => RunEventKind::Paused(PauseReason::Canary(canary)),
                _ => RunEventKind::CanaryPassed,
            });
            let of_breaker = run.count_bounces((from, to), count, bounce_breaker).map(RunEventKind::Paused);
            if matches!((&of_canary, &of_breaker), (Some(RunEventKind::Paused(_)), _) | (_, Some(_))) {
                turned.push((run.schedule, name));
            }
            judged.extend([of_canary, of_breaker].into_iter().flatten().map(|event| (name, run.name.clone(), event)));
        }
        if !page.is_open() {
            self.derived.open_pages.remove(&id);
        }
        for (has_sent, run) in mailed {
            // The index of runs with emails, which the `min_gap` check reads (P17).
            let _ = if has_sent { self.derived.mailed.insert(run) } else { self.derived.mailed.remove(&run) };
        }
        for (run, schedule, event) in judged {
            if let RunEventKind::Paused(reason) = &event {
                context.alarm(format!("run of {schedule} is paused: {reason}"));
            }
            self.record_run_event(context, run, event, BTreeMap::new());
            context.emit(Effect::RunChanged(id));
            context.emit(Effect::WorkAppeared(id));
        }
        for (schedule, run) in turned {
            self.note_unfinished(context, schedule, run);
        }
    }

    /// Returns the slots of a run within a chunk of its page; empty if it has none there.
    pub(crate) fn slots_of_run(first: u32, count: u32, chunk: u32) -> Bitmap {
        let base = u64::from(chunk) * u64::from(CHUNK);
        let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
        let within = |slot: u64| slot.saturating_sub(base).min(u64::from(CHUNK)) as u32;
        Bitmap::range(within(first), within(end) - within(first))
    }

    /// Returns the range of chunks that have slots of a run.
    pub(super) fn chunks_of_run(first: u32, count: u32) -> std::ops::Range<u32> {
        first / CHUNK..first.saturating_add(count).div_ceil(CHUNK)
    }
}

/// Counts the claimed recipients of a tenant (P12) or of a pool (P25).
pub(super) fn note_claimed(
    claimed: &mut BTreeMap<String, u32>,
    whose: &str,
    (from, to): (RecipientState, RecipientState),
    count: u32,
) {
    if to == RecipientState::Claimed {
        match claimed.get_mut(whose) {
            Some(known) => *known += count,
            None => drop(claimed.insert(whose.to_owned(), count)),
        }
    }
    if from == RecipientState::Claimed
        && let Some(known) = claimed.get_mut(whose)
    {
        *known -= count;
        if *known == 0 {
            claimed.remove(whose);
        }
    }
}

/// An open run finishes when nothing is pending or claimed, and opens again when a recipient becomes pending. A pause
/// holds until the operator resumes the run (P15), unless no recipient can become pending again.
fn state_after_move(run: &Run) -> RunState {
    match (&run.state, run.counts.is_finished()) {
        (RunState::Open, true) => RunState::Finished,
        (RunState::Paused { .. }, true) if !run.may_come_back() => RunState::Finished,
        (RunState::Finished, false) => RunState::Open,
        (state, _) => state.clone(),
    }
}
