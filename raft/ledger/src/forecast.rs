//! When a number of emails would be sent, by the limits that operators set (P7, P16): the rates of a pool's relays,
//! the tenant's rate, and the caps of a warm-up.
//!
//! Arithmetic about the state in whole numbers, so it is the same on every node. It knows nothing of how fast a relay
//! really answers, of a tenant's concurrency, which is no rate, and of what else waits for the same relays.

use crate::model::{Campaign, Day, FINISH_MS_MAX, HOUR_MS, Ledger, PoolRow, Relay, Time};

/// The least time that a campaign gets to be sent, unless the user chose another (P16). Milliseconds.
pub const CAMPAIGN_FINISH_MS_MIN: i64 = 4 * HOUR_MS;
/// Thousandths of a mail a second, times milliseconds, are so many of a mail.
const MILLI_MS: u64 = 1_000_000;

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ForecastRequest<'a> {
    /// Whose it is.
    pub tenant: &'a str,
    /// The relays by which it goes.
    pub pool: &'a str,
    /// Emails.
    pub rows: u32,
    /// Its instant.
    pub due: Time,
}

/// What it is that makes it take so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForecastLimit {
    /// No relay is in the pool: nothing is sent.
    NoRelay,
    /// There is no limit.
    Nothing,
    /// The rates of the pool's relays together.
    Relays,
    /// The rates that they have for what is late.
    LateRates,
    /// The tenant's rate.
    Tenant,
    /// The caps of the pool's warm-up.
    WarmUp,
}

/// What the bounds make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// When it can begin.
    pub begins: Time,
    /// It begins so late that it goes as what is late does.
    pub is_late: bool,
    /// What decides when it ends.
    pub bound: ForecastLimit,
    /// The least of the rates, in thousandths of a mail a second; none where there is no rate.
    pub rate_milli: Option<u64>,
    /// How many more the pool's warm-up lets go on the day on which it begins; none where there is no cap.
    pub room: Option<u32>,
    /// When the last one would be sent; none where nothing bounds it, or nothing is sent.
    pub ends: Option<Time>,
}

impl Ledger {
    /// When a task would be sent that begins at its instant, or `now` where that is over.
    pub fn forecast(&self, task: &ForecastRequest<'_>, now: Time) -> Forecast {
        let begins = task.due.max(now);
        let is_late = begins.since_ms(task.due) > self.limits().on_time_ms;
        if !self.serves(task.pool) {
            return Forecast {
                begins,
                is_late,
                bound: ForecastLimit::NoRelay,
                rate_milli: None,
                room: None,
                ends: None,
            };
        }
        let of_relays = match is_late {
            true => (self.late_rate_milli(task.pool), ForecastLimit::LateRates),
            false => (self.rate_milli(task.pool), ForecastLimit::Relays),
        };
        let of_tenant = (Some(self.tenant(task.tenant).rate_milli).filter(|rate| *rate > 0), ForecastLimit::Tenant);
        let rates = [of_relays, of_tenant].into_iter().filter_map(|(rate, bound)| Some((rate?, bound)));
        let least = rates.min_by_key(|(rate, _)| *rate);
        let rate_milli = least.map(|(rate, _)| rate);
        let rows = u64::from(task.rows);
        let by_rate = begins.plus_ms(takes_ms(rows, rate_milli));
        let by_caps = self.pools().get(&task.pool.to_owned()).map(|warm_up| {
            let room = |day: Day| self.room_on(day, (task.pool, warm_up), now);
            (room(Day::of(begins)), ends_within(room, rows, begins, rate_milli))
        });
        let room = by_caps.and_then(|(room, _)| room);
        let (bound, ends) = match (by_caps, least) {
            (Some((_, by_caps)), _) if by_caps > by_rate => (ForecastLimit::WarmUp, Some(by_caps)),
            (_, Some((_, bound))) => (bound, Some(by_rate)),
            (_, None) => (ForecastLimit::Nothing, None),
        };
        Forecast { begins, is_late, bound, rate_milli, room, ends }
    }

    /// When so many more would be sent by a pool that sends so many a second, within the caps of its warm-up; none where
    /// it has none.
    pub fn ends_within_caps(&self, pool: &str, rows: u64, rate_milli: u64, now: Time) -> Option<Time> {
        let warm_up = self.pools().get(&pool.to_owned())?;
        Some(ends_within(|day| self.room_on(day, (pool, warm_up), now), rows, now, Some(rate_milli)))
    }

    /// What a day's cap leaves of it, as far as is known now.
    fn room_on(&self, day: Day, (pool, warm_up): (&str, &PoolRow), now: Time) -> Option<u32> {
        match day == Day::of(now) {
            true => self.room_today(pool, now),
            false => room(warm_up, day),
        }
    }

    /// P16: how long after its instant a campaign of so many recipients may be sent: as the user chose, or twice what
    /// the bounds make of it, and four hours at least. Milliseconds.
    pub fn finish_by_ms_of(&self, tenant: &str, campaign: &Campaign, rows: u32, now: Time) -> i64 {
        if campaign.finish_by_given {
            return campaign.policies.finish_by_ms;
        }
        let Forecast { begins, ends, .. } =
            self.forecast(&ForecastRequest { tenant, pool: &campaign.pool, rows, due: campaign.due }, now);
        let takes_ms = ends.map_or(0, |ends| ends.since_ms(begins));
        takes_ms.saturating_mul(2).clamp(CAMPAIGN_FINISH_MS_MIN, FINISH_MS_MAX)
    }

    /// P16: late emails a second by a pool, in thousandths, at most; none where one of its relays has no bound, and 0
    /// where it has no relay.
    pub fn late_rate_milli(&self, pool: &str) -> Option<u64> {
        self.sum_of_relays(pool, Relay::late_bound_milli)
    }

    /// The same for emails that are on time.
    fn rate_milli(&self, pool: &str) -> Option<u64> {
        self.sum_of_relays(pool, |relay| Some(relay.rate_milli).filter(|rate| *rate > 0))
    }

    fn sum_of_relays(&self, pool: &str, rate_milli: impl Fn(&Relay) -> Option<u64>) -> Option<u64> {
        let relays = self.relays().iter().map(|(_, relay)| relay);
        let mut relays = relays.filter(|relay| relay.pool == pool && relay.max_sessions > 0);
        relays.try_fold(0_u64, |sum, relay| Some(sum.saturating_add(rate_milli(relay)?)))
    }
}

/// What a day's cap leaves of it, if nothing else was sent that day.
fn room(warm_up: &PoolRow, day: Day) -> Option<u32> {
    Some(warm_up.cap(day)?.saturating_sub(warm_up.spent(day)))
}

/// Without a rate it takes no time.
fn takes_ms(rows: u64, rate_milli: Option<u64>) -> i64 {
    let takes_ms = rate_milli.map_or(0, |rate| rows.saturating_mul(MILLI_MS).div_ceil(rate.max(1)));
    i64::try_from(takes_ms).unwrap_or(i64::MAX)
}

/// Day by day, up to each cap; no plan has more than 400 days.
fn ends_within(room: impl Fn(Day) -> Option<u32>, rows: u64, begins: Time, rate_milli: Option<u64>) -> Time {
    let (mut at, mut left) = (begins, rows);
    loop {
        let day = Day::of(at);
        let end = at.plus_ms(takes_ms(left, rate_milli));
        let Some(room) = room(day).map(u64::from) else { return end };
        if left <= room && end <= day.end() {
            return end;
        }
        let day_ms = u64::try_from(day.end().since_ms(at)).unwrap_or_default();
        let by_rate = rate_milli.map_or(u64::MAX, |rate| rate.saturating_mul(day_ms) / MILLI_MS);
        left = left.saturating_sub(room.min(by_rate));
        at = day.end();
    }
}

#[cfg(test)]
mod tests;
