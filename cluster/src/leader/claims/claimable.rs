//! Finds what could be claimed now, from the state alone. The dispatcher claims it. The fitness check of the leader
//! uses the same rules, so that it never expects what a dispatcher would not do (P13).
//!
//! Crash suspects, which were open when an owner crashed, are granted in claims of their own (P12).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::ids::{ChunkKey, Hash, NodeId, PageId, Time};
use reveille_ledger::{Chunk, Ledger, Page, RecipientState, Run, RunState, unclaimable_slots, wave_after};

use super::cap::CLAIM_CAP_MAX;
use super::in_flight::InFlightClaims;
use super::types::{ClaimSource, ClaimableSlots, Offer};
use crate::process::limits::NAMED_MAX;

/// Maximum number of chunks of one tenant, pool and priority that one wake offers, oldest page first; more than its
/// credit can use. A wake offers no more recipients of them than all nodes together could claim, either. Paused and
/// waiting pages do not count. Late pages (P16), and runs whose files some nodes lack (P20), each have their own
/// limit, so they cannot crowd out other pages. So a page of a thousand chunks costs as much as a page of two, and a
/// hundred pages of 512 runs as much as a dozen.
const OFFERS_MAX: usize = 256;

/// Nodes, with the files that each lacks: audience parts and attachments.
pub(crate) type MissingFiles = BTreeMap<NodeId, BTreeSet<Hash>>;

/// Recipients of one chunk that one pool could claim now.
pub(crate) struct ClaimableChunk<'a> {
    pub key: ChunkKey,
    pub chunk: &'a Chunk,
    pub pool: &'a str,
    pub slots: Bitmap,
}

/// Returns what could be claimed now in each chunk of a page, by pool. Besides the page's pool these are pools to which
/// an operator has moved dead letters.
pub(crate) fn claimable<'a>(
    ledger: &'a Ledger,
    id: PageId,
    page: &'a Page,
    now: Time,
) -> impl Iterator<Item = ClaimableChunk<'a>> {
    let sends = |run: &Run| run.state == RunState::Open && run.has_claimable() && !canary_waits(ledger, id, run, now);
    // A page of one chunk may have 512 runs: reading its chunk costs less than reading its runs.
    let chunks = match page.slots.div_ceil(CHUNK) {
        1 => 1,
        many if page.runs.iter().any(sends) => many,
        _ => 0,
    };
    let chunks = (0..chunks).filter_map(move |number| {
        let key = id.chunk(number);
        let chunk = ledger.chunks().get(&key)?;
        let mut slots = chunk.claimable(now);
        if slots.is_empty() {
            return None;
        }
        slots.remove(&unclaimable_slots(page, number, now));
        Some((key, chunk, slots))
    });
    chunks.flat_map(move |(key, chunk, slots)| {
        let by_pool = chunk.by_pool(&slots).into_iter();
        by_pool.map(move |(pool, slots)| ClaimableChunk { key, chunk, pool: pool.unwrap_or(&page.pool), slots })
    })
}

/// Returns true if a run waits for a canary of which no recipient can be claimed before the next wave. A greylisted
/// mailbox delays a canary for an hour, and each check of the recipients behind it would read all chunks of the run.
pub(crate) fn canary_waits(ledger: &Ledger, id: PageId, run: &Run, now: Time) -> bool {
    let Some(canary) = run.canary.filter(|_| run.waits_for_canary()) else { return false };
    let unclaimed = canary.undecided.saturating_sub(run.counts.get(RecipientState::Claimed));
    let chunks = ledger.chunks().range(id.chunk(run.first / CHUNK)..=id.chunk((run.first + run.count) / CHUNK));
    let waits = |(key, chunk): (&ChunkKey, &Chunk)| {
        let pending = chunk.set(RecipientState::Pending);
        let waves = chunk.waves.range(wave_after(now)..).flat_map(|(_, slots)| slots.iter());
        let waves = waves.filter(|slot| pending.contains(*slot));
        let numbers = waves.filter_map(|slot| (key.number * CHUNK + u32::from(slot)).checked_sub(run.first));
        numbers.filter(|number| *number < run.count && run.is_of_canary(*number)).count() as u32
    };
    let mut left = unclaimed;
    chunks.map(waits).any(|waiting| {
        left = left.saturating_sub(waiting);
        left == 0
    })
}

/// Returns true if dead letters of this page were moved to another pool.
fn has_pool_overrides(ledger: &Ledger, id: PageId) -> bool {
    ledger.chunks().range(id.chunks()).any(|(_, chunk)| !chunk.pool_overrides.is_empty())
}

/// Returns what these nodes could claim, given the files that each lacks (P20): an offer for each chunk, pool and set
/// of nodes that lack a file. A page with claims in flight is left out until their answer.
pub(crate) fn offers(ledger: &Ledger, nodes: &MissingFiles, in_flight: &InFlightClaims, now: Time) -> Vec<Offer> {
    let mut collector = OfferCollector { nodes, offers: Vec::new(), offered: BTreeMap::new() };
    for (id, page) in ledger.started_pages(now).filter(|(id, _)| !in_flight.holds(*id)) {
        collector.add(ledger, id, page, now);
    }
    collector.offers
}

/// Offers that share a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OfferGroup<'a> {
    tenant: &'a str,
    pool: &'a str,
    priority: u8,
    late: bool,
}

/// What a group offers so far.
#[derive(Default)]
struct Offered {
    chunks: usize,
    recipients: u64,
}

/// Collects offers page by page, up to [`OFFERS_MAX`] for each group.
struct OfferCollector<'a> {
    nodes: &'a MissingFiles,
    offers: Vec<Offer>,
    /// Number of offered chunks of each group, by the nodes that are excluded from them.
    offered: BTreeMap<OfferGroup<'a>, BTreeMap<BTreeSet<NodeId>, Offered>>,
}

impl<'a> OfferCollector<'a> {
    fn is_full(&self, group: OfferGroup<'_>, excluded: &BTreeSet<NodeId>) -> bool {
        let enough = u64::from(CLAIM_CAP_MAX) * self.nodes.len() as u64;
        let offered = self.offered.get(&group).and_then(|offered| offered.get(excluded));
        offered.is_some_and(|offered| offered.chunks >= OFFERS_MAX || offered.recipients > enough)
    }

    /// Offers the chunks of a page. There may be a hundred thousand pages, so the cheapest checks come first.
    fn add(&mut self, ledger: &'a Ledger, id: PageId, page: &'a Page, now: Time) {
        let (late, none_excluded) = (page.is_late(), BTreeSet::new());
        let group = |pool| OfferGroup { tenant: &page.tenant, pool, priority: page.priority, late };
        let own_pool_is_full = self.is_full(group(&page.pool), &none_excluded);
        if own_pool_is_full && !has_pool_overrides(ledger, id) {
            return;
        }
        let has_overrides = LazyCell::new(|| own_pool_is_full || has_pool_overrides(ledger, id));
        for chunk in claimable(ledger, id, page, now) {
            let group = group(chunk.pool);
            if self.is_full(group, &none_excluded) {
                match *has_overrides {
                    true => continue,
                    false => break,
                }
            }
            for (excluded, slots) in by_excluded(ledger, page, &chunk, self.nodes) {
                if excluded.len() < self.nodes.len() && !self.is_full(group, &excluded) {
                    self.offer(page, group, &chunk, excluded, &slots);
                }
            }
        }
    }

    /// Offers these slots of a chunk to the nodes that are not excluded.
    fn offer(
        &mut self,
        page: &Page,
        group: OfferGroup<'a>,
        chunk: &ClaimableChunk<'_>,
        excluded: BTreeSet<NodeId>,
        slots: &Bitmap,
    ) {
        let suspects = &chunk.chunk.crash_suspects;
        let slots = ClaimableSlots { plain: slots.and_not(suspects), suspect: slots.and(suspects).first(1) };
        if slots.is_empty() {
            return;
        }
        let offered = self.offered.entry(group).or_default().entry(excluded.clone()).or_default();
        offered.chunks += 1;
        offered.recipients += u64::from(slots.plain.len());
        self.offers.push(Offer {
            tenant: page.tenant.to_string(),
            priority: page.priority,
            due: page.due,
            late: group.late,
            source: ClaimSource { chunk: chunk.key, pool: chunk.pool.to_owned() },
            claimable: slots.len(),
            slots,
            excluded,
        });
    }
}

/// Splits the claimable slots of a chunk by the nodes that lack a file of their run: the audience part of this chunk or
/// an attachment (P20). A large run is alone on its page. Small runs share one, and each may attach other files.
fn by_excluded(
    ledger: &Ledger,
    page: &Page,
    chunk: &ClaimableChunk<'_>,
    nodes: &MissingFiles,
) -> BTreeMap<BTreeSet<NodeId>, Bitmap> {
    if nodes.values().all(BTreeSet::is_empty) {
        return BTreeMap::from([(BTreeSet::new(), chunk.slots.clone())]);
    }
    let mut split: BTreeMap<BTreeSet<NodeId>, Bitmap> = BTreeMap::new();
    // A page may have 512 runs, most of them finished: no set is made for these.
    for run in page.runs.iter().filter(|run| run.has_claimable()) {
        let slots = run.slots_in(chunk.key.number).and(&chunk.slots);
        let files: BTreeSet<Hash> = ledger.files_of_chunk(run, chunk.key.number).collect();
        // A node that reports the maximum number of files may lack others too.
        let lacks = |(_, missing): &(&NodeId, &BTreeSet<Hash>)| {
            !files.is_empty() && (missing.len() >= NAMED_MAX || !missing.is_disjoint(&files))
        };
        let excluded = nodes.iter().filter(lacks).map(|(node, _)| *node).collect();
        split.entry(excluded).or_default().add(&slots);
    }
    split
}
