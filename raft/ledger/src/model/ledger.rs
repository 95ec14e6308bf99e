//! The state of the ledger: what every replica holds in memory, equal to the byte at an equal index.
//!
//! Only `apply` changes it. Readers use the accessors below.

use std::collections::BTreeSet;

use crate::index::Derived;
use crate::injected_bugs::{self, Bug};
use crate::model::{
    Campaign, Chunk, Claim, ClaimOwner, ClosedClaimBlock, ClosedClaimKey, Day, DeadLetter, Fence, Hash, Head,
    InstantOutcome, Node, NodeId, Nominal, OptedOut, Page, PoolRow, RecipientState, Recipients, Relay, Run, RunEvent,
    RunEventKey, RunId, RunSummary, Schedule, ScheduleId, Seal, SealedAudience, StoredAnswer, StoredBlob, TakenBack,
    Tenant, Time,
};
use crate::storage::Table;

/// The tenant that exists from the first entry.
pub const DEFAULT_TENANT: &str = "default";

/// The pool that relays and schedules belong to unless they say otherwise.
pub const DEFAULT_POOL: &str = "default";

/// Declares the tables: for each a field that `apply` changes and a method that reads it.
macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident: $key:ty => $row:ty,)*) => {
        /// The whole state.
        #[derive(Clone, Debug, Default)]
        pub struct Ledger {
            pub(crate) head: Head,
            $(pub(crate) $table: Table<$key, $row>,)*
            pub(crate) derived: Derived,
        }

        impl Ledger {
            $(
                $(#[$doc])*
                pub fn $table(&self) -> &Table<$key, $row> {
                    &self.$table
                }
            )*
        }
    };
}
tables! {
    /// Nodes by id.
    nodes: NodeId => Node,
    /// Relays by name.
    relays: String => Relay,
    /// Schedules by number.
    schedules: ScheduleId => Schedule,
    /// What became of each instant.
    history: (ScheduleId, Nominal) => InstantOutcome,
    /// Contents and audiences by hash.
    blobs: Hash => StoredBlob,
    /// Pages by their first run.
    pages: RunId => Page,
    /// Chunks by page and number.
    chunks: (RunId, u32) => Chunk,
    /// Claims with a recipient claimed or in doubt, by fence.
    claims: Fence => Claim,
    /// Closed claims, packed, by page, chunk and fence.
    closed_claim_blocks: ClosedClaimKey => ClosedClaimBlock,
    /// Dead letters by run and recipient number.
    dead: (RunId, u32) => DeadLetter,
    /// Opt-outs by tenant and address key.
    opted_out: (String, String) => OptedOut,
    /// Answers to request ids, by tenant and request id.
    answers: (String, String) => StoredAnswer,
    /// What is left of runs that were pruned (P24).
    summaries: RunId => RunSummary,
    /// Events of runs that no claim caused, by run, log index and chunk.
    run_events: RunEventKey => Vec<RunEvent>,
    /// Sealed audiences by tenant and name (P20).
    audiences: (String, String) => SealedAudience,
    /// Campaigns by tenant and name (P7).
    campaigns: (String, String) => Campaign,
    /// Limits of tenants by name, where they are set (P12).
    tenants: String => Tenant,
    /// Opt-outs that were taken back, by tenant and address key.
    taken_back: (String, String) => TakenBack,
    /// Pools of which something is set, by name (P25).
    pools: String => PoolRow,
}

impl Ledger {
    /// The state before the first entry.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Index, time, epoch.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The bounds of a tenant.
    pub fn tenant(&self, name: &str) -> Tenant {
        if self.tenants.is_empty() {
            return Tenant::default();
        }
        self.tenants.get(&name.to_owned()).copied().unwrap_or_default()
    }

    /// Every tenant that has bounds, schedules or campaigns, and the default one; from this name on, in order.
    pub fn tenant_names_from(&self, from: String) -> impl Iterator<Item = String> + '_ {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let from = next.take()?;
            let place = (from.clone(), String::new());
            let bounded = self.tenants.range(from.clone()..).next().map(|(name, _)| name.as_str());
            let scheduled = self.derived.names.range(place.clone()..).next().map(|((tenant, _), _)| tenant.as_str());
            let campaigning = self.campaigns.range(place..).next().map(|((tenant, _), _)| tenant.as_str());
            let default = Some(DEFAULT_TENANT).filter(|name| *name >= from.as_str());
            let found = [bounded, scheduled, campaigning, default].into_iter().flatten().min()?.to_owned();
            // The first name that comes after it.
            next = Some(format!("{found}\0"));
            Some(found)
        })
    }

    /// Recipients of a tenant that are claimed (P12).
    pub fn claimed_by_tenant(&self, tenant: &str) -> u32 {
        self.derived.claimed.get(tenant).copied().unwrap_or(0)
    }

    /// Do emails of this pool carry `X-Reveille-Run` and `X-Reveille-Fence`?
    pub fn has_reveille_headers(&self, pool: &str) -> bool {
        self.pools.get(&pool.to_owned()).is_none_or(|row| row.reveille_headers)
    }

    /// Recipients of a pool that are claimed (P25).
    pub fn claimed_by_pool(&self, pool: &str) -> u32 {
        self.derived.claimed_by_pool.get(pool).copied().unwrap_or(0)
    }

    /// How many more may be claimed for a pool today; none where there is no bound (P25).
    pub fn room_today(&self, pool: &str, now: Time) -> Option<u32> {
        if self.pools.is_empty() || injected_bugs::is(Bug::NoWarmUpCap) {
            return None;
        }
        let (day, row) = (Day::of(now), self.pools.get(&pool.to_owned())?);
        let used = row.spent(day).saturating_add(self.claimed_by_pool(pool));
        Some(row.cap(day)?.saturating_sub(used))
    }

    /// The seal of an audience, where it is a sealed one.
    pub fn seal(&self, audience: &Hash) -> Option<Seal> {
        Recipients::seal_from_blob(self.blob(audience)?)
    }

    /// Every seal that an audience, a schedule or a run holds. Its parts are needed.
    pub fn seals(&self) -> impl Iterator<Item = Seal> + '_ {
        self.derived.seals.iter().filter_map(|hash| self.seal(hash))
    }

    /// The schedule of that name.
    pub fn schedule_named(&self, tenant: &str, name: &str) -> Option<(ScheduleId, &Schedule)> {
        let number = *self.derived.names.get(&(tenant.to_owned(), name.to_owned()))?;
        Some((number, self.schedules.get(&number)?))
    }

    /// Active schedules in the order in which they fall due.
    pub fn due(&self) -> impl Iterator<Item = (Time, ScheduleId)> + '_ {
        self.derived.due.iter().copied()
    }

    /// Unfinished runs of a schedule that take part in `overlap`, oldest first: no backfills, no reopened runs.
    pub fn unfinished(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.listed(&self.derived.unfinished, id)
    }

    /// All unfinished runs of a schedule.
    pub(crate) fn all_unfinished(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.unfinished(id).chain(self.listed(&self.derived.going_beside, id))
    }

    /// Of those that take part in `overlap`: runs that may hold up the schedule's next instant. No paused and no triggered ones.
    pub fn holding(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.listed(&self.derived.holding, id)
    }

    fn listed<'a>(
        &'a self,
        index: &'a BTreeSet<(ScheduleId, RunId)>,
        id: ScheduleId,
    ) -> impl Iterator<Item = (RunId, &'a Run)> + 'a {
        let first = RunId { index: 0, place: 0 };
        let of = index.range((id, first)..).take_while(move |(schedule, _)| *schedule == id);
        of.filter_map(|(_, run)| Some((*run, self.run(*run)?)))
    }

    /// The run for which the next instant of a schedule waits, where that is due and has to (`buffer_one`).
    pub fn waits_for(&self, id: ScheduleId) -> Option<RunId> {
        let opens = self.schedules.get(&id)?.plan.next.as_ref()?.opens();
        let waits = opens <= self.head.now && self.waits_at(id, self.head.now);
        let mut holding = self.holding(id).filter(|(_, run)| run.holds_up(self.head.now));
        holding.next().map(|(run, _)| run).filter(|_| waits)
    }

    /// Does an instant that is due at `now` wait for a run? Not for one of which nothing is claimed and whose
    /// deadline is over: it expires when the instant opens.
    pub fn waits_at(&self, id: ScheduleId, now: Time) -> bool {
        let Some(schedule) = self.schedules.get(&id) else { return false };
        let is_due = schedule.plan.next.as_ref().is_some_and(|next| next.due <= now);
        let waits = schedule.wakes_at(true) != schedule.wakes_at(false);
        is_due && waits && self.holding(id).any(|(_, run)| run.holds_up(now))
    }

    /// Pages with something pending or claimed, oldest first.
    pub fn open_pages(&self) -> impl Iterator<Item = (RunId, &Page)> + '_ {
        self.derived.open_pages.iter().filter_map(|id| Some((*id, self.pages.get(id)?)))
    }

    /// When all details of a page may go (P24); none while one of its runs is not finished.
    pub fn kept_until(&self, page: &Page) -> Option<Time> {
        let until = |run: &Run| run.kept_until(self.schedules.get(&run.schedule).map(|schedule| &schedule.policies));
        page.runs.iter().map(until).try_fold(Time(i64::MIN), |latest, until| Some(latest.max(until?)))
    }

    /// The page of a run, and the run's place in it.
    pub fn page_of(&self, run: RunId) -> Option<(RunId, &Page, usize)> {
        let (id, page) = self.pages.range(..=run).next_back()?;
        let place = run.place.checked_sub(id.place)? as usize;
        (id.index == run.index && place < page.runs.len()).then_some((*id, page, place))
    }

    /// A run.
    pub fn run(&self, run: RunId) -> Option<&Run> {
        let (_, page, place) = self.page_of(run)?;
        page.runs.get(place)
    }

    /// All runs, in the order in which they opened.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (RunId, &Page, &Run)> + '_ {
        self.pages.iter().flat_map(|(id, page)| {
            let name = move |place: usize| RunId { index: id.index, place: id.place + place as u32 };
            page.runs.iter().enumerate().map(move |(place, run)| (name(place), page, run))
        })
    }

    /// The bytes of a content or an audience.
    pub fn blob(&self, hash: &Hash) -> Option<&[u8]> {
        self.blobs.get(hash).map(|blob| blob.bytes.as_slice())
    }

    /// Bytes of all contents and audiences. Costs a look at each.
    pub fn blob_bytes(&self) -> usize {
        self.blobs.iter().map(|(_, blob)| blob.bytes.len()).sum()
    }

    /// The stored answer to a request id of a tenant.
    pub fn answer_to(&self, tenant: &str, request: &str) -> Option<&StoredAnswer> {
        self.answers.get(&(tenant.to_owned(), request.to_owned()))
    }

    /// The state of a recipient of a run. `None`: the run is unknown or has no such recipient.
    pub fn state(&self, run: RunId, recipient: u32) -> Option<RecipientState> {
        let (page, chunk, slot) = self.slot_of(run, recipient)?;
        self.chunks.get(&(page, chunk))?.state(slot)
    }

    /// Is there a relay that a pool's mail could go by?
    pub fn serves(&self, pool: &str) -> bool {
        self.relays.iter().any(|(_, relay)| relay.pool == pool && relay.max_sessions > 0)
    }

    /// The pool by which a slot of a page goes.
    pub fn pool_of<'a>(&'a self, id: RunId, page: &'a Page, chunk: u32, slot: u16) -> &'a str {
        self.chunks.get(&(id, chunk)).and_then(|chunk| chunk.pool_of(slot)).unwrap_or(&page.pool)
    }

    /// The pool by which what a row holds goes: all of it by one (P4). Who has left it may go by another since.
    pub fn pool_of_claim<'a>(&'a self, page: &'a Page, row: &Claim) -> &'a str {
        let held = row.claimed.min().or(row.in_doubt.min());
        held.map_or(&page.pool, |slot| self.pool_of(row.page, page, row.chunk, slot))
    }

    /// Page, chunk and slot of a recipient of a run.
    pub fn slot_of(&self, run: RunId, recipient: u32) -> Option<(RunId, u32, u16)> {
        let (page, whole, place) = self.page_of(run)?;
        let run = &whole.runs[place];
        let slot = (recipient < run.count).then(|| run.first + recipient)?;
        Some((page, slot / crate::model::CHUNK, (slot % crate::model::CHUNK) as u16))
    }

    /// The floor of a node (P9, P15): the last entry that forbids hand-offs which it may have been granted
    /// before. The leader names it in a lease, and a gate passes under that grant only in a state that
    /// includes it.
    pub fn floor(&self, node: NodeId) -> u64 {
        let revoked = self.nodes.get(&node).map_or(0, |node| node.revoked_index);
        self.head.forbidden_index.max(revoked)
    }

    /// Is this owner the node's current life (P4)?
    pub fn is_current(&self, owner: ClaimOwner) -> bool {
        self.nodes.get(&owner.node).is_some_and(|node| node.incarnation == owner.incarnation)
    }
}
