//! Warm-ups: a pool's cap of the day is set, counted, and kept to where something is claimed (P25).
//!
//! Spent is who was sent today or may have been, and open rows count as if they were: so whoever leads, and whatever
//! it knew when it asked, no more is sent in a day than its cap. Who comes back unsent gives its place back.

use super::Context;
use super::moves::Place;
use super::schedule::bounded;
use crate::DEFAULT_TENANT;
use crate::bitmap::Bitmap;
use crate::fingerprint::fingerprint;
use crate::ids::Time;
use crate::impossible::{Bounded, Impossible};
use crate::refusal::Refusal;
use crate::reply::Outcome;
use crate::state::{Ledger, Standing};
use crate::warm_up::{Day, WarmUp, WarmUpSet};

impl Ledger {
    pub(super) fn warm_up_set(&mut self, context: &mut Context, set: &WarmUpSet) -> Result<Outcome, Refusal> {
        let WarmUpSet { request, pool, caps, first } = set;
        let (request, body) = (request.as_deref(), fingerprint(&("warm-up", pool, caps, first)));
        // Pools belong to no tenant, as relays do.
        if let Some(outcome) = self.answered_again(context, DEFAULT_TENANT, request, body)? {
            return Ok(outcome);
        }
        let most = self.limits().warm_up_days;
        bounded(Bounded::WarmUpDays, caps.len(), most)?;
        if caps.is_empty() || caps.contains(&0) {
            return Err(Impossible::DayWithoutCap.into());
        }
        let (today, known) = (Day::of(context.now), self.warm_ups.get(pool).cloned());
        if let Some(first) = first
            && (*first > today || today.0.saturating_sub(first.0) > most as i64)
        {
            return Err(Impossible::WarmUpBegin.into());
        }
        // A plan that is over says nothing of the day on which another one begins; the same one again is no other.
        let kept = known.as_ref().filter(|known| known.cap(today).is_some() || known.caps == *caps);
        let first = first.or(kept.map(|known| known.first)).unwrap_or(today);
        self.forget_warm_ups(today);
        let (day, spent) = known.as_ref().map_or((today, 0), |known| (known.day, known.spent));
        let wanted = WarmUp { first, caps: caps.clone(), day, spent, index: context.index };
        if known.as_ref().is_none_or(|known| (known.first, &known.caps) != (first, caps)) {
            self.warm_ups.put(pool.clone(), wanted);
        }
        self.remember(context, DEFAULT_TENANT, request, body, &Outcome::Done);
        Ok(Outcome::Done)
    }

    /// Takes a plan away. What was sent today stays known until the day is over: another plan that is set on it gives
    /// nobody the day's cap again.
    pub(super) fn warm_up_end(&mut self, context: &Context, pool: &str) -> Outcome {
        let today = Day::of(context.now);
        self.forget_warm_ups(today);
        if let Some(known) = self.warm_ups.edit(&pool.to_owned()).filter(|known| !known.is_taken_away()) {
            known.spent = known.spent(today);
            (known.day, known.index) = (today, context.index);
            known.caps.clear();
        }
        Outcome::Done
    }

    /// Plans that were taken away before today.
    fn forget_warm_ups(&mut self, today: Day) {
        let forgotten = self.warm_ups.iter().filter(|(_, known)| known.is_forgotten(today));
        let forgotten: Vec<String> = forgotten.map(|(pool, _)| pool.clone()).collect();
        for pool in &forgotten {
            self.warm_ups.remove(pool);
        }
    }

    /// Of what could be granted of a chunk, all of one pool: as much as may go by it today.
    pub(super) fn within_cap(&self, (page, chunk): Place, granted: Bitmap, now: Time) -> Result<Bitmap, Refusal> {
        let Some(lowest) = granted.min().filter(|_| !self.warm_ups.is_empty()) else { return Ok(granted) };
        let Some(pool) = self.pages.get(&page).map(|known| self.pool_of(page, known, chunk, lowest)) else {
            return Ok(granted);
        };
        match self.room_today(pool, now) {
            Some(0) => Err(Refusal::CapUsedUp { pool: pool.to_owned(), until: Day::of(now).end() }),
            Some(room) => Ok(granted.first(room)),
            None => Ok(granted),
        }
    }

    /// Somebody of a chunk is claimed, or no more: which pools have how many claimed, and what they have spent today.
    pub(super) fn note_pools(
        &mut self,
        context: &Context,
        place: Place,
        slots: &Bitmap,
        (from, to): (Standing, Standing),
    ) {
        let (Some(page), Some(chunk)) = (self.pages.get(&place.0), self.chunks.get(&place)) else { return };
        let parts = match chunk.elsewhere.is_empty() {
            true => vec![(page.pool.as_str(), slots.len())],
            false => {
                let parts = chunk.by_pool(slots).into_iter();
                parts.map(|(pool, slots)| (pool.unwrap_or(&page.pool), slots.len())).collect()
            }
        };
        let handed = from == Standing::Claimed && matches!(to, Standing::Sent | Standing::InDoubt);
        for (pool, count) in parts {
            super::moves::note_claimed(&mut self.derived.claimed_by_pool, pool, (from, to), count);
            if !handed || self.warm_ups.is_empty() {
                continue;
            }
            let (pool, today) = (pool.to_owned(), Day::of(context.now));
            let counts = self.warm_ups.get(&pool).is_some_and(|warm_up| !warm_up.is_forgotten(today));
            if let Some(warm_up) = counts.then(|| self.warm_ups.edit(&pool)).flatten() {
                warm_up.spend(today, count);
            }
        }
    }
}
