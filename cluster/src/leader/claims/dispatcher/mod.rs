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
use reveille_ledger::command::{ClaimRequest, Command, Relay};
use reveille_ledger::crash_backoff::{Allowance, allowances};
use reveille_ledger::ids::{ClaimOwner, NodeId, Time};
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::crash;
use tokio::sync::OwnedRwLockReadGuard;

use super::cap::{ClaimCap, RelayCapacity, claim_cap};
use super::claimable::offers;
use super::fair_queue::FairQueue;
use super::in_flight::InFlightClaims;
use super::limits::{ClaimLimits, ClaimRates};
use super::types::{Credit, Offer, PlannedSlice};
use crate::leader::leadership::{Leadership, NodeReport, missing_files};
use crate::process::context::NodeContext;
use crate::process::peer_messages::NodeMeasurements;
use crate::process::recent_mean::RecentMean;
use crate::smtp::registry::rate_per_node;

/// Longest sleep. Deferred recipients become due, and leases begin, without a wakeup.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Sleep while recipients wait for a node's credit: a partly settled claim causes no wakeup.
const SLEEP_FOR_CREDIT: Duration = Duration::from_millis(50);
/// Shortest sleep while recipients wait for a rate.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// Pause after a proposal without an answer.
const SLEEP_AFTER_UNKNOWN: Duration = Duration::from_millis(100);
/// Maximum number of slices in one entry. Each is a claim, or two if it contains a crash suspect.
const SLICES_MAX: usize = 256;

/// State that a leadership's dispatcher keeps between wakes.
#[derive(Default)]
struct Dispatcher {
    fair_queue: FairQueue,
    rates: ClaimRates,
    in_flight: InFlightClaims,
    /// Time from reading the state to the answer of the claim entry.
    commits: RecentMean,
}

/// The claims of one wake.
#[derive(Debug, Default)]
struct PlannedClaims {
    requests: Vec<ClaimRequest>,
    /// The slices from which the requests were made.
    slices: Vec<PlannedSlice>,
    /// Time until the next wake.
    sleep: Duration,
}

/// Result of a wake.
struct Wake {
    /// Claims to propose now, if any.
    proposal: Option<ClaimsProposal>,
    /// Time until the next wake.
    sleep: Duration,
}

impl Wake {
    fn without_claims(sleep: Duration) -> Wake {
        Wake { proposal: None, sleep }
    }
}

/// Claims to be proposed.
struct ClaimsProposal {
    number: u64,
    requests: Vec<ClaimRequest>,
    read_at: Duration,
    /// Held until the proposal is answered, or given up.
    claiming: OwnedRwLockReadGuard<()>,
}

/// A proposal that the dispatcher no longer waits for.
struct EndedProposal {
    number: u64,
    /// Time at which the state was read.
    read_at: Duration,
    /// `None`: the outcome is not known.
    answer: Option<CommandOutcome>,
}

/// Dispatches until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    let mut dispatcher = Dispatcher::default();
    let mut answers = FuturesUnordered::new();
    while !leadership.ended() {
        let Wake { proposal, sleep } = dispatcher.plan_claims(&context, &leadership);
        answers.extend(proposal.map(|proposal| propose(&leadership, proposal)));
        tokio::select! {
            () = leadership.wait_for_wakeup(&leadership.wake_dispatcher, sleep) => {}
            Some(ended) = answers.next() => {
                let ended_at = context.clock.monotonic();
                dispatcher.commits.record(ended_at.saturating_sub(ended.read_at), ended_at);
                dispatcher.in_flight.remove(ended.number);
                if ended.answer.is_none() {
                    leadership.sleep(SLEEP_AFTER_UNKNOWN).await;
                }
            }
        }
    }
}

/// Proposes claims and waits for the answer.
async fn propose(leadership: &Leadership, proposal: ClaimsProposal) -> EndedProposal {
    let ClaimsProposal { number, requests, read_at, claiming } = proposal;
    let answer = leadership.propose(Command::Claim(requests)).await;
    drop(claiming);
    EndedProposal { number, read_at, answer }
}

impl Dispatcher {
    /// Plans the claims to propose now.
    fn plan_claims(&mut self, context: &NodeContext, leadership: &Leadership) -> Wake {
        if !self.in_flight.has_room() {
            return Wake::without_claims(SLEEP_MAX);
        }
        // A stopping node waits for the claims in flight. Until it has them, no others are proposed.
        let Ok(claiming) = Arc::clone(&leadership.claiming).try_read_owned() else {
            return Wake::without_claims(SLEEP_FOR_CREDIT);
        };
        let (now, woke_at) = (leadership.now(), context.clock.monotonic());
        let (voters, sharing_nodes) = (context.voters().len(), context.replica.read(Ledger::relay_shares));
        let commit = self.commits.at(woke_at).unwrap_or_default() + SLEEP_FOR_CREDIT;
        let reports = NodeReports { by_node: leadership.reports(), sharing_nodes, commit };
        let planned = context.replica.read(|ledger| {
            let owners = live_owners(ledger, leadership);
            self.plan_from(ledger, &owners, voters, &reports, (now, woke_at))
        });
        let PlannedClaims { requests, slices, sleep } = planned;
        if requests.is_empty() {
            return Wake::without_claims(sleep);
        }
        crash::point("claim.before-propose");
        let sleep = if slices.len() == SLICES_MAX { Duration::ZERO } else { sleep };
        let number = self.in_flight.insert(slices);
        Wake { proposal: Some(ClaimsProposal { number, requests, read_at: woke_at, claiming }), sleep }
    }

    /// Plans the claims of these processes from a state, at a ledger time and a monotonic time.
    fn plan_from(
        &mut self,
        ledger: &Ledger,
        owners: &BTreeMap<NodeId, ClaimOwner>,
        voters: usize,
        reports: &NodeReports,
        (now, woke_at): (Time, Duration),
    ) -> PlannedClaims {
        let allowances = allowances_of(ledger, owners, voters, now);
        if allowances.values().all(|allowance| *allowance == Allowance::NONE) {
            return PlannedClaims { sleep: SLEEP_MAX, ..PlannedClaims::default() };
        }
        let missing = owners.keys().map(|node| (*node, missing_files(&reports.by_node, *node))).collect();
        let mut offers = offers(ledger, &missing, &self.in_flight, now);
        let mut limits = self.rates.limits(ledger, &self.in_flight, woke_at, now);
        let caps = reports.caps(ledger, owners);
        let credits = credits(ledger, &allowances, &caps, &self.in_flight, &offers);
        let planned = plan(&mut self.fair_queue, &mut offers, &credits, &mut limits, owners);
        self.rates.spend(&planned.slices);
        PlannedClaims { sleep: sleep_time(&offers, &limits, &self.rates), ..planned }
    }
}

/// Returns how long to sleep until more may be claimed. For a rate that is the time of its next credit; everything else
/// waits for claims that end.
fn sleep_time(offers: &[Offer], left: &ClaimLimits, rates: &ClaimRates) -> Duration {
    let waiting = offers.iter().filter(|offer| !offer.slots.is_empty());
    let sleeps = waiting.map(|offer| rates.holds_back(offer, left).unwrap_or(SLEEP_FOR_CREDIT));
    sleeps.min().unwrap_or(SLEEP_MAX).clamp(SLEEP_MIN, SLEEP_MAX)
}

/// Reports of the nodes, and what the caps of their relays need beside them.
struct NodeReports {
    /// Last report of each node.
    by_node: BTreeMap<NodeId, NodeReport>,
    /// Number of nodes that share each relay's rate.
    sharing_nodes: usize,
    /// Time from available credit to committed claims.
    commit: Duration,
}

impl NodeReports {
    /// Returns the caps of these processes by pool and node (P12).
    fn caps<'a>(
        &self,
        ledger: &'a Ledger,
        owners: &BTreeMap<NodeId, ClaimOwner>,
    ) -> BTreeMap<(&'a str, NodeId), ClaimCap> {
        let pools: BTreeSet<&str> = ledger.relays().iter().map(|(_, relay)| relay.pool.as_str()).collect();
        let cap_of = |pool: &str, owner: &ClaimOwner| {
            let measurements = measured(&self.by_node, *owner);
            let settle = measurements.and_then(|measurements| measurements.settle).unwrap_or_default();
            claim_cap(&relay_capacities(ledger, pool, measurements, self.sharing_nodes), self.commit + settle)
        };
        let each = pools.iter().flat_map(|pool| owners.values().map(move |owner| (*pool, owner)));
        each.map(|(pool, owner)| ((pool, owner.node), cap_of(pool, owner))).collect()
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
    sharing_nodes: usize,
) -> Vec<RelayCapacity> {
    let of_pool = ledger.relays().iter().filter(|(_, relay)| relay.pool == pool);
    let flow = |(name, relay): (&String, &Relay)| {
        let measured = measurements.and_then(|measurements| measurements.relays.get(name));
        let share = rate_per_node(relay, sharing_nodes);
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

/// Returns the processes to which this leadership may grant claims.
pub(crate) fn live_owners(ledger: &Ledger, leadership: &Leadership) -> BTreeMap<NodeId, ClaimOwner> {
    let takes = ledger.nodes().iter().filter(|(_, known)| known.takes_claims());
    let current = takes.map(|(node, known)| known.owner(*node));
    current.filter(|owner| leadership.may_claim(*owner)).map(|owner| (owner.node, owner)).collect()
}

/// Returns the part of its cap that each of these processes may use after crashes (P12).
pub(crate) fn allowances_of(
    ledger: &Ledger,
    owners: &BTreeMap<NodeId, ClaimOwner>,
    voters: usize,
    now: Time,
) -> BTreeMap<NodeId, Allowance> {
    let live = owners.keys().filter_map(|node| Some((*node, ledger.nodes().get(node)?)));
    allowances(live, ledger.limits(), voters > 1, now)
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
        if let Some(page) = ledger.pages().get(&claim.chunk.page) {
            let of_pool = open.entry((ledger.pool_of_claim(page, claim), claim.owner.node)).or_default();
            *of_pool.entry(&page.tenant).or_default() += claim.claimed.len();
        }
    }
    for slice in in_flight.slices() {
        let of_pool = open.entry((&slice.source.pool, slice.node)).or_default();
        *of_pool.entry(&slice.tenant).or_default() += slice.recipients;
    }
    let nothing = BTreeMap::new();
    let tenants: BTreeSet<(&str, &str)> =
        offers.iter().map(|offer| (offer.source.pool.as_str(), offer.tenant.as_str())).collect();
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
        for (_, tenant) in tenants.iter().filter(|(its_pool, _)| its_pool == pool) {
            credit(Some(tenant), cap.of_a_tenant, open.get(tenant).copied().unwrap_or(0));
        }
    }
    credits
}

/// Returns the next slices, and the claims to request for them. Their slots leave the offers.
fn plan(
    fair_queue: &mut FairQueue,
    offers: &mut [Offer],
    credits: &[Credit],
    limits: &mut ClaimLimits,
    owners: &BTreeMap<NodeId, ClaimOwner>,
) -> PlannedClaims {
    let slices = fair_queue.next_slices(offers, credits, limits, SLICES_MAX);
    let mut requests = Vec::new();
    for PlannedSlice { offer, source, node, recipients, .. } in &slices {
        let (Some(offer), Some(owner)) = (offers.get_mut(*offer), owners.get(node)) else { continue };
        let left = &mut offer.slots;
        let suspect = std::mem::take(&mut left.suspect);
        let plain = left.plain.first(recipients.saturating_sub(suspect.len()));
        left.plain.remove(&plain);
        let claims = [suspect, plain].into_iter().filter(|slice| !slice.is_empty());
        requests.extend(claims.map(|slice| ClaimRequest { chunk: source.chunk, slice, owner: *owner }));
    }
    PlannedClaims { requests, slices, sleep: Duration::ZERO }
}

#[cfg(test)]
mod tests;
