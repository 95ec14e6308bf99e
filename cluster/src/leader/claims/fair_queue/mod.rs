//! Decides which tenant's email goes next and to which node: deficit round robin over tenants, within limits.
//!
//! The dispatcher passes offers, credits and limits; the result is slices to propose as claims (P4). Plain data: no
//! runtime, no clock, no ledger. `apply` grants those recipients of a slice that are still pending. It promises:
//! - **Never above a credit** (P12, P25), nor above the limits of late pages, tenants and pools.
//! - **Fair shares**: tenants of a pool that can be served get recipients in proportion to their shares. The largest
//!   share is exact to within one slice ([`ClaimLimits::slice_max`]). A tenant that could not be served saves nothing.
//! - **No starvation**: before a tenant is served, every other tenant of its pool gets at most one slice. Pools take
//!   turns.
//! - **Order within a tenant and pool**: priority, then on time before late, then oldest first. This is strict: a
//!   tenant's high priority may starve its own low priority.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use reveille_ledger::ids::NodeId;

use super::limits::ClaimLimits;
use super::types::{Credit, Offer, PlannedSlice};

/// Smallest slice into which a tenant's recipients are split to spread them over all nodes. A few emails thus use the
/// sessions of all nodes, but smaller slices would cost the ledger too many claims.
const SPREAD_MIN: u32 = 32;

/// The tenant with the current turn in each pool. It is kept between calls, so that the shares are exact over many
/// calls.
#[derive(Clone, Debug, Default)]
pub struct FairQueue {
    turns: BTreeMap<String, PoolTurn>,
    last_pool: String,
}

impl FairQueue {
    /// Returns the next slices, at most `slices_max`, in the order in which they should be claimed. Sorts the offers
    /// once; each slice then costs one pass over the nodes.
    pub fn next_slices(
        &mut self,
        offers: &[Offer],
        credits: &[Credit],
        limits: &mut ClaimLimits,
        slices_max: usize,
    ) -> Vec<PlannedSlice> {
        let mut pools = pools(offers, credits, limits.slice_max);
        // A pool without offers and without claims in flight has no turn to remember.
        let waiting: BTreeSet<&str> = limits.waiting.iter().map(|(_, pool)| pool.as_str()).collect();
        self.turns.retain(|pool, _| pools.contains_key(pool.as_str()) || waiting.contains(pool.as_str()));
        let mut slices = Vec::new();
        while slices.len() < slices_max
            && let Some(name) = next_after(&pools, &self.last_pool)
            && let Some(pool) = pools.get_mut(name)
        {
            self.last_pool = name.to_owned();
            match self.turns.entry(name.to_owned()).or_default().next_slice(name, pool, limits) {
                Some(slice) => slices.push(slice),
                None => drop(pools.remove(name)),
            }
        }
        slices
    }
}

/// Returns the name after `last`; after the last name follows the first.
fn next_after<'a, T>(names: &BTreeMap<&'a str, T>, last: &str) -> Option<&'a str> {
    let mut after = names.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
    after.next().or_else(|| names.first_key_value()).map(|(name, _)| *name)
}

/// The turns within one pool, in the order of the tenants' names.
///
/// - `turn` is the tenant with the current turn.
/// - `deficit` <= [`ClaimLimits::slice_max`] is the rest of its turn. A call may end in the middle of a turn.
#[derive(Clone, Debug, Default)]
struct PoolTurn {
    turn: String,
    deficit: u32,
}

impl PoolTurn {
    /// Returns a slice for the tenant with the current turn, or for the next tenant that can be served. If none can be
    /// served, the turn and its rest stay, and continue when there is credit again.
    fn next_slice(&mut self, name: &str, pool: &mut PoolOffers<'_>, limits: &mut ClaimLimits) -> Option<PlannedSlice> {
        let before = self.clone();
        loop {
            if self.deficit == 0 || !pool.tenants.contains_key(self.turn.as_str()) {
                let Some(next) = next_after(&pool.tenants, &self.turn) else { break };
                *self = PoolTurn { turn: next.to_owned(), deficit: pool.turn_length((next, name), limits) };
            }
            let queue = pool.tenants.get_mut(self.turn.as_str())?;
            let most = self.deficit.min(limits.of_tenant(&self.turn)).min(limits.of_pool(name));
            if most > 0
                && let Some(slice) = queue.slice(&mut pool.shared, limits.late.get_mut(name), most)
            {
                self.deficit -= slice.recipients;
                for left in [limits.tenants.get_mut(&self.turn), limits.pools.get_mut(name)].into_iter().flatten() {
                    *left -= slice.recipients;
                }
                return Some(slice);
            }
            // Credit does not grow within a call, so the tenant is out for the rest of it.
            pool.tenants.remove(self.turn.as_str());
            self.deficit = 0;
        }
        *self = before;
        None
    }
}

/// Offers and credits of one pool, counted down as slices are planned.
#[derive(Default)]
struct PoolOffers<'a> {
    tenants: BTreeMap<&'a str, Queue<'a>>,
    shared: BTreeMap<NodeId, u32>,
}

impl<'a> PoolOffers<'a> {
    /// Returns the queue of each tenant, with the credits that all tenants share.
    fn queues(&mut self) -> impl Iterator<Item = (&mut Queue<'a>, &BTreeMap<NodeId, u32>)> {
        let shared = &self.shared;
        self.tenants.values_mut().map(move |queue| (queue, shared))
    }

    /// Returns the length of a tenant's turn, by its share among the tenants that are left or have claims in flight.
    /// The turn of the largest share is a whole slice, so that turns do not cut slices. The other turns are shorter, so
    /// no tenant waits longer because another share is large.
    fn turn_length(&self, (tenant, pool): (&str, &str), limits: &ClaimLimits) -> u32 {
        let waits = |name: &String| limits.waiting.contains(&(name.clone(), pool.to_owned()));
        let others = limits.shares.iter();
        let others = others.filter(|(name, _)| self.tenants.contains_key(name.as_str()) || waits(name));
        let largest = others.map(|(_, share)| *share).max().unwrap_or(1);
        (limits.slice_max / largest).max(1).saturating_mul(limits.share(tenant)).min(limits.slice_max)
    }
}

/// One tenant's offers and credits in a pool.
#[derive(Default)]
struct Queue<'a> {
    /// The offers in reverse order.
    offers: Vec<QueuedOffer<'a>>,
    own: BTreeMap<NodeId, u32>,
    /// Largest slice: an equal part for each node, but at least [`SPREAD_MIN`].
    slice_max: u32,
}

/// An offer, counted down as slices are planned.
struct QueuedOffer<'a> {
    number: usize,
    offer: &'a Offer,
    /// Number of recipients that are left.
    left: u32,
}

fn pools<'a>(offers: &'a [Offer], credits: &'a [Credit], slice: u32) -> BTreeMap<&'a str, PoolOffers<'a>> {
    let mut pools: BTreeMap<&str, PoolOffers<'_>> = BTreeMap::new();
    for (number, offer) in offers.iter().enumerate().filter(|(_, offer)| offer.claimable > 0) {
        let pool = pools.entry(&offer.source.pool).or_default();
        pool.tenants.entry(&offer.tenant).or_default().offers.push(QueuedOffer {
            number,
            offer,
            left: offer.claimable,
        });
    }
    for Credit { tenant, pool, node, recipients } in credits {
        let Some(pool) = pools.get_mut(pool.as_str()) else { continue };
        let of_tenant = tenant.as_deref().map(|tenant| pool.tenants.get_mut(tenant).map(|queue| &mut queue.own));
        if let Some(credits) = of_tenant.unwrap_or(Some(&mut pool.shared)) {
            let credit = credits.entry(*node).or_default();
            *credit = credit.saturating_add(*recipients);
        }
    }
    for (queue, shared) in pools.values_mut().flat_map(PoolOffers::queues) {
        let all = queue.offers.iter().map(|queued| u64::from(queued.left)).sum::<u64>();
        let nodes = queue.nodes(shared).len().max(1) as u64;
        queue.slice_max = u32::try_from(all.div_ceil(nodes)).unwrap_or(slice).max(SPREAD_MIN).min(slice);
        queue.offers.sort_by_key(|QueuedOffer { offer, .. }| {
            Reverse((Reverse(offer.priority), offer.late, offer.due, offer.source.chunk))
        });
    }
    pools
}

impl Queue<'_> {
    /// Returns the next slice, of at most `most` recipients. `None` if no offer or no credit is left.
    fn slice(&mut self, shared: &mut BTreeMap<NodeId, u32>, late: Option<&mut u32>, most: u32) -> Option<PlannedSlice> {
        self.node_with_most_credit(shared, &BTreeSet::new())?;
        if late.as_deref() == Some(&0) {
            // The late credit does not grow within a call.
            self.offers.retain(|queued| !queued.offer.late);
        }
        let served = |at: usize| Some((at, self.node_with_most_credit(shared, &self.offers.get(at)?.offer.excluded)?));
        let (at, (node, room)) = (0..self.offers.len()).rev().find_map(served)?;
        let QueuedOffer { number, offer, left } = self.offers.get_mut(at)?;
        let late = late.filter(|_| offer.late);
        let recipients =
            most.min(*left).min(room).min(self.slice_max).min(late.as_deref().copied().unwrap_or(u32::MAX));
        *left -= recipients;
        if let Some(late) = late {
            *late -= recipients;
        }
        let slice = PlannedSlice {
            offer: *number,
            tenant: offer.tenant.clone(),
            late: offer.late,
            source: offer.source.clone(),
            node,
            recipients,
        };
        if *left == 0 {
            self.offers.remove(at);
        }
        for credits in [&mut self.own, shared] {
            if let Some(credit) = credits.get_mut(&node) {
                *credit -= recipients;
            }
        }
        Some(slice)
    }

    /// Returns the nodes with a credit.
    fn nodes(&self, shared: &BTreeMap<NodeId, u32>) -> BTreeSet<NodeId> {
        self.own.keys().chain(shared.keys()).copied().collect()
    }

    /// Returns the node with the most credit left, and that credit; among equals the node with the lowest id. `None` if
    /// no node that is not excluded has credit.
    fn node_with_most_credit(
        &self,
        shared: &BTreeMap<NodeId, u32>,
        excluded: &BTreeSet<NodeId>,
    ) -> Option<(NodeId, u32)> {
        let room = |node: NodeId| match (self.own.get(&node), shared.get(&node)) {
            (Some(own), Some(shared)) => *own.min(shared),
            (own, shared) => own.or(shared).copied().unwrap_or(0),
        };
        let most = self
            .nodes(shared)
            .difference(excluded)
            .map(|node| (*node, room(*node)))
            .max_by_key(|(node, room)| (*room, Reverse(*node)));
        most.filter(|(_, room)| *room > 0)
    }
}

#[cfg(test)]
mod tests;
