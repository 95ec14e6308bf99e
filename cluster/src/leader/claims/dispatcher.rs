//! The leader's dispatcher: turns what is pending into claims, just far enough ahead (P4, P12).
//!
//! Belongs to a leadership and is dropped with it. On each wakeup it reads from the state which nodes may own claims,
//! how much each (tenant, pool, node) has open, and what is claimable (`claimable`). `cap` says how far ahead of its
//! relays each node may be, by what the node measured. `fair_queue` splits the credit. One entry carries all claims of a
//! wakeup, and the next wakeup does not wait for its answer (`in_flight`). Nodes keep sending while there is no leader:
//! claims belong to the ledger, not to the leadership.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use reveille_ledger::Ledger;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{ClaimRequest, Command, Relay};
use reveille_ledger::crash_backoff::{Allowance, allowances};
use reveille_ledger::ids::{ClaimOwner, NodeId, Time};
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::crash;
use tokio::sync::OwnedRwLockReadGuard;

use super::cap::{ClaimCap, RelayCapacity, claim_cap};
use super::claimable::Claimable;
use super::crash_backoff::{CrashBackoff, CrashBackoffAlarms};
use super::fair_queue::FairQueue;
use super::in_flight::InFlightClaims;
use super::limits::{ClaimLimits, ClaimRates};
use super::types::{ClaimGrant, Credit, Offer};
use crate::leader::leadership::{Leadership, NodeReport};
use crate::node::context::NodeContext;
use crate::node::peer_messages::NodeMeasurements;
use crate::smtp::pool::latency::RecentMean;
use crate::smtp::registry::share;

/// The longest sleep: deferred recipients become due and leases begin without a wakeup.
const NAP_MAX: Duration = Duration::from_millis(200);
/// The sleep while something waits for a node's credit: a settled part of a claim causes no wakeup.
const NAP_FOR_CREDIT: Duration = Duration::from_millis(50);
/// The shortest sleep until a rate that is computed is there.
const NAP_MIN: Duration = Duration::from_millis(1);
/// Pause after a proposal without an answer.
const NAP_AFTER_UNKNOWN: Duration = Duration::from_millis(100);
/// Slices in one entry, each a claim; with a suspect beside it, two.
const CLAIMS_MAX: usize = 256;

/// What one leadership's dispatcher keeps from wake to wake.
struct Dispatcher {
    fair_queue: FairQueue,
    backoff_alarms: CrashBackoffAlarms,
    rates: ClaimRates,
    in_flight: InFlightClaims,
    /// How long claims take from reading the state to their entry's answer.
    commits: RecentMean,
}

/// The claims of one look.
#[derive(Debug, Default)]
struct Claims {
    claims: Vec<ClaimRequest>,
    /// What they were made of.
    grants: Vec<ClaimGrant>,
}

/// Claims to be proposed.
struct ClaimsProposal {
    number: u64,
    claims: Vec<ClaimRequest>,
    looked_at: Duration,
    /// Until it is answered, or never will be.
    claiming: OwnedRwLockReadGuard<()>,
}

/// Dispatches until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let mut dispatcher = Dispatcher {
        fair_queue: FairQueue::new(),
        backoff_alarms: CrashBackoffAlarms::default(),
        rates: ClaimRates::default(),
        in_flight: InFlightClaims::default(),
        commits: RecentMean::default(),
    };
    let mut answers = FuturesUnordered::new();
    while !leadership.ended() {
        let (proposal, nap) = dispatcher.look(&context, &leadership);
        answers.extend(proposal.map(|proposal| answer(&leadership, proposal)));
        tokio::select! {
            () = leadership.wait_for_wakeup(&leadership.work, nap) => {}
            Some((number, looked_at, answer)) = answers.next() => {
                let answered_at = context.clock.monotonic();
                dispatcher.commits.note(answered_at.saturating_sub(looked_at), answered_at);
                dispatcher.in_flight.is_answered(number);
                if answer.is_none() {
                    leadership.sleep(NAP_AFTER_UNKNOWN).await;
                }
            }
        }
    }
}

/// Proposes claims; answers their number and when they were made.
async fn answer(leadership: &Leadership, proposal: ClaimsProposal) -> (u64, Duration, Option<CommandOutcome>) {
    let ClaimsProposal { number, claims, looked_at, claiming } = proposal;
    let answer = leadership.propose(Command::Claim(claims)).await;
    drop(claiming);
    (number, looked_at, answer)
}

impl Dispatcher {
    /// What is to be claimed now, and how long to sleep then.
    fn look(&mut self, context: &NodeContext, leadership: &Leadership) -> (Option<ClaimsProposal>, Duration) {
        if !self.in_flight.has_room() {
            return (None, NAP_MAX);
        }
        // A stopping node waits for the claims in flight, and for none after them.
        let Ok(claiming) = Arc::clone(&leadership.claiming).try_read_owned() else { return (None, NAP_FOR_CREDIT) };
        let (now, woke_at) = (leadership.now(), context.clock.monotonic());
        let voters = context.voters().len();
        let commit = self.commits.at(woke_at).unwrap_or_default() + NAP_FOR_CREDIT;
        let views = Views { by_node: leadership.reports(), voters, commit };
        let (claims, nap, resting, live) = context.replica.read(|ledger| {
            let owners = live_owners(ledger, leadership);
            let allowances = allowances_of(ledger, &owners, voters, now);
            let resting = resting(ledger, &allowances);
            if owners.len() == resting.len() {
                return (Claims::default(), NAP_MAX, resting, owners.len());
            }
            let lacking = owners.keys().map(|node| (*node, leadership.lacking(*node))).collect();
            let mut claimable = Claimable::of(ledger, &lacking, &self.in_flight, now);
            let given = self.rates.bounds(ledger, &self.in_flight, woke_at, now);
            let caps = views.caps(ledger, &owners);
            let credits = credits(ledger, &allowances, (&caps, &self.in_flight), &claimable.offers);
            let mut bounds = given.clone();
            let claims = claims(&mut self.fair_queue, &mut claimable, (&credits, &mut bounds), &owners);
            self.rates.spend(&given, &bounds);
            (claims, nap(&claimable, &bounds, &self.rates), resting, owners.len())
        });
        self.backoff_alarms.look(resting, live);
        let Claims { claims, grants } = claims;
        if claims.is_empty() {
            return (None, nap);
        }
        crash::point("claim.before-propose");
        let nap = if grants.len() == CLAIMS_MAX { Duration::ZERO } else { nap };
        let number = self.in_flight.goes(grants);
        (Some(ClaimsProposal { number, claims, looked_at: woke_at, claiming }), nap)
    }
}

/// How long until what is left may be claimed, at most: a rate says when its next credit comes; everything else waits for claims
/// that end.
fn nap(claimable: &Claimable, left: &ClaimLimits, rates: &ClaimRates) -> Duration {
    let naps = claimable.left().map(|offer| rates.holds_back(offer, left).unwrap_or(NAP_FOR_CREDIT));
    naps.min().unwrap_or(NAP_MAX).clamp(NAP_MIN, NAP_MAX)
}

/// What is known of the relays of each node.
struct Views {
    /// By what the nodes said.
    by_node: BTreeMap<NodeId, NodeReport>,
    voters: usize,
    /// From when credit is there until claims for it are committed.
    commit: Duration,
}

impl Views {
    /// P12: the caps of each of these lives, by pool.
    fn caps<'a>(
        &self,
        ledger: &'a Ledger,
        owners: &BTreeMap<NodeId, ClaimOwner>,
    ) -> BTreeMap<(&'a str, NodeId), ClaimCap> {
        let pools: BTreeSet<&str> = ledger.relays().iter().map(|(_, relay)| relay.pool.as_str()).collect();
        let of = |pool: &str, owner: &ClaimOwner| {
            let said = measured(&self.by_node, *owner);
            let settle = said.and_then(|said| said.settle).unwrap_or_default();
            claim_cap(&flows(ledger, pool, said, self.voters), self.commit + settle)
        };
        let each = pools.iter().flat_map(|pool| owners.values().map(move |owner| (*pool, owner)));
        each.map(|(pool, owner)| ((pool, owner.node), of(pool, owner))).collect()
    }
}

/// What this life of a node said last.
pub(crate) fn measured(reports: &BTreeMap<NodeId, NodeReport>, owner: ClaimOwner) -> Option<&NodeMeasurements> {
    reports.get(&owner.node).filter(|report| report.owner == owner).map(|report| &report.measured)
}

/// The relays of a pool, as a node that said this sees them.
pub(crate) fn flows(ledger: &Ledger, pool: &str, said: Option<&NodeMeasurements>, voters: usize) -> Vec<RelayCapacity> {
    let of_pool = ledger.relays().iter().filter(|(_, relay)| relay.pool == pool);
    let flow = |(name, relay): (&String, &Relay)| {
        let said = said.and_then(|said| said.relays.get(name));
        let share = share(relay, voters);
        RelayCapacity {
            sessions: relay.max_sessions,
            // Its pace gives way to "too fast"; its share is what it may be at most (P25).
            rate_per_second: said.map_or(share, |said| share.min(said.rate_milli as f64 / 1_000.0)),
            dialogue: said.and_then(|said| said.dialogue),
        }
    };
    of_pool.map(flow).collect()
}

/// The processes to which this leadership may grant claims.
pub(crate) fn live_owners(ledger: &Ledger, leadership: &Leadership) -> BTreeMap<NodeId, ClaimOwner> {
    let current = ledger.nodes().iter().map(|(node, known)| ClaimOwner { node: *node, incarnation: known.incarnation });
    current.filter(|owner| leadership.may_claim(*owner)).map(|owner| (owner.node, owner)).collect()
}

/// The part of its cap that each of these processes may own after crashes (P12).
fn allowances_of(
    ledger: &Ledger,
    owners: &BTreeMap<NodeId, ClaimOwner>,
    voters: usize,
    now: Time,
) -> BTreeMap<NodeId, Allowance> {
    let live = owners.keys().filter_map(|node| Some((*node, ledger.nodes().get(node)?)));
    allowances(live, ledger.limits(), voters > 1, now)
}

/// The nodes that may own nothing, and until when.
fn resting(ledger: &Ledger, allowances: &BTreeMap<NodeId, Allowance>) -> BTreeMap<NodeId, CrashBackoff> {
    let none = allowances.iter().filter(|(_, allowance)| **allowance == Allowance::NONE);
    none.filter_map(|(id, _)| {
        let node = ledger.nodes().get(id)?;
        Some((*id, CrashBackoff { name: node.name.clone(), until: node.crashes.backoff_until(ledger.limits())? }))
    })
    .collect()
}

/// P12: what each (tenant, pool, node) may still claim: the node's part of its cap, less what it has claimed or has in
/// flight.
fn credits(
    ledger: &Ledger,
    allowances: &BTreeMap<NodeId, Allowance>,
    (caps, in_flight): (&BTreeMap<(&str, NodeId), ClaimCap>, &InFlightClaims),
    offers: &[Offer],
) -> Vec<Credit> {
    let mut open: BTreeMap<(&str, NodeId), BTreeMap<&str, u32>> = BTreeMap::new();
    for (_, claim) in ledger.claims().iter().filter(|(_, claim)| !claim.claimed.is_empty()) {
        if let Some(page) = ledger.pages().get(&claim.page) {
            let of_pool = open.entry((ledger.pool_of_claim(page, claim), claim.owner.node)).or_default();
            *of_pool.entry(&page.tenant).or_default() += claim.claimed.len();
        }
    }
    for grant in in_flight.grants() {
        if let Some(page) = ledger.pages().get(&grant.page) {
            let of_pool = open.entry((&grant.pool, grant.node)).or_default();
            *of_pool.entry(&page.tenant).or_default() += grant.recipients;
        }
    }
    let nothing = BTreeMap::new();
    let tenants: BTreeSet<(&str, &str)> =
        offers.iter().map(|offer| (offer.pool.as_str(), offer.tenant.as_str())).collect();
    let mut credits = Vec::new();
    for ((pool, node), cap) in caps {
        let Some(allowance) = allowances.get(node) else { continue };
        let open = open.get(&(*pool, *node)).unwrap_or(&nothing);
        let mut credit = |tenant: Option<&str>, cap: u32, open: u32| {
            let recipients = allowance.of(cap).saturating_sub(open);
            credits.push(Credit {
                tenant: tenant.map(str::to_owned),
                pool: (*pool).to_owned(),
                node: *node,
                recipients,
            });
        };
        credit(None, cap.of_all, open.values().sum());
        for (_, tenant) in tenants.iter().filter(|(of, _)| of == pool) {
            credit(Some(tenant), cap.of_a_tenant, open.get(tenant).copied().unwrap_or(0));
        }
    }
    credits
}

fn claims(
    fair: &mut FairQueue,
    claimable: &mut Claimable,
    (credits, bounds): (&[Credit], &mut ClaimLimits),
    owners: &BTreeMap<NodeId, ClaimOwner>,
) -> Claims {
    let grants = fair.grants(&claimable.offers, credits, bounds, CLAIMS_MAX);
    let mut claims = Vec::new();
    for grant in &grants {
        let source = (grant.page, grant.chunk, grant.pool.clone());
        let (Some(left), Some(owner)) = (claimable.slots.get_mut(&source), owners.get(&grant.node)) else { continue };
        let mut claim = |slice: Bitmap| {
            claims.push(ClaimRequest { page: grant.page, chunk: grant.chunk, slice, owner: *owner });
        };
        let suspect = std::mem::take(&mut left.suspect);
        let slice = left.plain.first(grant.recipients.saturating_sub(suspect.len()));
        left.plain.remove(&slice);
        if !suspect.is_empty() {
            claim(suspect);
        }
        if !slice.is_empty() {
            claim(slice);
        }
    }
    Claims { claims, grants }
}

#[cfg(test)]
mod tests;
