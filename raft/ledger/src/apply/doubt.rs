//! Decisions of operators and policies about recipients in doubt.

use std::collections::BTreeMap;

use super::Context;
use super::bounds::refuse_if;
use super::gap::GapLookups;
use crate::command::{Decide, Decision};
use crate::injected_bugs::{self, Bug};
use crate::model::{
    Bitmap, CHUNK, ChangedRecipients, ChunkKey, ClaimEventKind, CommandOutcome, CommandRefusal, Decider, Fence,
    Impossible, Ledger, RecipientState, Run, RunId, RunState, RunStateKind, Time,
};

impl Ledger {
    /// Decides about recipients in doubt. Their owner reported the doubt after their gate, or its lease is over; so it
    /// can no longer pass a gate for them (P14).
    ///
    /// A recipient that was sent to again since may be in doubt for another handoff, of which the decision knows
    /// nothing. So claims after `up_to` keep their doubts.
    pub(super) fn decide(&mut self, context: &mut Context, decide: &Decide) -> Result<CommandOutcome, CommandRefusal> {
        let (to, what) = match decide.decision {
            Decision::Assume => (RecipientState::Assumed, ClaimEventKind::Assumed(decide.by)),
            Decision::Resend => (RecipientState::Pending, ClaimEventKind::Resent(decide.by)),
            Decision::Sent => (RecipientState::Sent, ClaimEventKind::AcceptedByLog),
        };
        let resends = decide.decision == Decision::Resend;
        refuse_if(to == RecipientState::Sent && decide.by == Decider::Policy, Impossible::EvidenceOfPolicy)?;
        if resends {
            self.may_send_again(decide.run)?;
        }
        let counts = resends && decide.by == Decider::Policy;
        let is_late = self.run(decide.run).is_some_and(|run| run.finish_by <= context.now);
        refuse_if(counts && is_late, Impossible::PastDeadline)?;
        let mut chosen = self.doubts(decide)?;
        if counts {
            chosen = self.with_attempts_left(decide.run, chosen);
        }
        let inside_gap = if resends { self.remove_inside_gap(decide.run, &mut chosen) } else { 0 };
        if resends && !chosen.is_empty() {
            self.reopen(context, decide.run)?;
        }
        let moved = chosen.iter().map(|(_, slots)| slots.len()).sum();
        if resends {
            // First: from now on the run may have sent these emails, whatever becomes of its recipients (P17).
            self.change_run(context, decide.run, |run| {
                run.resent = run.resent.saturating_add(moved);
                Ok(())
            })?;
        }
        for (fence, slots) in chosen {
            let Some(mut claim) = self.claims.get(&fence).cloned() else { continue };
            claim.in_doubt.remove(&slots);
            match decide.decision {
                Decision::Assume => claim.assumed.add(&slots),
                Decision::Sent => claim.sent.add(&slots),
                Decision::Resend => {}
            }
            claim.record(context, (what.clone(), to), &slots);
            let key = claim.chunk;
            self.put_claim(fence, claim, true);
            self.transition(context, key, &slots, RecipientState::InDoubt, to);
            if resends && let Some(chunk) = self.chunks.edit(&key) {
                chunk.resent.add(&slots);
            }
            if counts {
                slots.iter().for_each(|slot| self.count_attempt(decide.run, key, slot, context.now));
            }
        }
        Ok(CommandOutcome::ChangedByRun(vec![Ok(ChangedRecipients { recipients: u64::from(moved), inside_gap })]))
    }

    /// Removes from `chosen` each recipient that `min_gap` would suppress if its email were sent again, and returns
    /// their number (P17). These recipients stay in doubt: if they were made pending, they would end as suppressed, and
    /// a later acceptance would be a contradiction (P14).
    fn remove_inside_gap(&mut self, run: RunId, chosen: &mut Vec<(Fence, Bitmap)>) -> u64 {
        let mut lookups = GapLookups::default();
        let mut left = 0;
        for (fence, slots) in chosen.iter_mut() {
            let near = self.doubts_inside_gap(&mut lookups, run, *fence);
            left += u64::from(near.and(slots).len());
            slots.remove(&near);
        }
        self.keep_mappings(lookups);
        chosen.retain(|(_, slots)| !slots.is_empty());
        left
    }

    /// Returns the recipients in doubt in a claim that `min_gap` would suppress if they were sent again (P17).
    pub fn doubts_inside_gap(&self, lookups: &mut GapLookups, run: RunId, claim: Fence) -> Bitmap {
        let Some(claim) = self.claims.get(&claim) else { return Bitmap::new() };
        let of_run = |slot: &u16| {
            let recipient = self.recipient_at(claim.chunk, *slot)?;
            (recipient.run == run).then_some(recipient.number)
        };
        let numbers = claim.in_doubt.iter().filter_map(|slot| of_run(&slot));
        let near = self.inside_gap(lookups, run, numbers);
        claim.in_doubt.iter().filter(|slot| of_run(slot).is_some_and(|number| near.contains(&number))).collect()
    }

    /// Returns the claims with the recipients in doubt that the decision names, each with their slots.
    fn doubts(&self, decide: &Decide) -> Result<Vec<(Fence, Bitmap)>, CommandRefusal> {
        let (page, _, _) = self.page_of(decide.run).ok_or(CommandRefusal::NoSuchRun(decide.run))?;
        let mut picked: BTreeMap<u32, Bitmap> = BTreeMap::new();
        let mut found = Vec::new();
        let is_meant = |fence: &Fence| {
            let is_covered = decide.up_to.is_none_or(|up_to| *fence <= up_to);
            is_covered && (decide.by == Decider::Operator || !self.only_operator_decides(*fence))
        };
        let claims = self.claims.iter().filter(|(fence, claim)| claim.chunk.page == page && is_meant(fence));
        for (fence, claim) in claims.filter(|(_, claim)| !claim.in_doubt.is_empty()) {
            let chunk = claim.chunk.number;
            let meant = picked.entry(chunk).or_insert_with(|| self.picked(decide.run, &decide.recipients, chunk));
            let slots = claim.in_doubt.and(meant);
            if !slots.is_empty() {
                found.push((*fence, slots));
            }
        }
        Ok(found)
    }

    /// True if the policy `resend` may send this recipient in doubt again (P14). This is a counted attempt; after the
    /// last one an operator decides.
    pub fn may_resend(&self, run: &Run, key: ChunkKey, slot: u16) -> bool {
        let attempts = self.chunks.get(&key).and_then(|chunk| chunk.attempts.get(&slot).copied()).unwrap_or(0);
        attempts.saturating_add(1) < run.policies.max_attempts || injected_bugs::is(Bug::NoMaxAttempts)
    }

    fn with_attempts_left(&self, run: RunId, chosen: Vec<(Fence, Bitmap)>) -> Vec<(Fence, Bitmap)> {
        let Some(run) = self.run(run) else { return Vec::new() };
        let left = chosen.into_iter().filter_map(|(fence, slots)| {
            let claim = self.claims.get(&fence)?;
            let key = claim.chunk;
            let slots: Bitmap = slots.iter().filter(|slot| self.may_resend(run, key, *slot)).collect();
            (!slots.is_empty()).then_some((fence, slots))
        });
        left.collect()
    }

    fn count_attempt(&mut self, run: RunId, key: ChunkKey, slot: u16, now: Time) {
        let Some(policies) = self.run(run).map(|run| run.policies.clone()) else { return };
        let Some(chunk) = self.chunks.edit(&key) else { return };
        let attempts = chunk.attempts.entry(slot).or_default();
        *attempts = attempts.saturating_add(1);
        let until = now.plus_ms(policies.backoff_ms(*attempts));
        self.wait(key, slot, until);
    }

    /// Checks that recipients of a run may be sent again. A cancelled run stays cancelled.
    ///
    /// # Errors
    /// Fails if the run is cancelled or unknown.
    pub fn may_send_again(&self, run: RunId) -> Result<(), CommandRefusal> {
        match self.run(run).ok_or(CommandRefusal::NoSuchRun(run))?.state {
            RunState::Cancelled { .. } => Err(Impossible::RunIs(RunStateKind::Cancelled).into()),
            _ => Ok(()),
        }
    }

    /// Gives a run that is past its deadline a new one, because recipients are sent again. A pause continues, also one
    /// before the deadline: the operator has not resumed the run, and its other recipients wait until then (P15).
    ///
    /// The other recipients keep their deadline: pending ones past it expire first, whether or not the auditor proposed
    /// it. A run that was over takes no further part in `overlap`, since its new deadline does not end at the
    /// schedule's next instant.
    pub(super) fn reopen(&mut self, context: &mut Context, run: RunId) -> Result<(), CommandRefusal> {
        self.expire(context, &[run]);
        let now = context.now;
        self.change_run(context, run, |run| {
            run.reopened |= run.counts.is_finished() || run.finish_by <= now;
            if run.finish_by <= now {
                run.finish_by = now.plus_ms(run.policies.finish_by_ms);
            }
            if let RunState::Expired { paused } = &mut run.state {
                run.state = match paused.take() {
                    Some(reason) => RunState::Paused { reason },
                    None if run.counts.is_finished() => RunState::Finished,
                    None => RunState::Open,
                };
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Returns the slots of the picked recipients within a chunk of the run's page. An empty list means all.
    fn picked(&self, run: RunId, recipients: &[u32], chunk: u32) -> Bitmap {
        let Some((_, page, position)) = self.page_of(run) else { return Bitmap::new() };
        let run = &page.runs[position];
        if recipients.is_empty() {
            return run.slots_in(chunk);
        }
        let slots = recipients.iter().filter(|number| **number < run.count).map(|number| run.first + number);
        slots.filter(|slot| slot / CHUNK == chunk).map(|slot| (slot % CHUNK) as u16).collect()
    }
}
