//! Settle: applies the outcomes of one claim (P4, P14). `relay_refusals.rs` decides what a refusal means.
//!
//! A negative outcome moves only recipients that are claimed or in doubt in that claim; for others it changes nothing.
//! An accept is always true. So a settle that arrives twice, late, or after another decision changes nothing more.

use super::Context;
use super::not_sent::{NextState, state_after_not_sent};
use crate::command::ClaimOutcome;
use crate::effect::Effect;
use crate::model::{
    Bitmap, CHUNK, ChunkKey, Claim, ClaimEventKind, CommandOutcome, DeadLetter, DeadLetterCause, DoubtReason, Fence,
    Ledger, OutcomeSource, RecipientId, RecipientState, ReleaseReason, Run, Unsendable,
};

impl Ledger {
    pub(super) fn settle(&mut self, context: &mut Context, outcomes: &[ClaimOutcome]) -> CommandOutcome {
        CommandOutcome::Changed(outcomes.iter().map(|outcome| self.settle_claim(context, outcome)).sum())
    }

    fn settle_claim(&mut self, context: &mut Context, outcome: &ClaimOutcome) -> u64 {
        let key = outcome.chunk;
        let (mut claim, was_open) = match self.claims.get(&outcome.fence) {
            Some(claim) if claim.chunk != key => return 0,
            Some(claim) => (claim.clone(), true),
            None => match self.closed_claim(key, outcome.fence) {
                Some(claim) => (claim, false),
                None => return 0,
            },
        };
        let before = claim.clone();
        let mut moved = self.accept(context, &mut claim, outcome);
        // A former cluster may have claimed again what its claim did not send (P21).
        if !self.only_operator_decides(outcome.fence) {
            record_relay(context, &mut claim, outcome);
            moved += self.apply_refusals(context, &mut claim, &outcome.refused);
            moved += self.release(context, &mut claim, outcome);
            moved += self.suppress(context, &mut claim, &outcome.suppressed);
            moved += self.mark_unsendable_dead(context, &mut claim, &outcome.unsendable);
            moved += self.doubt(context, &mut claim, outcome);
        }
        if claim != before {
            if !before.claimed.is_empty() && claim.claimed.is_empty() {
                context.emit(Effect::ClaimEmptied { fence: outcome.fence, owner: claim.owner });
            }
            self.put_claim(outcome.fence, claim, was_open);
        }
        moved
    }

    /// Stores a claim among the open ones or, if it is closed, among the closed ones.
    pub(super) fn put_claim(&mut self, fence: Fence, claim: Claim, was_open: bool) {
        if !claim.is_closed() {
            self.claims.put(fence, claim);
            return;
        }
        if was_open {
            self.claims.remove(&fence);
        }
        self.put_closed_claim(fence, &claim);
    }

    /// Applies the accepts of a claim. An accept is always true (P14.1, row *accepted*).
    fn accept(&mut self, context: &mut Context, claim: &mut Claim, outcome: &ClaimOutcome) -> u64 {
        let (fence, key) = (outcome.fence, claim.chunk);
        let mut fresh = outcome.accepted.and(&claim.granted).and_not(&claim.sent);
        let claimed = fresh.and(&claim.claimed);
        let doubted = fresh.and(&claim.in_doubt);
        let mut no_longer_held = fresh.and_not(&claimed).and_not(&doubted);
        if !no_longer_held.is_empty() {
            // Recipients of archived runs have no state: their evidence comes too late (P24).
            let state = |slot: u16| self.chunks.get(&key)?.state(slot);
            let gone: Bitmap = no_longer_held.iter().filter(|slot| state(*slot).is_none()).collect();
            fresh.remove(&gone);
            no_longer_held.remove(&gone);
        }
        if fresh.is_empty() {
            return 0;
        }
        claim.sent.add(&fresh);
        claim.claimed.remove(&claimed);
        claim.in_doubt.remove(&doubted);
        self.transition(context, key, &claimed, RecipientState::Claimed, RecipientState::Sent);
        self.transition(context, key, &doubted, RecipientState::InDoubt, RecipientState::Sent);
        let mut moved = claimed.len() + doubted.len();
        let taken = match &outcome.relay_reply {
            Some(relay_reply) if claim.granted.len() == 1 => ClaimEventKind::TestAccepted(relay_reply.clone()),
            _ => ClaimEventKind::Accepted,
        };
        claim.record(context, (taken.clone(), RecipientState::Sent), &claimed);
        claim.record(context, (taken, RecipientState::Sent), &doubted);
        for slot in no_longer_held.iter() {
            let Some((what, to)) = self.accept_no_longer_held(context, fence, key, slot) else { continue };
            moved += u32::from(what == ClaimEventKind::Accepted);
            claim.record(context, (what, to), &[slot].into_iter().collect());
        }
        self.reset_unattributed_refusals(key, &fresh);
        u64::from(moved)
    }

    /// An accept ends the series of unattributed refusals, for each of the runs (P6).
    fn reset_unattributed_refusals(&mut self, key: ChunkKey, slots: &Bitmap) {
        let Some(page) = self.pages.get(&key.page) else { return };
        let (Some(lowest), Some(highest)) = (slots.min(), slots.max()) else { return };
        let number = |slot: u16| page.run_of_slot(key.number * CHUNK + u32::from(slot));
        let (Some(first), Some(last)) = (number(lowest), number(highest)) else { return };
        let had = |number: &usize| {
            let run = &page.runs[*number];
            let accepted = || !run.slots_in(key.number).and(slots).is_empty();
            !run.unattributed_refusals.is_empty() && accepted()
        };
        let forgiven: Vec<usize> = (first..=last).filter(had).collect();
        if forgiven.is_empty() {
            return;
        }
        if let Some(page) = self.pages.edit(&key.page) {
            forgiven.into_iter().for_each(|number| page.runs[number].unattributed_refusals.clear());
        }
    }

    /// Applies an accept for a recipient that its claim no longer holds. Returns the event and the recipient's state.
    fn accept_no_longer_held(
        &mut self,
        context: &mut Context,
        fence: Fence,
        key: ChunkKey,
        slot: u16,
    ) -> Option<(ClaimEventKind, RecipientState)> {
        let state = self.chunks.get(&key).and_then(|chunk| chunk.state(slot))?;
        let one: Bitmap = [slot].into_iter().collect();
        match state {
            RecipientState::Pending | RecipientState::Assumed => {}
            RecipientState::Claimed | RecipientState::InDoubt => self.take_from_other_claim(context, fence, key, slot),
            RecipientState::Sent => {
                self.edit_run(key, slot, |run| run.known_duplicates = run.known_duplicates.saturating_add(1));
                context.alarm(format!("known duplicate: slot {slot} of {} was accepted under {fence} too", key.page));
                return Some((ClaimEventKind::KnownDuplicate, state));
            }
            RecipientState::Dead | RecipientState::Suppressed | RecipientState::Expired | RecipientState::Cancelled => {
                self.edit_run(key, slot, |run| run.contradictions = run.contradictions.saturating_add(1));
                context
                    .alarm(format!("contradiction: slot {slot} of {} is closed, yet {fence} was accepted", key.page));
                return Some((ClaimEventKind::Contradiction, state));
            }
        }
        self.transition(context, key, &one, state, RecipientState::Sent);
        Some((ClaimEventKind::Accepted, RecipientState::Sent))
    }

    /// Removes a recipient from the other open claim that contains it.
    fn take_from_other_claim(&mut self, context: &mut Context, except: Fence, key: ChunkKey, slot: u16) {
        let holds =
            |claim: &Claim| claim.chunk == key && (claim.claimed.contains(slot) || claim.in_doubt.contains(slot));
        let Some(fence) =
            self.claims.iter().find(|(fence, claim)| **fence != except && holds(claim)).map(|(fence, _)| *fence)
        else {
            return;
        };
        let Some(mut claim) = self.claims.get(&fence).cloned() else { return };
        let one: Bitmap = [slot].into_iter().collect();
        let had_claims = !claim.claimed.is_empty();
        claim.claimed.remove(&one);
        claim.in_doubt.remove(&one);
        claim.record(context, (ClaimEventKind::AcceptedElsewhere, RecipientState::Sent), &one);
        if had_claims && claim.claimed.is_empty() {
            context.emit(Effect::ClaimEmptied { fence, owner: claim.owner });
        }
        self.put_claim(fence, claim, true);
    }

    /// Applies releases: definitely not handed off. A recipient that was being prepared when the owner crashed becomes
    /// a crash suspect. A suspect that was prepared alone at a second crash is dead (P12).
    fn release(&mut self, context: &mut Context, claim: &mut Claim, outcome: &ClaimOutcome) -> u64 {
        let key = claim.chunk;
        let mut moved = 0;
        let released = outcome.released.iter().flat_map(|(why, slots)| slots.iter().map(move |slot| (*why, slot)));
        for (why, slot) in released {
            let was_composing = why == ReleaseReason::OwnerCrashedComposing;
            let killed_again = was_composing && outcome.alone && self.is_crash_suspect(key, slot);
            let what = ClaimEventKind::Released(Some(why));
            let left = self.apply_not_sent(context, claim, (slot, what), |run, attempts, now| {
                match state_after_not_sent(run, attempts, now, None) {
                    // The owner crashed a second time while it prepared this recipient's email and no other (P12).
                    NextState { to: RecipientState::Pending, .. } if killed_again => {
                        NextState::dead(DeadLetter::without_answer(DeadLetterCause::CrashedComposing, attempts, now))
                    }
                    next => next,
                }
            });
            if was_composing && left > 0 && self.is_in_state(key, slot, RecipientState::Pending) {
                self.edit_crash_suspects(key, |crash_suspects| {
                    crash_suspects.insert(slot);
                });
            }
            moved += left;
        }
        moved
    }

    /// Applies suppressions: definitely not handed off, because the recipient opted out.
    fn suppress(&mut self, context: &mut Context, claim: &mut Claim, slots: &Bitmap) -> u64 {
        let mut moved = 0;
        for slot in slots.and(&claim.granted).iter() {
            moved += self.apply_not_sent(context, claim, (slot, ClaimEventKind::Suppressed), |_, _, _| {
                NextState::to(RecipientState::Suppressed)
            });
        }
        moved
    }

    /// Marks recipients dead whose email no relay can be given, with the cause.
    fn mark_unsendable_dead(
        &mut self,
        context: &mut Context,
        claim: &mut Claim,
        unsendable: &[(u16, Unsendable)],
    ) -> u64 {
        let mut moved = 0;
        for (slot, cause) in unsendable {
            let what = ClaimEventKind::Unsendable(cause.clone());
            moved += self.apply_not_sent(context, claim, (*slot, what), |_, attempts, now| {
                NextState::dead(DeadLetter::without_answer(DeadLetterCause::Unsendable(cause.clone()), attempts, now))
            });
        }
        moved
    }

    /// Puts recipients in doubt that are claimed in this claim (P14.1, row *in doubt*). Recipients that are in doubt
    /// already, because their owner was lost, stay so: only the history records that their owner or its journal has now
    /// reported a doubt. A later accept still counts.
    fn doubt(&mut self, context: &mut Context, claim: &mut Claim, outcome: &ClaimOutcome) -> u64 {
        let doubt = match outcome.source {
            OutcomeSource::Owner => DoubtReason::NoAnswer,
            OutcomeSource::Journal => DoubtReason::Begun,
            OutcomeSource::NoJournal => DoubtReason::NoJournal,
        };
        let slots = outcome.in_doubt.and(&claim.claimed);
        let given_up = claim.history.given_up(&claim.granted).and(&claim.in_doubt).and(&outcome.in_doubt);
        claim.record(context, (ClaimEventKind::InDoubt(doubt), RecipientState::InDoubt), &given_up);
        claim.record(context, (ClaimEventKind::InDoubt(doubt), RecipientState::InDoubt), &slots);
        claim.claimed.remove(&slots);
        claim.in_doubt.add(&slots);
        self.transition(context, claim.chunk, &slots, RecipientState::Claimed, RecipientState::InDoubt);
        self.clear_crash_suspects(claim.chunk, &slots);
        u64::from(slots.len())
    }

    fn is_crash_suspect(&self, key: ChunkKey, slot: u16) -> bool {
        self.chunks.get(&key).is_some_and(|chunk| chunk.crash_suspects.contains(slot))
    }

    /// These recipients passed a gate, or a relay answered about them. So preparing them does not crash a node (P12).
    pub(super) fn clear_crash_suspects(&mut self, key: ChunkKey, slots: &Bitmap) {
        if self.chunks.get(&key).is_some_and(|chunk| !chunk.crash_suspects.and(slots).is_empty()) {
            self.edit_crash_suspects(key, |crash_suspects| crash_suspects.remove(slots));
        }
    }

    fn edit_crash_suspects(&mut self, key: ChunkKey, edit: impl FnOnce(&mut Bitmap)) {
        if let Some(chunk) = self.chunks.edit(&key) {
            edit(&mut chunk.crash_suspects);
        }
    }

    /// Edits the run of a slot. Returns what `edit` returns; `None` if there is no such run.
    pub(super) fn edit_run<T>(&mut self, key: ChunkKey, slot: u16, edit: impl FnOnce(&mut Run) -> T) -> Option<T> {
        let page = self.pages.edit(&key.page)?;
        let number = page.run_of_slot(key.number * CHUNK + u32::from(slot))?;
        Some(edit(&mut page.runs[number]))
    }

    /// Returns the recipient of a slot.
    pub fn recipient_at(&self, key: ChunkKey, slot: u16) -> Option<RecipientId> {
        let page = self.pages.get(&key.page)?;
        let whole = key.number * CHUNK + u32::from(slot);
        let number = page.run_of_slot(whole)?;
        let run = page.runs.get(number)?;
        Some(key.page.run_id(run).recipient(whole - run.first))
    }
}

impl Claim {
    /// Adds to the history what this entry did to `slots`, and their state after it.
    pub(super) fn record(&mut self, context: &Context, event: (ClaimEventKind, RecipientState), slots: &Bitmap) {
        self.history.record((context.index, context.now), event, slots, &self.granted);
    }
}

/// Adds to the history which relay refused a test email or left it in doubt, so that the operator can read its log.
fn record_relay(context: &Context, claim: &mut Claim, outcome: &ClaimOutcome) {
    let Some(relay_reply) = outcome.relay_reply.as_ref().filter(|_| claim.granted.len() == 1) else { return };
    let refused: Bitmap = outcome.refused.iter().map(|refused| refused.slot).collect();
    let mut answered = outcome.in_doubt.clone();
    answered.add(&refused);
    claim.record(
        context,
        (ClaimEventKind::TestRelay(relay_reply.relay.clone()), RecipientState::Claimed),
        &answered.and(&claim.claimed),
    );
}
