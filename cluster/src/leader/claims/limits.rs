//! Limits of claims beside the nodes' credits: the rate of late pages (P16), the rate and the concurrency of a tenant,
//! the daily cap of a pool in warm-up (P12, P25), and each tenant's share.
//!
//! The dispatcher makes [`ClaimLimits`] at each wake, and the fair queue counts them down as it plans slices. Only the
//! leader claims, so these limits need not be split over nodes. `apply` enforces concurrency and cap by cutting a
//! claim. This file respects them too, so that nothing is proposed in vain. Claims in flight count as claimed.
//!
//! Late pages need a rate of their own. Pages on time go first, but a backlog of a million that was claimed just before
//! would still fill the relays' sessions.
//!
//! A new leader's buckets start empty (P25), so a fail-over adds nothing to any rate. Recipients that are claimed and
//! returned have used their part of a rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::ids::Time;

use super::in_flight::InFlightClaims;
use super::types::{Offer, PlannedSlice, TenantPool};
use crate::process::rate_limiter::RateLimiter;

/// Recipients that may be claimed now, by name. A name that is missing has no limit.
pub(crate) type NamedLimits = BTreeMap<String, u32>;

/// Time for which a rate's credit is gathered before it is claimed, at most up to a whole slice. This saves entries.
const GATHER_SECONDS: f64 = 1.0;
/// Maximum time for which credit is saved: two gatherings, so that a late wake loses nothing.
const BURST_SECONDS: f64 = 2.0 * GATHER_SECONDS;

/// Recipients that may be claimed now. A name that is missing has no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimLimits {
    /// The largest claim that `apply` accepts.
    pub slice_max: u32,
    /// Limit of late recipients, by pool.
    pub late: NamedLimits,
    /// Limit of recipients of a pool, for all tenants together.
    pub pools: NamedLimits,
    /// Limit of recipients of a tenant, for all pools together.
    pub tenants: NamedLimits,
    /// The shares of tenants with a share above 1.
    pub shares: BTreeMap<String, u32>,
    /// Tenants and pools with claims in flight. Their pages are not offered until the answer, and the tenants keep
    /// their turns.
    pub waiting: BTreeSet<TenantPool>,
}

impl ClaimLimits {
    /// Returns the share of a tenant, at least 1.
    pub fn share(&self, tenant: &str) -> u32 {
        self.shares.get(tenant).copied().unwrap_or(1).max(1)
    }

    /// Returns the limit of a pool; `u32::MAX` without one.
    pub fn of_pool(&self, pool: &str) -> u32 {
        self.pools.get(pool).copied().unwrap_or(u32::MAX)
    }

    /// Returns the limit of a tenant; `u32::MAX` without one.
    pub fn of_tenant(&self, tenant: &str) -> u32 {
        self.tenants.get(tenant).copied().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
impl Default for ClaimLimits {
    fn default() -> ClaimLimits {
        let slice_max = reveille_ledger::limits::limits(reveille_ledger::LEVEL).slice_recipients_max;
        let (late, pools, tenants) = Default::default();
        ClaimLimits { slice_max, late, pools, tenants, shares: BTreeMap::new(), waiting: BTreeSet::new() }
    }
}

/// Token buckets of one leadership.
#[derive(Debug, Default)]
pub(crate) struct ClaimRates {
    late: RateLimiters,
    tenants: RateLimiters,
}

impl ClaimRates {
    /// Returns the limits at `now`, less the claims in flight.
    pub fn limits(
        &mut self,
        ledger: &Ledger,
        in_flight: &InFlightClaims,
        now: Duration,
        ledger_time: Time,
    ) -> ClaimLimits {
        let (mut of_tenants, mut of_pools) = (BTreeMap::<&str, u32>::new(), BTreeMap::<&str, u32>::new());
        for slice in in_flight.slices() {
            *of_pools.entry(&slice.source.pool).or_default() += slice.recipients;
            *of_tenants.entry(&slice.tenant).or_default() += slice.recipients;
        }
        let count_in = |counts: &BTreeMap<&str, u32>, name: &str| counts.get(name).copied().unwrap_or(0);
        let rates = ledger.tenants().iter().filter_map(|(name, tenant)| Some((name.clone(), tenant.rate()?)));
        let slice_max = ledger.limits().slice_recipients_max;
        let mut tenants = self.tenants.gathered(rates.collect(), slice_max, now);
        let mut shares = BTreeMap::new();
        for (name, tenant) in ledger.tenants().iter() {
            if let Some(most) = tenant.at_once() {
                let room =
                    most.saturating_sub(ledger.claimed_by_tenant(name)).saturating_sub(count_in(&of_tenants, name));
                tenants.entry(name.clone()).and_modify(|known| *known = room.min(*known)).or_insert(room);
            }
            if tenant.share > 1 {
                shares.insert(name.clone(), tenant.share);
            }
        }
        let room = |pool: &String| {
            let room = ledger.remaining_today(pool, ledger_time)?;
            Some((pool.clone(), room.saturating_sub(count_in(&of_pools, pool))))
        };
        let pools = ledger.pools().iter().filter_map(|(pool, _)| room(pool)).collect();
        let late = self.late.gathered(late_rates(ledger), slice_max, now);
        let waiting = in_flight.slices().map(|slice| (slice.tenant.clone(), slice.source.pool.clone())).collect();
        ClaimLimits { slice_max, late, pools, tenants, shares, waiting }
    }

    /// Takes from the buckets what these slices claim.
    pub fn spend(&mut self, slices: &[PlannedSlice]) {
        for slice in slices {
            self.tenants.spend(&slice.tenant, slice.recipients);
            if slice.late {
                self.late.spend(&slice.source.pool, slice.recipients);
            }
        }
    }

    /// Returns how long after the last wake a rate lets an offer be claimed; `None` if no limit holds it back. The
    /// daily cap gives the longest time, because it is checked as rarely as possible.
    pub fn holds_back(&self, offer: &Offer, left: &ClaimLimits) -> Option<Duration> {
        let late = || {
            self.late
                .until_gathered(&offer.source.pool, left.slice_max)
                .filter(|_| left.late.get(&offer.source.pool) == Some(&0))
        };
        let late = if offer.late { late() } else { None };
        let out = left.of_tenant(&offer.tenant) == 0;
        let tenant = self.tenants.until_gathered(&offer.tenant, left.slice_max).filter(|until| out && !until.is_zero());
        let pool = (left.of_pool(&offer.source.pool) == 0).then_some(Duration::MAX);
        late.max(tenant).max(pool)
    }
}

/// Returns the limit of late emails per second of a pool. `None` if there is no limit; 0 without a relay.
pub fn late_rate(ledger: &Ledger, pool: &str) -> Option<f64> {
    Some(ledger.late_rate_milli(pool)? as f64 / 1_000.0)
}

/// Returns the late rates of all pools that have a limit.
fn late_rates(ledger: &Ledger) -> BTreeMap<String, f64> {
    let pools = ledger.relays().iter().map(|(_, relay)| relay.pool.clone());
    pools.filter_map(|pool| late_rate(ledger, &pool).map(|rate| (pool, rate))).collect()
}

/// Returns the number of recipients that must be saved before any are claimed.
fn gathering(rate: f64, slice_max: u32) -> u32 {
    (rate * GATHER_SECONDS).min(f64::from(slice_max)).max(1.0) as u32
}

/// One leadership's token buckets, by name of pool or tenant.
#[derive(Debug, Default)]
pub(crate) struct RateLimiters(BTreeMap<String, RateLimiter>);

impl RateLimiters {
    /// Returns how many recipients may be claimed at `now` by these rates, in emails per second. `slice_max` is the largest
    /// claim.
    pub fn gathered(&mut self, rates: BTreeMap<String, f64>, slice_max: u32, now: Duration) -> NamedLimits {
        self.0.retain(|name, _| rates.contains_key(name));
        let credit = |(name, rate): (String, f64)| {
            let burst = rate * BURST_SECONDS;
            let bucket = self.0.entry(name.clone()).or_insert_with(|| RateLimiter::new(rate, burst));
            bucket.set_budget(now, rate, burst);
            let saved = bucket.saved(now);
            (name, if saved >= gathering(rate, slice_max) { saved } else { 0 })
        };
        rates.into_iter().map(credit).collect()
    }

    /// Returns how long after the last wake a name without credit has some again; `None` if it has no rate.
    pub fn until_gathered(&self, name: &str, slice_max: u32) -> Option<Duration> {
        self.0.get(name).map(|bucket| bucket.until_saved(gathering(bucket.budget(), slice_max)))
    }

    /// Takes claimed recipients from the bucket of this name, if it has one.
    pub fn spend(&mut self, name: &str, recipients: u32) {
        if let Some(bucket) = self.0.get_mut(name) {
            bucket.take_saved(recipients);
        }
    }
}
