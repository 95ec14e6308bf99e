//! What bounds claims beside the nodes' credits: the rate of what is late (P16), the rate and the concurrency of a
//! tenant, the day's cap of a pool that is warmed up (P12, P25); and each tenant's share.
//!
//! Made by the leader's dispatcher for each of its looks, counted down by `fair_queue.rs` as it grants. The leader alone
//! claims, so these budgets need no splitting over nodes. Concurrency and cap are bounded by `apply`, which cuts a claim
//! to them; here they are kept to so that nothing is asked for in vain. What is on its way to `apply` counts as claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use reveille_ledger::Ledger;
use reveille_ledger::ids::Time;

use super::catch_up::late_rates;
use super::claimable::Lane;
use super::fair_queue::Offer;
use super::in_flight::OnTheWay;
use super::rate_limiters::{Buckets, Gathered};

/// What may be claimed now; who is not named has no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
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
    /// Lanes that have pages with claims on their way, and who of those pages waits: nothing of them is offered.
    pub waiting: BTreeMap<Lane, u64>,
}

impl Bounds {
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
impl Default for Bounds {
    fn default() -> Bounds {
        let slice = reveille_ledger::limits::limits(reveille_ledger::LEVEL).slice;
        let (late, pools, tenants) = Default::default();
        Bounds { slice, late, pools, tenants, shares: BTreeMap::new(), waiting: BTreeMap::new() }
    }
}

/// What one term keeps of it.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    late: Buckets,
    tenants: Buckets,
}

impl Paces {
    /// What may be claimed at `now`, beside what is on its way.
    pub fn bounds(&mut self, ledger: &Ledger, on_the_way: &OnTheWay, now: Duration, ledger_time: Time) -> Bounds {
        let (mut of_tenants, mut of_pools) = (BTreeMap::<&str, u32>::new(), BTreeMap::<&str, u32>::new());
        for grant in on_the_way.grants() {
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
        Bounds { slice, late, pools, tenants, shares, waiting: on_the_way.lanes(ledger) }
    }

    /// What is left of what was given was not used.
    pub fn spend(&mut self, given: &Bounds, left: &Bounds) {
        self.late.spend(&given.late, &left.late);
        self.tenants.spend(&given.tenants, &left.tenants);
    }

    /// How long after the last look an offer that a rate holds back may be claimed; none where no rate does. Where the
    /// day's cap does, it is looked at as seldom as may be.
    pub fn holds_back(&self, offer: &Offer, left: &Bounds) -> Option<Duration> {
        let late =
            || self.late.until_gathered(&offer.pool, left.slice).filter(|_| left.late.get(&offer.pool) == Some(&0));
        let late = if offer.late { late() } else { None };
        let out = left.of_tenant(&offer.tenant) == 0;
        let tenant = self.tenants.until_gathered(&offer.tenant, left.slice).filter(|until| out && !until.is_zero());
        let pool = (left.of_pool(&offer.pool) == 0).then_some(Duration::MAX);
        late.max(tenant).max(pool)
    }
}
