//! Settings of pools. The daily cap of a warm-up is enforced at the claim (P25).
//!
//! Recipients count for a day if they were sent on it or may have been. Claimed recipients count as if they were sent,
//! so a day never exceeds its cap, whatever the leader knew. A recipient that is released unsent no longer counts.

use super::Context;
use super::bounds::{bounded, refuse_if};
use crate::command::Removal;
use crate::model::{
    Bitmap, ChunkKey, CommandOutcome, CommandRefusal, Day, EtagKind, Impossible, Ledger, LimitedQuantity, NO_ETAG,
    PoolRow, PoolSet, RecipientState, StateChange, Time, check_etag,
};

impl Ledger {
    pub(super) fn pool_set(&mut self, context: &Context, set: &PoolSet) -> Result<CommandOutcome, CommandRefusal> {
        let PoolSet { pool, caps, first, reveille_headers, .. } = set;
        let most = self.limits().warm_up_days_max;
        bounded(LimitedQuantity::WarmUpDays, caps.len(), most)?;
        let says_nothing = caps.is_empty() && (first.is_some() || reveille_headers.is_none());
        refuse_if(says_nothing || caps.contains(&0), Impossible::DayWithoutCap)?;
        let (today, known) = (Day::of(context.now), self.pools.get(pool).cloned());
        if let Some(first) = first
            && (*first > today || today.0.saturating_sub(first.0) > most as i64)
        {
            return Err(Impossible::WarmUpBegin.into());
        }
        self.forget_pools(today);
        let wanted = wanted(known.as_ref(), set, today);
        if known.as_ref() != Some(&wanted) {
            self.pools.put(pool.clone(), PoolRow { index: context.index, ..wanted });
        }
        Ok(CommandOutcome::Done)
    }

    /// Checks the etag. A repeat is answered like the first request, which has made the etag another one.
    pub(super) fn check_pool_set(&self, set: &PoolSet) -> Result<(), CommandRefusal> {
        let known = self.pools.get(&set.pool);
        if known.is_some_and(|row| *row == wanted(known, set, Day::of(self.head.now))) {
            return Ok(());
        }
        check_etag(set.expected.as_deref(), (EtagKind::Pool, &set.pool), &self.pool_etag(&set.pool))
    }

    /// Checks the etag, unless nothing of the pool is set.
    pub(super) fn check_pool_reset(&self, Removal { name, expected }: &Removal) -> Result<(), CommandRefusal> {
        match self.pool_etag(name) {
            etag if etag == NO_ETAG => Ok(()),
            etag => check_etag(expected.as_deref(), (EtagKind::Pool, name), &etag),
        }
    }

    /// Resets a pool to the defaults. The count of the present day is kept until the day ends, so another warm-up on
    /// the same day gives no second cap.
    pub(super) fn pool_reset(&mut self, context: &Context, pool: &str) -> CommandOutcome {
        let today = Day::of(context.now);
        self.forget_pools(today);
        if let Some(known) = self.pools.edit(&pool.to_owned()).filter(|known| !known.is_default()) {
            known.spent = known.spent(today);
            (known.day, known.index) = (today, context.index);
            known.caps.clear();
            known.reveille_headers = true;
        }
        CommandOutcome::Done
    }

    /// Removes pools that were reset before today.
    fn forget_pools(&mut self, today: Day) {
        let forgotten = self.pools.iter().filter(|(_, known)| known.is_forgotten(today));
        let forgotten: Vec<String> = forgotten.map(|(pool, _)| pool.clone()).collect();
        for pool in &forgotten {
            self.pools.remove(pool);
        }
    }

    /// Limits the slots that could be granted, all of one pool, to the rest of today's cap.
    pub(super) fn within_daily_cap(&self, key: ChunkKey, granted: Bitmap, now: Time) -> Result<Bitmap, CommandRefusal> {
        let Some(lowest) = granted.min().filter(|_| !self.pools.is_empty()) else { return Ok(granted) };
        let Some(pool) = self.pages.get(&key.page).map(|page| self.pool_of(page, key, lowest)) else {
            return Ok(granted);
        };
        match self.remaining_today(pool, now) {
            Some(0) => Err(CommandRefusal::CapUsedUp { pool: pool.to_owned(), until: Day::of(now).end() }),
            Some(remaining) => Ok(granted.first(remaining)),
            None => Ok(granted),
        }
    }

    /// Updates the claimed recipients of each pool, and what it spent today, after recipients were claimed or left a
    /// claim.
    pub(super) fn count_by_pool(&mut self, context: &Context, key: ChunkKey, slots: &Bitmap, change: StateChange) {
        let (Some(page), Some(chunk)) = (self.pages.get(&key.page), self.chunks.get(&key)) else { return };
        let parts = match chunk.pool_overrides.is_empty() {
            true => vec![(&*page.pool, slots.len())],
            false => {
                let parts = chunk.by_pool(slots).into_iter();
                parts.map(|(pool, slots)| (pool.unwrap_or(&page.pool), slots.len())).collect()
            }
        };
        let handed = change.from == RecipientState::Claimed
            && matches!(change.to, RecipientState::Sent | RecipientState::InDoubt);
        for (pool, count) in parts {
            super::transition::count_claimed(&mut self.derived.claimed_by_pool, pool, change, count);
            if !handed || self.pools.is_empty() {
                continue;
            }
            let (pool, today) = (pool.to_owned(), Day::of(context.now));
            let counts = self.pools.get(&pool).is_some_and(|row| row.counts(today));
            if let Some(row) = counts.then(|| self.pools.edit(&pool)).flatten() {
                row.spend(today, count);
            }
        }
    }
}

/// Returns the settings that the command leaves on this day.
fn wanted(known: Option<&PoolRow>, set: &PoolSet, today: Day) -> PoolRow {
    let nothing = || PoolRow { first: today, caps: Vec::new(), day: today, spent: 0, reveille_headers: true, index: 0 };
    let mut wanted = known.cloned().unwrap_or_else(nothing);
    if !set.caps.is_empty() {
        // A warm-up that is over does not determine when the next one begins. A plan with the same caps is not a new
        // one.
        let is_kept = wanted.cap(today).is_some() || wanted.caps == set.caps;
        wanted.first = set.first.unwrap_or(if is_kept { wanted.first } else { today });
        wanted.caps.clone_from(&set.caps);
    }
    wanted.reveille_headers = set.reveille_headers.unwrap_or(wanted.reveille_headers);
    wanted
}
