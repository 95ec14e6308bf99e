//! Forecasts when a number of emails is sent, by the limits that operators set (P7, P16): the rates of a pool's relays,
//! the tenant's rate, and the caps of a warm-up.
//!
//! It is integer arithmetic on the state, so it is the same on every node. It does not consider the real speed of a
//! relay, the tenant's concurrency (which is not a rate), or other emails for the same relays.

use crate::model::{Campaign, Day, FINISH_MS_MAX, HOUR_MS, Ledger, PoolRow, Relay, Time};

/// Shortest deadline of a campaign, unless the user chose another (P16). Milliseconds.
pub const CAMPAIGN_FINISH_MS_MIN: i64 = 4 * HOUR_MS;
/// How many times its forecast a campaign has until its deadline (P16).
pub(crate) const CAMPAIGN_FINISH_FACTOR: i64 = 2;
/// Converts units: rates are in thousandths of an email a second, and times in milliseconds.
const MILLI_MS: u64 = 1_000_000;

/// The emails to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ForecastRequest<'a> {
    /// Tenant of the emails.
    pub tenant: &'a str,
    /// Pool of relays that sends them.
    pub pool: &'a str,
    /// Number of emails.
    pub rows: u32,
    /// Instant at which they are due.
    pub due: Time,
}

/// The limit that decides how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForecastLimit {
    /// The pool has no relay, so nothing is sent.
    NoRelay,
    /// There is no limit.
    Nothing,
    /// The rates of the pool's relays together.
    Relays,
    /// The rates of the pool's relays for late emails, together.
    LateRates,
    /// The tenant's rate.
    Tenant,
    /// The caps of the pool's warm-up.
    WarmUp,
}

/// The result of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// When sending can begin.
    pub begins: Time,
    /// True if it begins so late that the rates for late emails apply.
    pub is_late: bool,
    /// The limit that decides when it ends.
    pub bound: ForecastLimit,
    /// The lowest of the rates, in thousandths of an email a second; `None` if there is no rate limit.
    pub rate_milli: Option<u64>,
    /// Number of emails that the warm-up still allows on the first day; `None` if there is no cap.
    pub first_day_remaining: Option<u32>,
    /// When the last email is sent; `None` if there is no limit, or nothing is sent.
    pub ends: Option<Time>,
}

impl Ledger {
    /// Forecasts emails that begin at their instant, or at `now` if that has passed.
    pub fn forecast(&self, task: &ForecastRequest<'_>, now: Time) -> Forecast {
        let begins = task.due.max(now);
        let is_late = begins.since_ms(task.due) > self.limits().on_time_ms;
        if !self.serves(task.pool) {
            return Forecast {
                begins,
                is_late,
                bound: ForecastLimit::NoRelay,
                rate_milli: None,
                first_day_remaining: None,
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
            let remaining = |day: Day| self.remaining_on(day, (task.pool, warm_up), now);
            (remaining(Day::of(begins)), ends_within(remaining, rows, begins, rate_milli))
        });
        let first_day_remaining = by_caps.and_then(|(remaining, _)| remaining);
        let (bound, ends) = match (by_caps, least) {
            (Some((_, by_caps)), _) if by_caps > by_rate => (ForecastLimit::WarmUp, Some(by_caps)),
            (_, Some((_, bound))) => (bound, Some(by_rate)),
            (_, None) => (ForecastLimit::Nothing, None),
        };
        Forecast { begins, is_late, bound, rate_milli, first_day_remaining, ends }
    }

    /// Returns when `rows` more emails of a pool are sent at this rate, within the caps of its warm-up. `None` if the
    /// pool has no settings.
    pub fn ends_within_caps(&self, pool: &str, rows: u64, rate_milli: u64, now: Time) -> Option<Time> {
        let warm_up = self.pools().get(&pool.to_owned())?;
        Some(ends_within(|day| self.remaining_on(day, (pool, warm_up), now), rows, now, Some(rate_milli)))
    }

    /// Number of emails that a day's cap still allows, as known now; `None` if there is no cap.
    fn remaining_on(&self, day: Day, (pool, warm_up): (&str, &PoolRow), now: Time) -> Option<u32> {
        if day == Day::of(now) { self.remaining_today(pool, now) } else { remaining(warm_up, day) }
    }

    /// Deadline of a campaign after its instant (P16): as the user chose, or twice the forecast, and at least four
    /// hours. Milliseconds.
    pub fn finish_by_ms_of(&self, tenant: &str, campaign: &Campaign, rows: u32, now: Time) -> i64 {
        if campaign.finish_by_given {
            return campaign.policies.finish_by_ms;
        }
        let Forecast { begins, ends, .. } =
            self.forecast(&ForecastRequest { tenant, pool: &campaign.pool, rows, due: campaign.due }, now);
        let takes_ms = ends.map_or(0, |ends| ends.since_ms(begins));
        takes_ms.saturating_mul(CAMPAIGN_FINISH_FACTOR).clamp(CAMPAIGN_FINISH_MS_MIN, FINISH_MS_MAX)
    }

    /// Rate limit of a pool for late emails, in thousandths of an email a second (P16). `None` if one of its relays has
    /// no limit; 0 if it has no relay.
    pub fn late_rate_milli(&self, pool: &str) -> Option<u64> {
        self.sum_of_relays(pool, Relay::late_bound_milli)
    }

    /// Rate limit of a pool for emails on time.
    fn rate_milli(&self, pool: &str) -> Option<u64> {
        self.sum_of_relays(pool, |relay| Some(relay.rate_milli).filter(|rate| *rate > 0))
    }

    fn sum_of_relays(&self, pool: &str, rate_milli: impl Fn(&Relay) -> Option<u64>) -> Option<u64> {
        let relays = self.relays().iter().map(|(_, relay)| relay);
        let mut relays = relays.filter(|relay| relay.pool == pool && relay.max_sessions > 0);
        relays.try_fold(0_u64, |sum, relay| Some(sum.saturating_add(rate_milli(relay)?)))
    }
}

/// Number of emails that a day's cap still allows, if nothing else is sent on that day.
fn remaining(warm_up: &PoolRow, day: Day) -> Option<u32> {
    Some(warm_up.cap(day)?.saturating_sub(warm_up.spent(day)))
}

/// Time to send `rows` emails at a rate, in milliseconds; 0 without a rate.
fn takes_ms(rows: u64, rate_milli: Option<u64>) -> i64 {
    let takes_ms = rate_milli.map_or(0, |rate| rows.saturating_mul(MILLI_MS).div_ceil(rate.max(1)));
    i64::try_from(takes_ms).unwrap_or(i64::MAX)
}

/// Adds up day by day, each up to its cap. A warm-up has at most 400 days.
fn ends_within(remaining: impl Fn(Day) -> Option<u32>, rows: u64, begins: Time, rate_milli: Option<u64>) -> Time {
    let (mut at, mut left) = (begins, rows);
    loop {
        let day = Day::of(at);
        let end = at.plus_ms(takes_ms(left, rate_milli));
        let Some(remaining) = remaining(day).map(u64::from) else { return end };
        if left <= remaining && end <= day.end() {
            return end;
        }
        let day_ms = u64::try_from(day.end().since_ms(at)).unwrap_or_default();
        let by_rate = rate_milli.map_or(u64::MAX, |rate| rate.saturating_mul(day_ms) / MILLI_MS);
        left = left.saturating_sub(remaining.min(by_rate));
        at = day.end();
    }
}

#[cfg(test)]
mod tests;
