//! What a definite not-sent does to its recipient (P14.1): the state that the state of the run demands.

use super::Context;
use crate::model::{
    Bitmap, CHUNK, ChunkKey, Claim, ClaimEventKind, DeadLetter, DeadLetterCause, Ledger, RecipientState, Run, RunState,
    Time, wave_after,
};

/// The next state of a settled recipient, with its wait or its dead letter.
pub(super) struct NextState {
    pub to: RecipientState,
    /// Earliest time of the next attempt, if the next state is `Pending`.
    pub wait_until: Option<Time>,
    /// Counted attempts and last answer; stored as a dead letter if the next state is `Dead`.
    pub dead_letter: Option<DeadLetter>,
}

impl NextState {
    /// A state without a wait and without a dead letter.
    pub(super) fn to(to: RecipientState) -> NextState {
        NextState { to, wait_until: None, dead_letter: None }
    }

    pub(super) fn dead(letter: DeadLetter) -> NextState {
        NextState { dead_letter: Some(letter), ..NextState::to(RecipientState::Dead) }
    }
}

impl Ledger {
    /// Moves one recipient of this claim that was definitely not sent. Its `next_state` depends on its run, its counted
    /// attempts and the time. If it was assumed to be sent, the assumption is disproved, and is counted (P14).
    pub(super) fn apply_not_sent(
        &mut self,
        context: &mut Context,
        claim: &mut Claim,
        (slot, what): (u16, ClaimEventKind),
        next_state: impl FnOnce(&Run, u8, Time) -> NextState,
    ) -> u64 {
        let key = claim.chunk;
        let from = if claim.claimed.contains(slot) {
            RecipientState::Claimed
        } else if claim.in_doubt.contains(slot) {
            RecipientState::InDoubt
        } else if claim.assumed.contains(slot) && self.is_in_state(key, slot, RecipientState::Assumed) {
            RecipientState::Assumed
        } else {
            return 0;
        };
        let one: Bitmap = [slot].into_iter().collect();
        claim.claimed.remove(&one);
        claim.in_doubt.remove(&one);
        claim.assumed.remove(&one);
        if from == RecipientState::Assumed {
            self.edit_run(key, slot, |run| run.assumptions_disproved = run.assumptions_disproved.saturating_add(1));
        }
        let attempts = self.chunks.get(&key).and_then(|chunk| chunk.attempts.get(&slot).copied()).unwrap_or(0);
        let Some(run) = self.run_at(key, slot) else { return 0 };
        let next = next_state(run, attempts, context.now);
        claim.record(context, (what, next.to), &one);
        self.transition(context, key, &one, from, next.to);
        if let (RecipientState::Pending, Some(until)) = (next.to, next.wait_until) {
            self.wait(key, slot, until);
        }
        if let Some(letter) = next.dead_letter {
            if letter.attempts > attempts
                && let Some(chunk) = self.chunks.edit(&key)
            {
                chunk.attempts.insert(slot, letter.attempts);
            }
            if next.to == RecipientState::Dead
                && let Some(recipient) = self.recipient_at(key, slot)
            {
                self.dead.put(recipient, letter);
            }
        }
        1
    }

    /// Lets a pending recipient wait for the wave of `until`.
    pub(super) fn wait(&mut self, key: ChunkKey, slot: u16, until: Time) {
        if let Some(chunk) = self.chunks.edit(&key) {
            chunk.waves.entry(wave_after(until)).or_default().insert(slot);
        }
    }

    pub(super) fn is_in_state(&self, key: ChunkKey, slot: u16, state: RecipientState) -> bool {
        self.chunks.get(&key).is_some_and(|chunk| chunk.set(state).contains(slot))
    }

    fn run_at(&self, key: ChunkKey, slot: u16) -> Option<&Run> {
        let page = self.pages.get(&key.page)?;
        page.runs.get(page.run_of_slot(key.number * CHUNK + u32::from(slot))?)
    }
}

/// Next state after a definite not-sent: the one that the run's state demands, else pending until `wait_until`.
pub(super) fn state_after_not_sent(run: &Run, attempts: u8, now: Time, wait_until: Option<Time>) -> NextState {
    let stale = is_stale(run, now);
    match run.state {
        RunState::Cancelled { .. } => NextState::to(RecipientState::Cancelled),
        _ if stale && attempts > 0 => {
            NextState::dead(DeadLetter::without_answer(DeadLetterCause::DeadlinePassed, attempts, now))
        }
        _ if stale => NextState::to(RecipientState::Expired),
        _ => NextState { to: RecipientState::Pending, wait_until, dead_letter: None },
    }
}

/// True if a recipient of the run that was not sent by now is not sent any more.
pub(super) fn is_stale(run: &Run, now: Time) -> bool {
    matches!(run.state, RunState::Expired { .. }) || run.finish_by <= now
}
