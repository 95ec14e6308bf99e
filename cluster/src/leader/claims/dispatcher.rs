//! The leader's dispatcher: proposes claims of pending recipients, just far enough ahead of sending (P4, P12).
//!
//! Belongs to a leadership and ends with it. On each wakeup it reads from the state which nodes may own claims, how
//! much each (tenant, pool, node) has claimed, and what is claimable (`claimable`). `cap` computes from a node's
//! measurements how far ahead of its relays it may claim. `fair_queue` distributes the credit. One entry carries all
//! claims of a wakeup, and the next wakeup does not wait for its answer (`in_flight`). Nodes keep sending while there
//! is no leader, because claims belong to the ledger and not to the leadership.

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
use crate::process::context::NodeContext;
use crate::process::peer_messages::NodeMeasurements;
use crate::smtp::pool::latency::RecentMean;
use crate::smtp::registry::share;

/// Longest sleep. Deferred recipients become due, and leases begin, without a wakeup.
const NAP_MAX: Duration = Duration::from_millis(200);
/// Sleep while recipients wait for a node's credit: a partly settled claim causes no wakeup.
const NAP_FOR_CREDIT: Duration = Duration::from_millis(50);
/// Shortest sleep while recipients wait for a rate.
const NAP_MIN: Duration = Duration::from_millis(1);
/// Pause after a proposal without an answer.
const NAP_AFTER_UNKNOWN: Duration = Duration::from_millis(100);
/// Maximum number of slices in one entry. Each is a claim, or two if it contains a crash suspect.
const CLAIMS_MAX: usize = 256;

/// State that a leadership's dispatcher keeps between wakes.
struct Dispatcher {
    fair_queue: FairQueue,
    backoff_alarms: CrashBackoffAlarms,
    rates: ClaimRates,
    in_flight: InFlightClaims,
    /// Time from reading the state to the answer of the claim entry.
    commits: RecentMean,
}

/// The claims of one wake.
#[derive(Debug, Default)]
struct Claims {
    claims: Vec<ClaimRequest>,
    /// The grants from which the claims were made.
    grants: Vec<ClaimGrant>,
}

/// What a wake reads from the state.
struct ClaimsPlan {
    claims: Claims,
    /// Time until the next wake.
    nap: Duration,
    /// Nodes that get no claims after crashes.
    in_backoff: BTreeMap<NodeId, CrashBackoff>,
    /// Number of nodes that may own claims.
    live: usize,
}

/// Claims to be proposed.
struct ClaimsProposal {
    number: u64,
    claims: Vec<ClaimRequest>,
    read_at: Duration,
    /// Held until the proposal is answered, or given up.
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
        let (proposal, nap) = dispatcher.plan_claims(&context, &leadership);
        answers.extend(proposal.map(|proposal| answer(&leadership, proposal)));
        tokio::select! {
            () = leadership.wait_for_wakeup(&leadership.wake_dispatcher, nap) => {}
            Some((number, read_at, answer)) = answers.next() => {
                let answered_at = context.clock.monotonic();
                dispatcher.commits.note(answered_at.saturating_sub(read_at), answered_at);
                dispatcher.in_flight.remove(number);
                if answer.is_none() {
                    leadership.sleep(NAP_AFTER_UNKNOWN).await;
                }
            }
        }
    }
}

/// Proposes claims. Returns the number of the proposal, the time at which the state was read, and the answer.
async fn answer(leadership: &Leadership, proposal: ClaimsProposal) -> (u64, Duration, Option<CommandOutcome>) {
    let ClaimsProposal { number, claims, read_at, claiming } = proposal;
    let answer = leadership.propose(Command::Claim(claims)).await;
    drop(claiming);
    (number, read_at, answer)
}

impl Dispatcher {
    /// Returns the claims to propose now, if any, and how long to sleep then.
    fn plan_claims(&mut self, context: &NodeContext, leadership: &Leadership) -> (Option<ClaimsProposal>, Duration) {
        if !self.in_flight.has_room() {
            return (None, NAP_MAX);
        }
        // A stopping node waits for the claims in flight. Until it has them, no others are proposed.
        let Ok(claiming) = Arc::clone(&leadership.claiming).try_read_owned() else { return (None, NAP_FOR_CREDIT) };
        let (now, woke_at) = (leadership.now(), context.clock.monotonic());
        let voters = context.voters().len();
        let commit = self.commits.at(woke_at).unwrap_or_default() + NAP_FOR_CREDIT;
        let measurements = RelayMeasurements { by_node: leadership.reports(), voters, commit };
        let plan = context.replica.read(|ledger| {
            let owners = live_owners(ledger, leadership);
            let allowances = allowances_of(ledger, &owners, voters, now);
            let in_backoff = nodes_in_backoff(ledger, &allowances);
            if owners.len() == in_backoff.len() {
                return ClaimsPlan { claims: Claims::default(), nap: NAP_MAX, in_backoff, live: owners.len() };
            }
            let lacking = owners.keys().map(|node| (*node, leadership.lacking(*node))).collect();
            let mut claimable = Claimable::of(ledger, &lacking, &self.in_flight, now);
            let given = self.rates.bounds(ledger, &self.in_flight, woke_at, now);
            let caps = measurements.caps(ledger, &owners);
            let credits = credits(ledger, &allowances, &caps, &self.in_flight, &claimable.offers);
            let mut bounds = given.clone();
            let claims = claims(&mut self.fair_queue, &mut claimable, &credits, &mut bounds, &owners);
            self.rates.spend(&given, &bounds);
            ClaimsPlan { claims, nap: nap(&claimable, &bounds, &self.rates), in_backoff, live: owners.len() }
        });
        let ClaimsPlan { claims: Claims { claims, grants }, nap, in_backoff, live } = plan;
        self.backoff_alarms.update(in_backoff, live);
        if claims.is_empty() {
            return (None, nap);
        }
        crash::point("claim.before-propose");
        let nap = if grants.len() == CLAIMS_MAX { Duration::ZERO } else { nap };
        let number = self.in_flight.insert(grants);
        (Some(ClaimsProposal { number, claims, read_at: woke_at, claiming }), nap)
    }
}

/// Returns how long to sleep until more may be claimed. For a rate that is the time of its next credit; everything else
/// waits for claims that end.
fn nap(claimable: &Claimable, left: &ClaimLimits, rates: &ClaimRates) -> Duration {
    let naps = claimable.left().map(|offer| rates.holds_back(offer, left).unwrap_or(NAP_FOR_CREDIT));
    naps.min().unwrap_or(NAP_MAX).clamp(NAP_MIN, NAP_MAX)
}

/// Measurements of the relays on each node.
struct RelayMeasurements {
    /// Last report of each node.
    by_node: BTreeMap<NodeId, NodeReport>,
    voters: usize,
    /// Time from available credit to committed claims.
    commit: Duration,
}

impl RelayMeasurements {
    /// Returns the caps of these processes by pool and node (P12).
    fn caps<'a>(
        &self,
        ledger: &'a Ledger,
        owners: &BTreeMap<NodeId, ClaimOwner>,
    ) -> BTreeMap<(&'a str, NodeId), ClaimCap> {
        let pools: BTreeSet<&str> = ledger.relays().iter().map(|(_, relay)| relay.pool.as_str()).collect();
        let of = |pool: &str, owner: &ClaimOwner| {
            let measurements = measured(&self.by_node, *owner);
            let settle = measurements.and_then(|measurements| measurements.settle).unwrap_or_default();
            claim_cap(&relay_capacities(ledger, pool, measurements, self.voters), self.commit + settle)
        };
        let each = pools.iter().flat_map(|pool| owners.values().map(move |owner| (*pool, owner)));
        each.map(|(pool, owner)| ((pool, owner.node), of(pool, owner))).collect()
    }
}

/// Returns the last measurements of this process; `None` if it has not reported.
pub(crate) fn measured(reports: &BTreeMap<NodeId, NodeReport>, owner: ClaimOwner) -> Option<&NodeMeasurements> {
    reports.get(&owner.node).filter(|report| report.owner == owner).map(|report| &report.measured)
}

/// Returns the relays of a pool with one node's measurements.
pub(crate) fn relay_capacities(
    ledger: &Ledger,
    pool: &str,
    measurements: Option<&NodeMeasurements>,
    voters: usize,
) -> Vec<RelayCapacity> {
    let of_pool = ledger.relays().iter().filter(|(_, relay)| relay.pool == pool);
    let flow = |(name, relay): (&String, &Relay)| {
        let measured = measurements.and_then(|measurements| measurements.relays.get(name));
        let share = share(relay, voters);
        RelayCapacity {
            sessions: relay.max_sessions,
            // The node's rate falls after a "too fast" reply; the node's share of the relay's rate is its maximum
            // (P25).
            rate_per_second: measured.map_or(share, |flow| share.min(flow.rate_milli as f64 / 1_000.0)),
            dialogue: measured.and_then(|flow| flow.dialogue),
        }
    };
    of_pool.map(flow).collect()
}

/// The processes to which this leadership may grant claims.
pub(crate) fn live_owners(ledger: &Ledger, leadership: &Leadership) -> BTreeMap<NodeId, ClaimOwner> {
    let current = ledger.nodes().iter().map(|(node, known)| ClaimOwner { node: *node, incarnation: known.incarnation });
    current.filter(|owner| leadership.may_claim(*owner)).map(|owner| (owner.node, owner)).collect()
}

/// Returns the part of its cap that each of these processes may use after crashes (P12).
fn allowances_of(
    ledger: &Ledger,
    owners: &BTreeMap<NodeId, ClaimOwner>,
    voters: usize,
    now: Time,
) -> BTreeMap<NodeId, Allowance> {
    let live = owners.keys().filter_map(|node| Some((*node, ledger.nodes().get(node)?)));
    allowances(live, ledger.limits(), voters > 1, now)
}

/// Returns the nodes that get no claims, and until when.
fn nodes_in_backoff(ledger: &Ledger, allowances: &BTreeMap<NodeId, Allowance>) -> BTreeMap<NodeId, CrashBackoff> {
    let none = allowances.iter().filter(|(_, allowance)| **allowance == Allowance::NONE);
    none.filter_map(|(id, _)| {
        let node = ledger.nodes().get(id)?;
        Some((*id, CrashBackoff { name: node.name.clone(), until: node.crashes.backoff_until(ledger.limits())? }))
    })
    .collect()
}

/// Returns the number of recipients that each (tenant, pool, node) may still claim (P12). It is the node's part of its
/// cap, less what it has claimed or has in flight.
fn credits(
    ledger: &Ledger,
    allowances: &BTreeMap<NodeId, Allowance>,
    caps: &BTreeMap<(&str, NodeId), ClaimCap>,
    in_flight: &InFlightClaims,
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
    credits: &[Credit],
    bounds: &mut ClaimLimits,
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
