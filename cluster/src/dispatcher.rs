//! The leader's dispatcher: turns what is pending into claims, just far enough ahead (P4, P12).
//!
//! Suspects, who were open when a holder died, go in rows of their own and one at a time to a node (P12).
//! Belongs to a term and is dropped with it. Each wake it looks at the state: who may hold claims, how much
//! each (tenant, pool, node) has open, what is claimable; `fair` splits the credit; one entry carries all
//! claims. Holders keep sending while there is no leader: rows belong to the ledger, not to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::command::{Cause, Claim, Command, SLICE_MAX};
use reveille_ledger::deaths::{Allowance, allowances};
use reveille_ledger::ids::{Holder, NodeId, RunId, Time};
use reveille_ledger::{Ledger, Row, Run, RunState, Standing, closed_slots};

use crate::fair::{Credit, Fair, Offer};
use crate::lane::BEGIN_WITHIN;
use crate::relays::share;
use crate::rests::{Rest, Rests};
use crate::site::Site;
use crate::term::Term;

/// The longest sleep: waves come in and leases begin without a bell.
const NAP_MAX: Duration = Duration::from_millis(200);
/// Pause after a proposal without an answer.
const NAP_AFTER_UNKNOWN: Duration = Duration::from_millis(100);
/// Claims in one entry.
const CLAIMS_MAX: usize = 256;
/// Chunks of one tenant and pool that one wake offers, oldest page first: more than its credit can take. What
/// offers nothing does not count, so that paused or waiting pages starve nobody.
const OFFERS_MAX: usize = 256;
/// Claimed but unsettled recipients of a (tenant, pool, node) at the very most (P12).
pub const CLAIM_CAP_MAX: u32 = 4_096;
/// What commit, dialogue and settle take together, generously: claims reach this far ahead. Seconds.
const AHEAD_SECONDS: f64 = 1.0;
/// How many recipients a session keeps busy where the relay has no rate: a dialogue takes a few
/// milliseconds, commit and settle some ten times as long.
const AHEAD_PER_SESSION: u32 = 32;

/// After this a suspect is over with its preparation, or no longer alone: ten seconds to get its seat, ten
/// seconds in it. Milliseconds.
const PREPARED_BY_MS: i64 = 2 * BEGIN_WITHIN.as_millis() as i64;

/// Dispatches until the term ends.
pub(crate) async fn run(site: Arc<Site>, term: Arc<Term>) {
    let mut fair = Fair::new();
    let (mut rests, mut turn) = (Rests::default(), None);
    while !term.ended() {
        let nap = wake(&site, &term, &mut fair, &mut rests, &mut turn).await;
        term.sleep_until_bell(&term.work, nap).await;
    }
}

async fn wake(site: &Site, term: &Term, fair: &mut Fair, rests: &mut Rests, turn: &mut Option<Lane>) -> Duration {
    let now = term.now();
    let voters = site.voters().len();
    let (claims, resting, live) = site.replica.read(|ledger| {
        let holders = live_holders(ledger, term);
        let allowances = allowances_of(ledger, &holders, voters, now);
        let resting = resting(ledger, &allowances);
        if holders.len() == resting.len() {
            return (Vec::new(), resting, holders.len());
        }
        let work = Work::of(ledger, &holders, now, turn);
        let credits = credits(ledger, &allowances, voters, &work.offers);
        (claims(fair, work, &credits, &holders), resting, holders.len())
    });
    rests.look(resting, live);
    if claims.is_empty() {
        return NAP_MAX;
    }
    let asked = claims.len();
    match term.propose(Command::Claim(claims)).await {
        Some(_) if asked == CLAIMS_MAX => Duration::ZERO,
        Some(_) => NAP_MAX,
        None => NAP_AFTER_UNKNOWN,
    }
}

/// Current lives whose lease this term has granted.
fn live_holders(ledger: &Ledger, term: &Term) -> BTreeMap<NodeId, Holder> {
    let current = ledger.nodes().iter().map(|(node, known)| Holder { node: *node, incarnation: known.incarnation });
    current.filter(|holder| term.lease_runs(*holder)).map(|holder| (holder.node, holder)).collect()
}

/// P12: what part of its cap each of these lives may hold.
fn allowances_of(
    ledger: &Ledger,
    holders: &BTreeMap<NodeId, Holder>,
    voters: usize,
    now: Time,
) -> BTreeMap<NodeId, Allowance> {
    let live = holders.keys().filter_map(|node| Some((*node, ledger.nodes().get(node)?)));
    allowances(live, voters > 1, now)
}

/// The nodes that may hold nothing, and until when.
fn resting(ledger: &Ledger, allowances: &BTreeMap<NodeId, Allowance>) -> BTreeMap<NodeId, Rest> {
    let none = allowances.iter().filter(|(_, allowance)| **allowance == Allowance::NONE);
    none.filter_map(|(id, _)| {
        let node = ledger.nodes().get(id)?;
        Some((*id, Rest { name: node.name.clone(), until: node.deaths.rests_until()? }))
    })
    .collect()
}

/// Tenant and pool.
type Lane = (String, String);

/// What can be claimed now: an offer a chunk, and the slots behind it.
struct Work {
    offers: Vec<Offer>,
    slots: BTreeMap<(RunId, u32), Slots>,
    /// Nodes that prepare no suspect yet.
    free: BTreeSet<NodeId>,
}

/// What is left to claim in a chunk.
#[derive(Default)]
struct Slots {
    /// In slices of any size.
    plain: Bitmap,
    /// Each in a row of its own.
    suspects: Bitmap,
}

impl Slots {
    fn len(&self) -> u32 {
        self.plain.len() + self.suspects.len()
    }
}

impl Work {
    /// `turn` is the lane that had the last suspect.
    fn of(ledger: &Ledger, holders: &BTreeMap<NodeId, Holder>, now: Time, turn: &mut Option<Lane>) -> Work {
        let free = holders.keys().copied().filter(|node| !prepares_a_suspect(ledger, *node, now)).collect();
        let mut work = Work { offers: Vec::new(), slots: BTreeMap::new(), free };
        let mut offered: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (id, page) in ledger.open_pages() {
            let offered = offered.entry((&page.tenant, &page.pool)).or_default();
            let sends = |run: &Run| run.state == RunState::Open && run.counts.get(Standing::Pending) > 0;
            if *offered >= OFFERS_MAX || !page.runs.iter().any(sends) {
                continue;
            }
            for number in 0..page.slots.div_ceil(CHUNK) {
                let Some(chunk) = ledger.chunks().get(&(id, number)) else { continue };
                let mut claimable = chunk.claimable(now);
                claimable.remove(&closed_slots(page, number, now));
                let serves = || ledger.relays().iter().any(|(_, relay)| relay.pool == page.pool);
                let suspects = claimable.and(&chunk.suspects);
                let suspects = if suspects.is_empty() || serves() { suspects } else { Bitmap::new() };
                let slots = Slots { plain: claimable.and_not(&chunk.suspects), suspects };
                if slots.len() == 0 {
                    continue;
                }
                work.offers.push(Offer {
                    tenant: page.tenant.clone(),
                    pool: page.pool.clone(),
                    priority: page.priority,
                    due: page.due,
                    late: page.runs.iter().all(|run| matches!(run.cause, Cause::CatchUp | Cause::Backfill)),
                    page: id,
                    chunk: number,
                    claimable: slots.len(),
                });
                work.slots.insert((id, number), slots);
                *offered += 1;
            }
        }
        work.choose_suspects(turn);
        work
    }

    /// P12: no more suspects than nodes that have none, since what is offered beyond that would use up credit.
    /// Lanes take turns, behind the one that had the last: one whose relay is away does not keep the others'
    /// suspects waiting.
    fn choose_suspects(&mut self, turn: &mut Option<Lane>) {
        let mut waiting: BTreeMap<Lane, Vec<(RunId, u32, u16)>> = BTreeMap::new();
        for offer in &self.offers {
            if let Some(slots) =
                self.slots.get_mut(&(offer.page, offer.chunk)).filter(|slots| !slots.suspects.is_empty())
            {
                let lane = waiting.entry((offer.tenant.clone(), offer.pool.clone())).or_default();
                let first = std::mem::take(&mut slots.suspects);
                lane.extend(first.iter().take(self.free.len()).map(|slot| (offer.page, offer.chunk, slot)));
            }
        }
        let (before, after): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(lane, _)| Some(lane) <= turn.as_ref());
        let lanes: Vec<_> = after.into_iter().chain(before).collect();
        let rounds = (0..self.free.len()).flat_map(|round| lanes.iter().map(move |lane| (round, lane)));
        let chosen = rounds.filter_map(|(round, (lane, suspects))| Some((lane, suspects.get(round)?)));
        for (lane, (page, chunk, slot)) in chosen.take(self.free.len()) {
            if let Some(slots) = self.slots.get_mut(&(*page, *chunk)) {
                slots.suspects.insert(*slot);
            }
            *turn = Some(lane.clone());
        }
        for offer in &mut self.offers {
            offer.claimable = self.slots.get(&(offer.page, offer.chunk)).map_or(0, Slots::len);
        }
        self.offers.retain(|offer| offer.claimable > 0);
    }
}

/// P12: has the node a row with a suspect, which may still be in preparation? It is alone in that row. The
/// ledger learns only by its outcome that it has passed its gate; a relay may keep that back for minutes.
fn prepares_a_suspect(ledger: &Ledger, node: NodeId, now: Time) -> bool {
    let prepares = |row: &&Row| {
        row.holder.node == node && !row.claimed.is_empty() && now.since_ms(row.claimed_at) < PREPARED_BY_MS
    };
    let mut rows = ledger.rows().iter().map(|(_, row)| row).filter(prepares);
    rows.any(|row| {
        let chunk = ledger.chunks().get(&(row.page, row.chunk));
        chunk.is_some_and(|chunk| !row.claimed.and(&chunk.suspects).is_empty())
    })
}

/// P12: what each (tenant, pool, node) may still claim: the node's part of its cap, less what it has open.
fn credits(ledger: &Ledger, allowances: &BTreeMap<NodeId, Allowance>, voters: usize, offers: &[Offer]) -> Vec<Credit> {
    let mut open: BTreeMap<(String, String, NodeId), u32> = BTreeMap::new();
    for (_, row) in ledger.rows().iter().filter(|(_, row)| !row.claimed.is_empty()) {
        if let Some(page) = ledger.pages().get(&row.page) {
            let key = (page.tenant.clone(), page.pool.clone(), row.holder.node);
            *open.entry(key).or_default() += row.claimed.len();
        }
    }
    let lanes: BTreeSet<(&str, &str)> =
        offers.iter().map(|offer| (offer.tenant.as_str(), offer.pool.as_str())).collect();
    let mut credits = Vec::new();
    let pools: BTreeSet<&str> = lanes.iter().map(|(_, pool)| *pool).collect();
    for (node, allowance) in allowances {
        for pool in pools.iter().copied() {
            let open = open.iter().filter(|((_, of, on), _)| of == pool && on == node).map(|(_, count)| count);
            let recipients = allowance.of(CLAIM_CAP_MAX).saturating_sub(open.sum());
            credits.push(Credit { tenant: None, pool: pool.to_owned(), node: *node, recipients });
        }
    }
    for (tenant, pool) in lanes {
        let cap = claim_cap(ledger, pool, voters);
        for (node, allowance) in allowances {
            let key = (tenant.to_owned(), pool.to_owned(), *node);
            let recipients = allowance.of(cap).saturating_sub(open.get(&key).copied().unwrap_or(0));
            let (tenant, pool, node) = key;
            credits.push(Credit { tenant: Some(tenant), pool, node, recipients });
        }
    }
    credits
}

/// Claimed but unsettled recipients of one tenant in one pool on one node, at most: what its relays can
/// take while claims are on their way, and at least two a session.
fn claim_cap(ledger: &Ledger, pool: &str, voters: usize) -> u32 {
    let relays = ledger.relays().iter().map(|(_, relay)| relay).filter(|relay| relay.pool == pool);
    let cap = relays.map(|relay| match relay.rate_milli {
        0 => relay.max_sessions * AHEAD_PER_SESSION,
        _ => ((share(relay, voters) * AHEAD_SECONDS) as u32).max(2 * relay.max_sessions),
    });
    cap.fold(0, u32::saturating_add).min(CLAIM_CAP_MAX)
}

fn claims(fair: &mut Fair, mut work: Work, credits: &[Credit], holders: &BTreeMap<NodeId, Holder>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for grant in fair.grants(&work.offers, credits, CLAIMS_MAX) {
        let place = (grant.page, grant.chunk);
        let (Some(left), Some(holder)) = (work.slots.get_mut(&place), holders.get(&grant.node)) else { continue };
        let mut claim = |slice: Bitmap| {
            claims.push(Claim { page: grant.page, chunk: grant.chunk, slice, holder: *holder });
        };
        let one = left.suspects.first(u32::from(work.free.contains(&grant.node)));
        let slice = left.plain.first(grant.recipients.min(SLICE_MAX) - one.len());
        left.suspects.remove(&one);
        left.plain.remove(&slice);
        if !one.is_empty() {
            work.free.remove(&grant.node);
            claim(one);
        }
        if !slice.is_empty() {
            claim(slice);
        }
    }
    claims
}

#[cfg(test)]
mod tests;
