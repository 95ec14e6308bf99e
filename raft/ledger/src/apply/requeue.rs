//! Dead letters: requeued, by the same pool or another, or discarded.
//!
//! A new pool applies to the requeued recipients only. The other recipients of the run keep their pool. All of them
//! stay in the same run and in its counts (P1).

use std::collections::BTreeSet;

use super::Context;
use super::gap::GapLookups;
use crate::command::{PickedLetters, PickedRecipients, Requeue};
use crate::model::{
    Bitmap, ChangedRecipients, ChunkKey, CommandOutcome, CommandRefusal, Impossible, Ledger, RecipientState,
    RunEventKind, remove_from_all,
};

impl Ledger {
    /// Sends dead recipients again, with attempts counted from zero, by another pool if one is named. A pool without a
    /// relay is refused: the recipients would only wait for their deadline.
    pub(super) fn requeue(
        &mut self,
        context: &mut Context,
        requeue: &Requeue,
    ) -> Result<CommandOutcome, CommandRefusal> {
        if let Some(pool) = &requeue.pool
            && !self.serves(pool)
        {
            return Err(Impossible::PoolWithoutRelay(pool.clone()).into());
        }
        let pool = requeue.pool.as_deref();
        self.move_letters(&requeue.letters, |ledger, picked| ledger.requeue_of(context, picked, pool))
    }

    /// Moves the picked recipients of each run, and adds up the numbers. The refusal of the only run is that of the
    /// command. The sum is stored as the answer, so its size does not depend on the number of runs.
    fn move_letters(
        &mut self,
        letters: &PickedLetters,
        mut of_run: impl FnMut(&mut Ledger, &PickedRecipients) -> Result<ChangedRecipients, CommandRefusal>,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let (mut moved, mut cancelled) = (ChangedRecipients::default(), letters.cancelled);
        for picked in &letters.picked {
            match of_run(self, picked) {
                Ok(ChangedRecipients { recipients, inside_gap }) => {
                    moved.recipients += recipients;
                    moved.inside_gap += inside_gap;
                }
                Err(refusal) if letters.picked.len() == 1 => return Err(refusal),
                Err(_) => {
                    let left = self.dead_numbers(picked).map_or(0, |numbers| numbers.len() as u64);
                    cancelled = cancelled.saturating_add(left);
                }
            }
        }
        Ok(CommandOutcome::DeadLetters { moved, cancelled, rest: letters.rest })
    }

    /// Requeues recipients of one run. It leaves out recipients with an email of another run within `min_gap` (P17): a
    /// claim would suppress them, and their dead letters would be lost.
    fn requeue_of(
        &mut self,
        context: &mut Context,
        picked: &PickedRecipients,
        pool: Option<&str>,
    ) -> Result<ChangedRecipients, CommandRefusal> {
        self.may_send_again(picked.run)?;
        if let (Some(pool), Some((_, page, _))) = (pool, self.page_of(picked.run)) {
            self.check_pool(&page.tenant, pool)?;
        }
        let mut numbers = self.dead_numbers(picked)?;
        let mut lookups = GapLookups::default();
        let near = self.inside_gap(&mut lookups, picked.run, numbers.iter().copied());
        self.keep_mappings(lookups);
        numbers.retain(|number| !near.contains(number));
        if !numbers.is_empty() {
            self.reopen(context, picked.run)?;
        }
        for number in &numbers {
            let Some((key, slot)) = self.slot_of(picked.run, *number) else { continue };
            let one: Bitmap = [slot].into_iter().collect();
            self.dead.remove(&picked.run.recipient(*number));
            if let Some(chunk) = self.chunks.edit(&key) {
                chunk.attempts.remove(&slot);
            }
            if let Some(pool) = pool {
                self.redirect(key, &one, pool);
            }
            self.transition(context, key, &one, RecipientState::Dead, RecipientState::Pending);
        }
        self.record_recipients_event(context, picked.run, RunEventKind::Requeued(pool.map(str::to_owned)), &numbers);
        Ok(ChangedRecipients { recipients: numbers.len() as u64, inside_gap: near.len() as u64 })
    }

    /// Moves a slot to this pool. Claimed recipients and those in doubt are never moved, because a claim has one pool.
    fn redirect(&mut self, key: ChunkKey, one: &Bitmap, pool: &str) {
        let is_own = self.pages.get(&key.page).is_some_and(|page| *page.pool == *pool);
        let Some(chunk) = self.chunks.edit(&key) else { return };
        remove_from_all(&mut chunk.pool_overrides, one);
        if !is_own {
            chunk.pool_overrides.entry(pool.to_owned()).or_default().add(one);
        }
    }

    /// Discards dead letters; the recipients stay dead.
    pub(super) fn discard(
        &mut self,
        context: &mut Context,
        letters: &PickedLetters,
    ) -> Result<CommandOutcome, CommandRefusal> {
        self.move_letters(letters, |ledger, picked| ledger.discard_of(context, picked))
    }

    fn discard_of(
        &mut self,
        context: &mut Context,
        picked: &PickedRecipients,
    ) -> Result<ChangedRecipients, CommandRefusal> {
        let numbers = self.dead_numbers(picked)?;
        for number in &numbers {
            if let Some(letter) = self.dead.edit(&picked.run.recipient(*number)) {
                letter.discarded = true;
            }
        }
        self.record_recipients_event(context, picked.run, RunEventKind::Discarded, &numbers);
        Ok(ChangedRecipients { recipients: numbers.len() as u64, inside_gap: 0 })
    }

    /// Returns the picked recipients with a dead letter that is not discarded.
    fn dead_numbers(&self, picked: &PickedRecipients) -> Result<Vec<u32>, CommandRefusal> {
        self.page_of(picked.run).ok_or(CommandRefusal::NoSuchRun(picked.run))?;
        let meant: BTreeSet<u32> = picked.recipients.iter().copied().collect();
        let listed = self.dead.range(picked.run.recipients()).filter(|(_, letter)| !letter.discarded);
        let numbers = listed.map(|(recipient, _)| recipient.number);
        Ok(numbers.filter(|number| meant.is_empty() || meant.contains(number)).collect())
    }
}
