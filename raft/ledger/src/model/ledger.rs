//! State of the ledger: held in memory by each replica, and equal byte for byte at an equal index.
//!
//! Only `apply` changes it. Readers use the methods below.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::index::Derived;
use crate::injected_bugs::{self, Bug};
use crate::model::{
    AdminToken, ArchivePart, ArchivePartKey, AuditRecord, CHUNK, Campaign, Chunk, ChunkKey, Claim, ClaimOwner,
    ClosedClaimBlock, ClosedClaimKey, Day, DeadLetter, EventKey, Fence, Hash, Head, InstantOutcome, LeavingTimes,
    MESSAGES_NAME, Node, NodeId, OccurrenceName, OptedOut, PackedEvents, Page, PageId, PoolRow, RecipientId,
    RecipientState, Recipients, Relay, RelayShare, RemovedNode, Run, RunEvent, RunEventKey, RunId, RunSummary,
    Schedule, ScheduleId, Seal, SealedAudience, StoredAnswer, StoredBlob, TakenBack, Template, Tenant, Time, TokenId,
};
use crate::storage::Table;

/// Name of the tenant that always exists.
pub const DEFAULT_TENANT: &str = "default";

/// Pool of relays and schedules that name no other.
pub const DEFAULT_POOL: &str = "default";

/// Declares the tables: for each, a field that `apply` changes and a method that reads it.
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
    /// Nodes, by id.
    nodes: NodeId => Node,
    /// Relays, by name.
    relays: String => Relay,
    /// Schedules, by id.
    schedules: ScheduleId => Schedule,
    /// Outcome of each instant, by schedule and name.
    history: (ScheduleId, OccurrenceName) => InstantOutcome,
    /// Contents and audiences, by hash.
    blobs: Hash => StoredBlob,
    /// Pages, by id.
    pages: PageId => Page,
    /// Chunks, by page and number.
    chunks: ChunkKey => Chunk,
    /// Claims with a recipient claimed or in doubt, by fence.
    claims: Fence => Claim,
    /// Closed claims, packed, by page, chunk and fence.
    closed_claim_blocks: ClosedClaimKey => ClosedClaimBlock,
    /// Dead letters, by recipient.
    dead: RecipientId => DeadLetter,
    /// Opt-outs by tenant and address key.
    opted_out: (String, String) => OptedOut,
    /// Answers to requests, by tenant and a hash of method, resource and request id (P17).
    answers: (String, Hash) => StoredAnswer,
    /// Summaries of runs to sealed audiences whose details were removed (P24).
    summaries: RunId => RunSummary,
    /// Events of runs that no claim caused, by run, log index and chunk.
    run_events: RunEventKey => Vec<RunEvent>,
    /// Sealed audiences by tenant and name (P20).
    audiences: (String, String) => SealedAudience,
    /// Campaigns by tenant and name (P7).
    campaigns: (String, String) => Campaign,
    /// Tenants with settings, by name (P12).
    tenants: String => Tenant,
    /// Opt-outs that were taken back, by tenant and address key.
    taken_back: (String, String) => TakenBack,
    /// Pools with settings, by name (P25).
    pools: String => PoolRow,
    /// Parts of the archive (P24).
    parts: ArchivePartKey => ArchivePart,
    /// Nodes that were removed, by id (P22).
    removed_nodes: NodeId => RemovedNode,
    /// Tokens of the admin API, by id.
    tokens: TokenId => AdminToken,
    /// Audit records that are in no part of the archive yet, by log index.
    audit: u64 => AuditRecord,
    /// Events that are in no part of the archive yet, by log index and place.
    events: EventKey => PackedEvents,
    /// Templates, by tenant and name.
    templates: (String, String) => Template,
}

impl Ledger {
    /// The state before the first entry.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// The row that changes with every entry: index, time, epoch and others.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The settings of a tenant; defaults if none are set.
    pub fn tenant(&self, name: &str) -> &Tenant {
        static DEFAULT: Tenant = Tenant::DEFAULT;
        if self.tenants.is_empty() {
            return &DEFAULT;
        }
        self.tenants.get(&name.to_owned()).unwrap_or(&DEFAULT)
    }

    /// Iterates over tenants with settings, schedules, campaigns, templates, audiences or opt-outs, and the default
    /// tenant, from `from` on, in order.
    pub fn tenant_names_from(&self, from: String) -> impl Iterator<Item = String> + '_ {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let from = next.take()?;
            let key = (from.clone(), String::new());
            let bounded = self.tenants.range(from.clone()..).next().map(|(name, _)| name.as_str());
            let bounds = (Bound::Included(from.as_str()), Bound::Unbounded);
            let scheduled = self.derived.names.range::<str, _>(bounds).next().map(|(tenant, _)| &**tenant);
            let writing = self.templates.range(key.clone()..).next().map(|((tenant, _), _)| tenant.as_str());
            let campaigning = self.campaigns.range(key.clone()..).next().map(|((tenant, _), _)| tenant.as_str());
            let sealing = self.audiences.range(key.clone()..).next().map(|((tenant, _), _)| tenant.as_str());
            let opted_out = self.opted_out.range(key..).next().map(|((tenant, _), _)| tenant.as_str());
            let default = Some(DEFAULT_TENANT).filter(|name| *name >= from.as_str());
            let known = [bounded, scheduled, campaigning, writing, sealing, opted_out, default];
            let found = known.into_iter().flatten().min()?.to_owned();
            // The smallest name after `found`.
            next = Some(format!("{found}\0"));
            Some(found)
        })
    }

    /// Number of a tenant's recipients that are claimed (P12).
    pub fn claimed_by_tenant(&self, tenant: &str) -> u32 {
        self.derived.claimed.get(tenant).copied().unwrap_or(0)
    }

    /// True if emails of this pool carry `X-Reveille-Run` and `X-Reveille-Fence`.
    pub fn has_reveille_headers(&self, pool: &str) -> bool {
        self.pools.get(&pool.to_owned()).is_none_or(|row| row.reveille_headers)
    }

    /// Number of a pool's recipients that are claimed (P25).
    pub fn claimed_by_pool(&self, pool: &str) -> u32 {
        self.derived.claimed_by_pool.get(pool).copied().unwrap_or(0)
    }

    /// Number of recipients that may still be claimed for a pool today; `None` if there is no cap (P25).
    pub fn remaining_today(&self, pool: &str, now: Time) -> Option<u32> {
        if self.pools.is_empty() || injected_bugs::is(Bug::NoWarmUpCap) {
            return None;
        }
        let (day, row) = (Day::of(now), self.pools.get(&pool.to_owned())?);
        let used = row.spent(day).saturating_add(self.claimed_by_pool(pool));
        Some(row.cap(day)?.saturating_sub(used))
    }

    /// Returns the seal of an audience; `None` if it is not sealed.
    pub fn seal(&self, audience: &Hash) -> Option<Seal> {
        Recipients::seal_from_blob(self.blob(audience)?)
    }

    /// Returns true if this list is a seal that an audience, a schedule or a run uses. Reads no blob.
    pub fn is_seal(&self, list: &Hash) -> bool {
        self.derived.seals.contains(list)
    }

    /// Iterates over the seals that an audience, a schedule or a run uses. Nodes must keep their parts.
    pub fn seals(&self) -> impl Iterator<Item = Seal> + '_ {
        self.derived.seals.iter().filter_map(|hash| self.seal(hash))
    }

    /// Returns true if this content has attachments.
    pub fn has_files(&self, content: &Hash) -> bool {
        self.derived.attached.contains_key(content)
    }

    /// Returns the files of a content's attachments.
    pub fn attached_files(&self, content: &Hash) -> impl Iterator<Item = Hash> + '_ {
        self.derived.attached.get(content).into_iter().flatten().copied()
    }

    /// Iterates over the files that nodes must keep, with repeats: the parts of seals that an audience, a schedule or a
    /// run uses, and the attachments of all contents (P20).
    pub fn needed_files(&self) -> impl Iterator<Item = Hash> + '_ {
        self.seals().flat_map(|seal| seal.parts).chain(self.derived.attached.values().flatten().copied())
    }

    /// Returns the files that the recipients of a run in this chunk of its page need: their part of a sealed audience,
    /// and the attachments.
    pub fn files_of_chunk(&self, run: &Run, chunk: u32) -> impl Iterator<Item = Hash> + '_ {
        let part = chunk
            .checked_sub(run.first / CHUNK)
            .and_then(|part| self.seal(&run.audience)?.parts.get(part as usize).copied());
        part.into_iter().chain(self.attached_files(&run.content))
    }

    /// Returns the schedule of a name. Does not find that of the tenant's messages.
    pub fn schedule_named(&self, tenant: &str, name: &str) -> Option<(ScheduleId, &Schedule)> {
        let number = *self.derived.names.get(tenant)?.get(name).filter(|_| name != MESSAGES_NAME)?;
        Some((number, self.schedules.get(&number)?))
    }

    /// Returns the schedule that has the runs of a tenant's messages; `None` before the first message.
    pub fn messages_of(&self, tenant: &str) -> Option<ScheduleId> {
        self.derived.names.get(tenant)?.get(MESSAGES_NAME).copied()
    }

    /// Returns the run of a message; `None` if the key is unknown. The run may be in the archive.
    pub fn run_of_message(&self, tenant: &str, key: &str) -> Option<RunId> {
        let name = (self.messages_of(tenant)?, OccurrenceName::Trigger(key.to_owned()));
        self.history.get(&name)?.run()
    }

    /// Iterates over active schedules, in the order of their due times.
    pub fn due(&self) -> impl Iterator<Item = (Time, ScheduleId)> + '_ {
        self.derived.due.iter().copied()
    }

    /// Iterates over unfinished runs of a schedule that take part in `overlap`, oldest first. Backfills and reopened
    /// runs do not.
    pub fn unfinished(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.listed(&self.derived.unfinished, id)
    }

    /// Iterates over all unfinished runs of a schedule.
    pub(crate) fn all_unfinished(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.unfinished(id).chain(self.listed(&self.derived.exempt_from_overlap, id))
    }

    /// Iterates over runs that may block the schedule's next instant: those that take part in `overlap`, without
    /// paused and triggered ones.
    pub fn blocking_runs(&self, id: ScheduleId) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.listed(&self.derived.blocking, id)
    }

    fn listed<'a>(
        &'a self,
        index: &'a BTreeSet<(ScheduleId, RunId)>,
        id: ScheduleId,
    ) -> impl Iterator<Item = (RunId, &'a Run)> + 'a {
        let first = RunId { index: 0, place: 0 };
        let of_schedule = index.range((id, first)..).take_while(move |(schedule, _)| *schedule == id);
        of_schedule.filter_map(|(_, run)| Some((*run, self.run(*run)?)))
    }

    /// Returns the run for which the schedule's next instant waits (`buffer_one`); `None` if it does not wait.
    pub fn waits_for(&self, id: ScheduleId) -> Option<RunId> {
        let opens = self.schedules.get(&id)?.plan.next.as_ref()?.opens();
        let waits = opens <= self.head.now && self.waits_at(id, self.head.now);
        let mut blocking = self.blocking_runs(id).filter(|(_, run)| run.has_work_left(self.head.now));
        blocking.next().map(|(run, _)| run).filter(|_| waits)
    }

    /// True if an instant that is due at `now` waits for a run. It does not wait for a run past its deadline with
    /// nothing claimed: that run expires when the instant opens.
    pub fn waits_at(&self, id: ScheduleId, now: Time) -> bool {
        let Some(schedule) = self.schedules.get(&id) else { return false };
        let is_due = schedule.plan.next.as_ref().is_some_and(|next| next.due <= now);
        let waits = schedule.wakes_at(true) != schedule.wakes_at(false);
        is_due && waits && self.blocking_runs(id).any(|(_, run)| run.has_work_left(now))
    }

    /// Iterates over pages with pending or claimed recipients, in the order of their starts.
    pub fn open_pages(&self) -> impl Iterator<Item = (PageId, &Page)> + '_ {
        self.derived.open_pages.iter().filter_map(|(_, id)| Some((*id, self.pages.get(id)?)))
    }

    /// Like [`Ledger::open_pages`], without the messages whose send time has not come. There may be a million of them.
    pub fn started_pages(&self, now: Time) -> impl Iterator<Item = (PageId, &Page)> + '_ {
        self.open_pages().take_while(move |(_, page)| page.starts_at() <= now)
    }

    /// Returns the first send time of messages after `now`.
    pub fn next_start(&self, now: Time) -> Option<Time> {
        let first = (now.plus_ms(1), PageId(RunId { index: 0, place: 0 }));
        self.derived.open_pages.range(first..).next().map(|(start, _)| *start)
    }

    /// Times from which a run may leave the state (P24); `None` while it is not finished.
    pub fn leaving_times(&self, run: &Run, after_ms: i64) -> Option<LeavingTimes> {
        let present = self.schedules.get(&run.schedule).map(|schedule| &*schedule.settings.policies);
        let stays = self.derived.seals.contains(&run.audience) || self.has_open_neighbour(run);
        run.leaving_times(present, after_ms, stays)
    }

    /// Time at which a finished run leaves the state, whatever is undecided about its recipients (P24).
    pub fn leaves_undecided_at(&self, run: &Run) -> Option<Time> {
        let present = self.schedules.get(&run.schedule).map(|schedule| &*schedule.settings.policies);
        Some(run.leaving_times(present, 0, true)?.details_until)
    }

    /// True if a run of the schedule is unfinished, and its `min_gap` may concern recipients of this one (P17).
    fn has_open_neighbour(&self, run: &Run) -> bool {
        let is_near = |other: &Run| other.due.since_ms(run.due).saturating_abs() < other.policies.min_gap_ms;
        // Messages have no gap, and a tenant may have many that are unfinished.
        let has_neighbours = run.has_emails() && !run.cause.is_message();
        has_neighbours && self.all_unfinished(run.schedule).any(|(_, other)| is_near(other))
    }

    /// Returns the page of a run, and the run's position in it.
    pub fn page_of(&self, run: RunId) -> Option<(PageId, &Page, usize)> {
        let (id, page) = self.pages.range(..=PageId(run)).next_back()?;
        let position = page.position_of(run)?;
        (id.0.index == run.index).then_some((*id, page, position))
    }

    /// Returns a run; `None` if it is unknown or has left the state.
    pub fn run(&self, run: RunId) -> Option<&Run> {
        let (_, page, position) = self.page_of(run)?;
        page.runs.get(position)
    }

    /// Returns the summary of a run whose details are in this ledger, as if it were archived now, or that of a run
    /// whose details have left. `None` if the run is unknown.
    pub fn summary_of(&self, run: RunId) -> Option<RunSummary> {
        let kept = self.page_of(run).and_then(|(_, page, position)| Some((page, page.runs.get(position)?)));
        let as_of = (self.head().applied, self.head().now);
        kept.map(|(page, run)| RunSummary::of(page, run, as_of)).or_else(|| self.summaries().get(&run).cloned())
    }

    /// Iterates over all runs, in the order in which they opened.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (RunId, &Page, &Run)> + '_ {
        self.pages.iter().flat_map(|(id, page)| page.runs.iter().map(move |run| (id.run_id(run), page, run)))
    }

    /// Iterates over the outcomes of a schedule's instants.
    pub(crate) fn history_of(&self, id: ScheduleId) -> impl Iterator<Item = &InstantOutcome> + '_ {
        let rows =
            self.history.range((id, OccurrenceName::LOWEST)..).take_while(move |((schedule, _), _)| *schedule == id);
        rows.map(|(_, outcome)| outcome)
    }

    /// Iterates over the campaigns of a tenant, by name.
    pub(crate) fn campaigns_of<'l>(&'l self, tenant: &'l str) -> impl Iterator<Item = (&'l str, &'l Campaign)> {
        let from = self.campaigns.range((tenant.to_owned(), String::new())..);
        from.take_while(move |((of, _), _)| of == tenant).map(|((_, name), campaign)| (name.as_str(), campaign))
    }

    /// Returns the encoded content or audience of a hash.
    pub fn blob(&self, hash: &Hash) -> Option<&[u8]> {
        self.blobs.get(hash).map(|blob| &*blob.bytes)
    }

    /// The state of a recipient of a run. `None`: the run is unknown or has no such recipient.
    pub fn state(&self, run: RunId, recipient: u32) -> Option<RecipientState> {
        let (chunk, slot) = self.slot_of(run, recipient)?;
        self.chunks.get(&chunk)?.state(slot)
    }

    /// True if a pool has a relay that accepts email.
    pub fn serves(&self, pool: &str) -> bool {
        self.relays.iter().any(|(_, relay)| relay.pool == pool && relay.max_sessions > 0)
    }

    /// Returns the pool that sends a slot of a page.
    pub fn pool_of<'a>(&'a self, page: &'a Page, chunk: ChunkKey, slot: u16) -> &'a str {
        self.chunks.get(&chunk).and_then(|chunk| chunk.pool_of(slot)).unwrap_or(&page.pool)
    }

    /// Returns the pool that sends a claim's recipients; it is one for all (P4). Recipients that left the claim may
    /// have another pool since.
    pub fn pool_of_claim<'a>(&'a self, page: &'a Page, claim: &Claim) -> &'a str {
        let lowest = claim.claimed.min().or(claim.in_doubt.min());
        lowest.map_or(&page.pool, |slot| self.pool_of(page, claim.chunk, slot))
    }

    /// Returns the chunk and the slot of a recipient of a run.
    pub fn slot_of(&self, run: RunId, recipient: u32) -> Option<(ChunkKey, u16)> {
        let (page, whole, position) = self.page_of(run)?;
        let run = &whole.runs[position];
        let slot = (recipient < run.count).then(|| run.first + recipient)?;
        Some((page.chunk(slot / CHUNK), (slot % CHUNK) as u16))
    }

    /// Returns the floor of a node (P9, P15): the index of the last entry that forbids handoffs which the node may
    /// have been granted before. The leader puts it into each lease. Under that lease a gate passes only if the applied
    /// state includes this index.
    pub fn lease_floor(&self, node: NodeId) -> u64 {
        let revoked = self.nodes.get(&node).map_or(0, |node| node.revoked_index);
        self.head.forbidden_index.max(revoked)
    }

    /// Iterates over the parts of the archive with audit records, oldest first.
    pub fn audit_parts(&self) -> impl DoubleEndedIterator<Item = (ArchivePartKey, &ArchivePart)> + '_ {
        self.derived.audit_parts.iter().filter_map(|key| Some((*key, self.parts.get(key)?)))
    }

    /// Number of nodes that share each relay's rate; at least 1 (P25).
    pub fn relay_shares(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.share != RelayShare::None).count().max(1)
    }

    /// True if this is the node's current incarnation (P4).
    pub fn is_current(&self, owner: ClaimOwner) -> bool {
        self.nodes.get(&owner.node).is_some_and(|node| node.incarnation == owner.incarnation)
    }
}
