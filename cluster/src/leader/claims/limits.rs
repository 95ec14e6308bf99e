//! What limits claims beside the nodes' credits: the rate of late pages (P16), the rate and the concurrency of a tenant,
//! the daily cap of a pool that is warmed up (P12, P25), and each tenant's share.
//!
//! The dispatcher makes [`ClaimLimits`] for each of its looks, and the fair queue counts them down as it grants. The leader
//! alone claims, so these budgets need no splitting over nodes. `apply` enforces concurrency and cap by cutting a claim;
//! this file keeps to them so that nothing is asked for in vain. Claims in flight count as claimed.
//!
//! Late pages need a rate of their own. Pages on time go first wherever both wait, but what was claimed of a backlog of a
//! million a moment ago is in the relays' sessions already, and would use up the relays before the day's own email is due.
//!
//! A new leader's buckets start empty (P25), so a fail-over adds nothing to any rate. What is claimed and returns unbegun
//! has used up its part: a rate limits what is claimed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::ids::Time;

use super::in_flight::InFlightClaims;
use super::types::{Offer, TenantPool};
use crate::smtp::pool::rate_limiter::RateLimiter;

/// Recipients that may be claimed now, by name; who is not named has no bound.
pub(crate) type Gathered = BTreeMap<String, u32>;

/// Claims are made of what a second brings, or of a whole slice: entries are what is scarce.
const GATHER_SECONDS: f64 = 1.0;
/// What is saved up at most: two such gatherings, so that a wake that comes late loses nothing.
const BURST_SECONDS: f64 = 2.0 * GATHER_SECONDS;

/// What may be claimed now; who is not named has no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimLimits {
    /// The largest claim that `apply` takes.
    pub slice: u32,
    /// Late recipients, by pool.
    pub late: Gathered,
    /// Recipients of a pool, whosever they are.
    pub pools: Gathered,
    /// Recipients of a tenant, whatever their pools.
    pub tenants: Gathered,
    /// The shares of tenants that have another than 1.
    pub shares: BTreeMap<String, u32>,
    /// Tenants and pools with claims in flight whose pages have more to claim: these pages are not offered meanwhile, and
    /// their tenants keep their turns.
    pub waiting: BTreeSet<TenantPool>,
}

impl ClaimLimits {
    /// A tenant's share.
    pub fn share(&self, tenant: &str) -> u32 {
        self.shares.get(tenant).copied().unwrap_or(1).max(1)
    }

    /// How many of a pool may be claimed.
    pub fn of_pool(&self, pool: &str) -> u32 {
        self.pools.get(pool).copied().unwrap_or(u32::MAX)
    }

    /// How many of a tenant may be claimed.
    pub fn of_tenant(&self, tenant: &str) -> u32 {
        self.tenants.get(tenant).copied().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
impl Default for ClaimLimits {
    fn default() -> ClaimLimits {
        let slice = reveille_ledger::limits::limits(reveille_ledger::LEVEL).slice;
        let (late, pools, tenants) = Default::default();
        ClaimLimits { slice, late, pools, tenants, shares: BTreeMap::new(), waiting: BTreeSet::new() }
    }
}

/// What one leadership keeps of it.
#[derive(Debug, Default)]
pub(crate) struct ClaimRates {
    late: RateLimiters,
    tenants: RateLimiters,
}

impl ClaimRates {
    /// What may be claimed at `now`, beside what is on its way.
    pub fn bounds(
        &mut self,
        ledger: &Ledger,
        in_flight: &InFlightClaims,
        now: Duration,
        ledger_time: Time,
    ) -> ClaimLimits {
        let (mut of_tenants, mut of_pools) = (BTreeMap::<&str, u32>::new(), BTreeMap::<&str, u32>::new());
        for grant in in_flight.grants() {
            *of_pools.entry(&grant.pool).or_default() += grant.recipients;
            if let Some(page) = ledger.pages().get(&grant.page) {
                *of_tenants.entry(&page.tenant).or_default() += grant.recipients;
            }
        }
        let of = |counts: &BTreeMap<&str, u32>, name: &str| counts.get(name).copied().unwrap_or(0);
        let rates = ledger.tenants().iter().filter_map(|(name, tenant)| Some((name.clone(), tenant.rate()?)));
        let slice = ledger.limits().slice;
        let mut tenants = self.tenants.gathered(rates.collect(), slice, now);
        let mut shares = BTreeMap::new();
        for (name, tenant) in ledger.tenants().iter() {
            if let Some(most) = tenant.at_once() {
                let room = most.saturating_sub(ledger.claimed_by_tenant(name)).saturating_sub(of(&of_tenants, name));
                tenants.entry(name.clone()).and_modify(|known| *known = room.min(*known)).or_insert(room);
            }
            if tenant.share > 1 {
                shares.insert(name.clone(), tenant.share);
            }
        }
        let room = |pool: &String| {
            let room = ledger.room_today(pool, ledger_time)?;
            Some((pool.clone(), room.saturating_sub(of(&of_pools, pool))))
        };
        let pools = ledger.pools().iter().filter_map(|(pool, _)| room(pool)).collect();
        let late = self.late.gathered(late_rates(ledger), slice, now);
        ClaimLimits { slice, late, pools, tenants, shares, waiting: waiting(in_flight, ledger) }
    }

    /// What is left of what was given was not used.
    pub fn spend(&mut self, given: &ClaimLimits, left: &ClaimLimits) {
        self.late.spend(&given.late, &left.late);
        self.tenants.spend(&given.tenants, &left.tenants);
    }

    /// How long after the last look an offer that a rate holds back may be claimed; none where no rate does. Where the
    /// day's cap does, it is checked as seldom as possible.
    pub fn holds_back(&self, offer: &Offer, left: &ClaimLimits) -> Option<Duration> {
        let late =
            || self.late.until_gathered(&offer.pool, left.slice).filter(|_| left.late.get(&offer.pool) == Some(&0));
        let late = if offer.late { late() } else { None };
        let out = left.of_tenant(&offer.tenant) == 0;
        let tenant = self.tenants.until_gathered(&offer.tenant, left.slice).filter(|until| out && !until.is_zero());
        let pool = (left.of_pool(&offer.pool) == 0).then_some(Duration::MAX);
        late.max(tenant).max(pool)
    }
}

/// See [`ClaimLimits::waiting`].
fn waiting(in_flight: &InFlightClaims, ledger: &Ledger) -> BTreeSet<TenantPool> {
    let pages = in_flight.grants().filter_map(|grant| Some((ledger.pages().get(&grant.page)?, &grant.pool)));
    pages.map(|(page, pool)| (page.tenant.clone(), pool.clone())).collect()
}

/// Late emails a second by a pool, at most; none where there is no bound, and nothing where there is no relay.
pub fn late_rate(ledger: &Ledger, pool: &str) -> Option<f64> {
    Some(ledger.late_rate_milli(pool)? as f64 / 1_000.0)
}

/// The same by pool, where there is a bound.
fn late_rates(ledger: &Ledger) -> BTreeMap<String, f64> {
    let pools = ledger.relays().iter().map(|(_, relay)| relay.pool.clone());
    pools.filter_map(|pool| late_rate(ledger, &pool).map(|rate| (pool, rate))).collect()
}

/// Recipients that are claimed at once, at the least.
fn gathering(rate: f64, slice: u32) -> u32 {
    (rate * GATHER_SECONDS).min(f64::from(slice)).max(1.0) as u32
}

/// One leadership's buckets.
#[derive(Debug, Default)]
pub(crate) struct RateLimiters(BTreeMap<String, RateLimiter>);

impl RateLimiters {
    /// How many recipients may be claimed at `now` by these rates, in emails a second. `slice`: the largest claim.
    pub fn gathered(&mut self, rates: BTreeMap<String, f64>, slice: u32, now: Duration) -> Gathered {
        self.0.retain(|name, _| rates.contains_key(name));
        let credit = |(name, rate): (String, f64)| {
            let burst = rate * BURST_SECONDS;
            let pace = self.0.entry(name.clone()).or_insert_with(|| RateLimiter::new(rate, burst));
            pace.set_budget(now, rate, burst);
            let saved = pace.saved(now);
            (name, if saved >= gathering(rate, slice) { saved } else { 0 })
        };
        rates.into_iter().map(credit).collect()
    }

    /// How long after the last look a name without credit has some again; none where no rate is bounded.
    pub fn until_gathered(&self, name: &str, slice: u32) -> Option<Duration> {
        self.0.get(name).map(|pace| pace.until_saved(gathering(pace.budget(), slice)))
    }

    /// What is left of what was given was not used.
    pub fn spend(&mut self, given: &Gathered, left: &Gathered) {
        for (name, pace) in &mut self.0 {
            let of = |credits: &Gathered| credits.get(name).copied().unwrap_or(0);
            pace.take_saved(of(given).saturating_sub(of(left)));
        }
    }
}
