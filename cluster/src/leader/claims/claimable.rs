//! What could be claimed now, by the state alone: for the dispatcher, which claims it, and for the leader's look
//! at itself, which must never expect what a dispatcher would not do (P13).
//!
//! Crash suspects, whose attempt was open when an owner died, are granted in claims of their own (P12).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::ids::{Hash, NodeId, RunId, Time};
use reveille_ledger::{Chunk, Ledger, Page, RecipientState, Run, RunState, bucket_after, closed_slots};

use super::cap::CLAIM_CAP_MAX;
use super::in_flight::InFlightClaims;
use super::types::Offer;
use crate::audience::NAMED_MAX;

/// Chunks of one tenant and pool that one wake offers, oldest page first: more than its credit can take. Paused and
/// waiting pages do not count. Late pages (P16), and pages whose audience some nodes lack (P20), each have their own
/// limit, so they cannot crowd out other pages. Of one page and pool no more chunks are offered than all nodes together
/// could take, so that a page of a thousand chunks costs as much as one of two.
const OFFERS_MAX: usize = 256;

/// Nodes, and the parts of audiences that each lacks.
pub(crate) type Lacking = BTreeMap<NodeId, BTreeSet<Hash>>;

/// What of one chunk could be claimed now by one pool.
pub(crate) struct ClaimablePart<'a> {
    pub number: u32,
    pub chunk: &'a Chunk,
    pub pool: &'a str,
    pub slots: Bitmap,
}

/// The chunks of a page with what of them could be claimed now, where there is anything: by its pool, and by others
/// to which an operator has moved dead letters.
pub(crate) fn claimable<'a>(
    ledger: &'a Ledger,
    id: RunId,
    page: &'a Page,
    now: Time,
) -> impl Iterator<Item = ClaimablePart<'a>> {
    let sends = |run: &Run| run.state == RunState::Open && run.has_claimable() && !canary_waits(ledger, id, run, now);
    let chunks = if page.runs.iter().any(sends) { page.slots.div_ceil(CHUNK) } else { 0 };
    let chunks = (0..chunks).filter_map(move |number| {
        let chunk = ledger.chunks().get(&(id, number))?;
        let mut slots = chunk.claimable(now);
        slots.remove(&closed_slots(page, number, now));
        Some((number, chunk, slots))
    });
    chunks.flat_map(move |(number, chunk, slots)| {
        let part = move |(pool, slots): (Option<&'a str>, Bitmap)| ClaimablePart {
            number,
            chunk,
            pool: pool.unwrap_or(&page.pool),
            slots,
        };
        chunk.by_pool(&slots).into_iter().map(part)
    })
}

/// Does a run wait for a canary of which no recipient can be claimed before the next wave? A greylisted mailbox delays a
/// canary for an hour, and each look at the recipients behind it would go through all chunks of the run.
pub(crate) fn canary_waits(ledger: &Ledger, id: RunId, run: &Run, now: Time) -> bool {
    let Some(canary) = run.canary.filter(|_| run.waits_for_canary()) else { return false };
    let unclaimed = canary.undecided.saturating_sub(run.counts.get(RecipientState::Claimed));
    let chunks = ledger.chunks().range((id, run.first / CHUNK)..=(id, (run.first + run.count) / CHUNK));
    let waits = |(&(_, number), chunk): (&(RunId, u32), &Chunk)| {
        let pending = chunk.set(RecipientState::Pending);
        let waves = chunk.waves.range(bucket_after(now)..).flat_map(|(_, slots)| slots.iter());
        let waves = waves.filter(|slot| pending.contains(*slot));
        let numbers = waves.filter_map(|slot| (number * CHUNK + u32::from(slot)).checked_sub(run.first));
        numbers.filter(|number| *number < run.count && run.is_of_canary(*number)).count() as u32
    };
    let mut left = unclaimed;
    chunks.map(waits).any(|waiting| {
        left = left.saturating_sub(waiting);
        left == 0
    })
}

/// Is all of a page late? Such runs were missed and are caught up, or backfilled (P16).
pub fn is_late(page: &Page) -> bool {
    page.runs.iter().all(|run| run.cause.is_late())
}

/// Have dead letters of this page been moved to another pool?
fn goes_elsewhere(ledger: &Ledger, id: RunId) -> bool {
    ledger.chunks().range((id, 0)..=(id, u32::MAX)).any(|(_, chunk)| !chunk.pool_overrides.is_empty())
}

/// A chunk and the pool by which a part of it goes.
pub(crate) type Source = (RunId, u32, String);

/// What can be claimed now: an offer for each chunk and pool, and the slots behind it.
#[derive(Default)]
pub(crate) struct Claimable {
    pub offers: Vec<Offer>,
    pub slots: BTreeMap<Source, ClaimableSlots>,
}

/// What is left to claim in a chunk.
#[derive(Default)]
pub(crate) struct ClaimableSlots {
    /// In slices of any size.
    pub plain: Bitmap,
    /// One crash suspect at most, in a claim of its own. There are few: no more than were composed at once.
    pub suspect: Bitmap,
}

impl ClaimableSlots {
    fn of(part: &ClaimablePart<'_>) -> ClaimableSlots {
        let suspects = &part.chunk.crash_suspects;
        ClaimableSlots { plain: part.slots.and_not(suspects), suspect: part.slots.and(suspects).first(1) }
    }

    fn len(&self) -> u32 {
        self.plain.len() + self.suspect.len()
    }
}

impl Claimable {
    /// What these nodes could claim; beside each, the parts of audiences that it lacks (P20). A page with claims in flight
    /// waits for their answer.
    pub fn of(ledger: &Ledger, nodes: &Lacking, in_flight: &InFlightClaims, now: Time) -> Claimable {
        let mut builder = ClaimableBuilder { nodes, claimable: Claimable::default(), offered: BTreeMap::new() };
        for (id, page) in ledger.open_pages().filter(|(id, _)| !in_flight.holds(*id)) {
            builder.add(ledger, id, page, now);
        }
        builder.claimable
    }

    /// Offers of which something is left.
    pub fn left(&self) -> impl Iterator<Item = &Offer> {
        self.offers.iter().filter(|offer| self.slots.get(&offer.source()).is_some_and(|slots| slots.len() > 0))
    }
}

/// Offers that have a limit together: tenant, pool, and whether they are late.
type OfferGroup<'a> = (&'a str, &'a str, bool);

/// Gathers offers page by page, within [`OFFERS_MAX`].
struct ClaimableBuilder<'a> {
    nodes: &'a Lacking,
    claimable: Claimable,
    /// How many chunks of a group are offered, by the nodes that are barred from them.
    offered: BTreeMap<OfferGroup<'a>, BTreeMap<BTreeSet<NodeId>, usize>>,
}

impl<'a> ClaimableBuilder<'a> {
    fn is_full(&self, group: OfferGroup<'_>, barred: &BTreeSet<NodeId>) -> bool {
        self.offered.get(&group).and_then(|offered| offered.get(barred)).is_some_and(|count| *count >= OFFERS_MAX)
    }

    /// Offers the chunks of a page. There may be a hundred thousand pages, so the cheapest questions come first.
    fn add(&mut self, ledger: &'a Ledger, id: RunId, page: &'a Page, now: Time) {
        let (late, none_barred) = (is_late(page), BTreeSet::new());
        let own_pool_is_full = self.is_full((&page.tenant, &page.pool, late), &none_barred);
        if own_pool_is_full && !goes_elsewhere(ledger, id) {
            return;
        }
        let goes_elsewhere = LazyCell::new(|| own_pool_is_full || goes_elsewhere(ledger, id));
        let enough = u64::from(CLAIM_CAP_MAX) * self.nodes.len() as u64;
        let mut of_page: BTreeMap<&str, u64> = BTreeMap::new();
        for part in claimable(ledger, id, page, now) {
            let group = (page.tenant.as_str(), part.pool, late);
            let of_pool = of_page.entry(part.pool).or_default();
            if *of_pool > enough {
                match *goes_elsewhere {
                    true => continue,
                    false => break,
                }
            }
            if self.is_full(group, &none_barred) {
                continue;
            }
            let slots = ClaimableSlots::of(&part);
            if slots.len() == 0 {
                continue;
            }
            let barred = barred(ledger, page, part.number, self.nodes);
            if barred.len() == self.nodes.len() || self.is_full(group, &barred) {
                continue;
            }
            if barred.is_empty() {
                *of_pool += u64::from(slots.plain.len());
            }
            *self.offered.entry(group).or_default().entry(barred.clone()).or_default() += 1;
            self.claimable.offers.push(Offer {
                tenant: page.tenant.clone(),
                pool: part.pool.to_owned(),
                priority: page.priority,
                due: page.due,
                late,
                page: id,
                chunk: part.number,
                claimable: slots.len(),
                barred,
            });
            self.claimable.slots.insert((id, part.number, part.pool.to_owned()), slots);
        }
    }
}

/// P20: the nodes that lack the part of this chunk.
pub(crate) fn barred(ledger: &Ledger, page: &Page, chunk: u32, nodes: &Lacking) -> BTreeSet<NodeId> {
    if nodes.values().all(BTreeSet::is_empty) {
        return BTreeSet::new();
    }
    // A large run is alone on its page; of those that share one, each has its only part.
    let part = |run: &Run| ledger.seal(&run.audience)?.parts.get((chunk - run.first / CHUNK) as usize).copied();
    let parts: BTreeSet<Hash> = page.runs.iter().filter_map(part).collect();
    // Who names as many as it can may lack any.
    let lacks = |(_, lacking): &(&NodeId, &BTreeSet<Hash>)| {
        !parts.is_empty() && (lacking.len() >= NAMED_MAX || !lacking.is_disjoint(&parts))
    };
    nodes.iter().filter(lacks).map(|(node, _)| *node).collect()
}
