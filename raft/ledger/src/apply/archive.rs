//! The archive (P24): removes finished runs and old rows from the state, if an entry names them.
//!
//! A finished run leaves the state with all its rows as soon as nothing can be decided about it any more, and all of
//! its rows when its retention is over. Runs that leave in one entry become parts of the archive (`model/archive.rs`),
//! one for each retention: first with their details, and then with a summary. Names that opened stay, as ranges.
//!
//! A run to a sealed audience leaves at the end of its retention. Its summary stays in the state, for the check of
//! repeated campaigns (P20). Recipients that are still in doubt then stay so for ever.
//!
//! `apply` checks each age again: a run that was reopened after the proposal stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Context;
use super::bounds::refuse_if;
use crate::command::{Archive, LostBlocks};
use crate::effect::Effect;
use crate::index::mailed_runs::MailedRuns;
use crate::model::archive;
use crate::model::{
    ArchivePart, ArchivePartKey, Bitmap, CHUNK, Chunk, Claim, CommandOutcome, CommandRefusal, DAY_MS, Hash, Impossible,
    InstantOutcome, InstantRange, LeavingTimes, Ledger, OccurrenceName, Page, PageId, PartContent, RecipientState, Run,
    RunId, RunSummary, SUMMARIES_MS, Schedule, ScheduleId, StoredBlob, Time, distance_ms, run_events,
};
use crate::storage::BlockEntry;

/// Milliseconds by which a civil time that is read as UTC may differ from its instant. Retentions have many days.
pub(crate) const CIVIL_ERROR_MS: i64 = DAY_MS;
/// Maximum number of distances in a range of archived names: a row of the history stays small.
pub(crate) const RANGE_STEPS_MAX: usize = 1_024;

/// When a row of the history may be removed: after its last instant is old enough. `None` for the name of a run in the
/// state.
pub fn history_kept_until(first: &OccurrenceName, row: &InstantOutcome) -> Option<Time> {
    match row {
        InstantOutcome::Opened(_) => None,
        InstantOutcome::ArchivedTrigger { until, .. } | InstantOutcome::Archived { until, .. } => Some(*until),
        InstantOutcome::Explained { .. } => Some(latest(&row.last(first))?.plus_ms(SUMMARIES_MS)),
    }
}

/// Returns an instant that is not before that of this name; `None` for a trigger.
fn latest(name: &OccurrenceName) -> Option<Time> {
    match name {
        OccurrenceName::Civil { civil_ms, .. } => Some(Time(*civil_ms).plus_ms(CIVIL_ERROR_MS)),
        OccurrenceName::Instant(instant) => Some(*instant),
        OccurrenceName::Trigger(_) => None,
    }
}

/// What the runs of a part have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartKind {
    retention_ms: i64,
    /// True if the retention is over: only summaries are kept.
    is_over: bool,
}

/// Runs of one kind that leave the state together.
struct NewPart {
    details: Ledger,
    summaries: Ledger,
    /// Each run, and when it was due.
    runs: Vec<(RunId, Time)>,
    /// Tenants of these runs.
    tenants: BTreeSet<Arc<str>>,
    details_until: Option<Time>,
}

impl NewPart {
    fn new(level: u32) -> NewPart {
        let of_level = || {
            let mut rows = Ledger::new();
            // Their forms and limits are those of the ledger.
            rows.head.level = level;
            rows
        };
        NewPart {
            details: of_level(),
            summaries: of_level(),
            runs: Vec::new(),
            tenants: BTreeSet::new(),
            details_until: None,
        }
    }
}

/// A run that leaves the state.
struct LeavingRun {
    run: Run,
    /// Until when its details are kept; `None`: its retention is over.
    details_until: Option<Time>,
}

impl Ledger {
    pub(super) fn archive(&mut self, context: &mut Context, archive: &Archive) -> CommandOutcome {
        let after_ms = archive.after_ms.max(self.limits().archive_after_ms_min);
        let mut new: BTreeMap<PartKind, NewPart> = BTreeMap::new();
        let left = archive.pages.iter().map(|page| self.archive_page(context, *page, after_ms, &mut new)).sum();
        for (place, part) in (0..).zip(new.into_values().filter(|part| !part.runs.is_empty())) {
            self.add_part(ArchivePartKey { index: context.index, place }, part);
        }
        for run in &archive.summaries {
            self.remove_summary(*run, context.now);
        }
        for name in &archive.history {
            let kept_until = self.history.get(name).and_then(|row| history_kept_until(&name.1, row));
            if kept_until.is_some_and(|until| until <= context.now) {
                self.forget_name(name);
            }
        }
        archive.parts.iter().for_each(|key| self.shrink_part(*key, context.now));
        archive.blobs.iter().for_each(|hash| self.remove_unused_blob(hash));
        CommandOutcome::Archived(left)
    }

    fn add_part(&mut self, key: ArchivePartKey, new: NewPart) {
        let NewPart { details, summaries, runs, tenants, details_until } = new;
        let summaries_until = self.known_until(details_until);
        let (ids, due) = (runs.iter().map(|(run, _)| *run), runs.iter().map(|(_, due)| *due));
        let (Some(first), Some(last)) = (ids.clone().min(), ids.max()) else { return };
        let (from, to) = (due.clone().min().unwrap_or_default(), due.max().unwrap_or_default());
        let part = ArchivePart {
            details: self.pack_part(&details),
            summaries: self.pack_part(&summaries),
            content: PartContent::Runs { first, last, count: runs.len() as u32, from, to },
            tenants: archive::named(tenants, self.limits().part_tenants_max),
            details_until: details_until.unwrap_or_default(),
            summaries_until,
            lost_at: None,
        };
        self.parts.put(key, part);
    }

    /// Returns the time until which the state knows a run that is archived now. Later archived runs are known longer,
    /// unless an edit shortens the retention. Each archived run names the one before it in its schedule, so the oldest
    /// must be forgotten first.
    fn known_until(&self, details_until: Option<Time>) -> Time {
        details_until.max(Some(self.head.now.plus_ms(SUMMARIES_MS))).unwrap_or_default()
    }

    /// Removes the runs of a page that may leave, and adds them to the new parts by their retention.
    fn archive_page(
        &mut self,
        context: &mut Context,
        id: PageId,
        after_ms: i64,
        new: &mut BTreeMap<PartKind, NewPart>,
    ) -> u32 {
        let now = context.now;
        let leaves = |run: &Run| self.leaving_times(run, after_ms).filter(|times| times.have_come(now));
        let Some(page) = self.pages.get(&id) else { return 0 };
        let times: Vec<Option<LeavingTimes>> = page.runs.iter().map(leaves).collect();
        if times.iter().all(Option::is_none) {
            return 0;
        }
        let Some(mut page) = self.pages.remove(&id) else { return 0 };
        let (mut groups, mut staying): (BTreeMap<PartKind, Vec<LeavingRun>>, Vec<Run>) = (BTreeMap::new(), Vec::new());
        for (run, times) in page.runs.drain(..).zip(times) {
            match times {
                Some(times) => {
                    let details_until = Some(times.details_until).filter(|until| *until > now);
                    let kind = PartKind { retention_ms: run.policies.retention_ms, is_over: details_until.is_none() };
                    groups.entry(kind).or_default().push(LeavingRun { run, details_until });
                }
                None => staying.push(run),
            }
        }
        let left = groups.values().map(Vec::len).sum::<usize>() as u32;
        let mut gone: BTreeMap<u32, Bitmap> = BTreeMap::new();
        for LeavingRun { run, .. } in groups.values().flatten() {
            add_slots(&mut gone, run);
            let undecided = run.counts.get(RecipientState::InDoubt);
            if undecided > 0 {
                let (run, name) = (id.run_id(run), run.label());
                context.alarm(format!("{run} of {name} leaves the state with {undecided} in doubt, never decided"));
            }
        }
        self.close_doubts(context, id, &gone);
        for (kind, leaving) in groups {
            let part = new.entry(kind).or_insert_with(|| NewPart::new(self.head.level));
            self.archive_runs(context, (id, &page), leaving, part);
        }
        if staying.is_empty() {
            self.remove_closed_claims(id);
            self.chunks.remove_range(id.chunks());
            return left;
        }
        page.runs = staying;
        for (number, slots) in gone {
            // Slots of runs that left have no state.
            if page.slots_of_chunk(number).is_empty() {
                self.chunks.remove(&id.chunk(number));
            } else if let Some(chunk) = self.chunks.edit(&id.chunk(number)) {
                chunk.remove(&slots);
            }
        }
        self.pages.put(id, page);
        left
    }

    /// Closes claims whose recipients in doubt leave the state: nothing resolves them any more.
    fn close_doubts(&mut self, context: &mut Context, id: PageId, gone: &BTreeMap<u32, Bitmap>) {
        let is_in_doubt = |(number, slots): (&u32, &Bitmap)| {
            let chunk = self.chunks.get(&id.chunk(*number));
            chunk.is_some_and(|chunk| !chunk.set(RecipientState::InDoubt).and(slots).is_empty())
        };
        if !gone.iter().any(is_in_doubt) {
            return;
        }
        let open: Vec<_> =
            self.claims.iter().filter(|(_, claim)| claim.chunk.page == id).map(|(fence, _)| *fence).collect();
        for fence in open {
            let Some(mut claim) = self.claims.get(&fence).cloned() else { continue };
            gone.get(&claim.chunk.number).into_iter().for_each(|slots| claim.in_doubt.remove(slots));
            if claim.is_closed() {
                context.emit(Effect::ClaimEmptied { fence, owner: claim.owner });
            }
            self.put_claim(fence, claim, true);
        }
    }

    /// Moves runs of a page to a new part: their rows, or only summaries if their retention is over.
    fn archive_runs(
        &mut self,
        context: &Context,
        (page_id, page): (PageId, &Page),
        leaving: Vec<LeavingRun>,
        part: &mut NewPart,
    ) {
        let mut archived = page.clone();
        for LeavingRun { mut run, details_until } in leaving {
            let id = page_id.run_id(&run);
            self.dead.remove_range(id.recipients());
            let rows = MailedRuns::rows(id, &run, self.blob(&run.audience));
            self.derived.mailed.remove(&rows);
            if self.derived.seals.contains(&run.audience) {
                self.summarize_sealed_run(context, (id, page), &run);
            } else {
                run.previous = self.follow_archived(run.schedule, id);
                self.archive_name(context, (id, &run), self.known_until(details_until));
                let summary = RunSummary::of(page, &run, (context.index, context.now));
                part.runs.push((id, run.due));
                part.tenants.insert(page.tenant.clone());
                part.summaries.summaries.put(id, summary);
            }
            let events = self.run_events.range(run_events::keys_of(id));
            let events: Vec<_> = events.map(|(key, events)| (*key, events.clone())).collect();
            self.run_events.remove_range(run_events::keys_of(id));
            let Some(until) = details_until else {
                self.release_blob(&run.content);
                self.release_blob(&run.audience);
                continue;
            };
            part.details_until = part.details_until.max(Some(until));
            for (key, events) in events {
                part.details.run_events.put(key, events);
            }
            for hash in [run.content, run.audience] {
                if let Some(blob) = self.archive_blob(&hash, until) {
                    part.details.blobs.put(hash, blob);
                }
            }
            archived.runs.push(run);
        }
        if archived.runs.is_empty() {
            return;
        }
        let mut own: BTreeMap<u32, Bitmap> = BTreeMap::new();
        archived.runs.iter().for_each(|run| add_slots(&mut own, run));
        for (number, slots) in &own {
            let Some(chunk) = self.chunks.get(&page_id.chunk(*number)) else { continue };
            let mut chunk = chunk.clone();
            chunk.remove(&Bitmap::range(0, CHUNK).and_not(slots));
            chunk.compress();
            part.details.chunks.put(page_id.chunk(*number), chunk);
        }
        self.archive_claims(page_id, &own, &mut part.details);
        part.details.pages.put(page_id, archived);
    }

    /// Copies the claims that granted these slots: closed ones, and those that are still open for other runs.
    fn archive_claims(&self, page: PageId, own: &BTreeMap<u32, Bitmap>, details: &mut Ledger) {
        for (number, slots) in own {
            let key = page.chunk(*number);
            let granted = |claim: &Claim| !claim.granted.and(slots).is_empty();
            for (fence, claim) in self.closed_claims_of(key).filter(|(_, claim)| granted(claim)) {
                details.put_closed_claim(fence, &claim);
            }
            let undecided = [RecipientState::Claimed, RecipientState::InDoubt];
            let may_be_claimed = |chunk: &Chunk| undecided.iter().any(|state| !chunk.set(*state).is_empty());
            if self.chunks.get(&key).is_some_and(may_be_claimed) {
                let open = self.claims.iter().filter(|(_, claim)| claim.chunk == key);
                for (fence, claim) in open.filter(|(_, claim)| granted(claim)) {
                    details.claims.put(*fence, claim.clone());
                }
            }
        }
    }

    /// Leaves the summary of a run to a sealed audience in the state, if it sent email (P20).
    fn summarize_sealed_run(&mut self, context: &Context, (id, page): (RunId, &Page), run: &Run) {
        let mailing = self.mailing(run);
        if mailing.is_none() {
            self.derived.to_seals.remove(&(run.content, id));
        }
        self.summaries.put(id, RunSummary { mailing, ..RunSummary::of(page, run, (context.index, context.now)) });
    }

    /// Makes a run the last archived one of its schedule. Returns the one before it.
    fn follow_archived(&mut self, schedule: ScheduleId, run: RunId) -> Option<RunId> {
        self.schedules.edit(&schedule)?.plan.archived.replace(run)
    }

    /// Replaces the name of a run in the history by a range of names that opened (P7).
    fn archive_name(&mut self, context: &Context, (id, run): (RunId, &Run), until: Time) {
        let name = (run.schedule, run.occurrence.clone());
        let ahead_ms = match &run.occurrence {
            // No name of a deleted schedule opens again.
            _ if !self.schedules.contains(&run.schedule) => return drop(self.history.remove(&name)),
            OccurrenceName::Trigger(_) => {
                let until = context.now.plus_ms(self.limits().trigger_name_ms);
                self.history.put(
                    name,
                    InstantOutcome::ArchivedTrigger { run: id, due: run.due, body_hash: run.body_hash, until },
                );
                return;
            }
            OccurrenceName::Civil { civil_ms, .. } => run.due.since_ms(Time(*civil_ms)),
            OccurrenceName::Instant(instant) => run.due.since_ms(*instant),
        };
        let former = self.history.range(..name.clone()).next_back().filter(|(key, _)| key.0 == name.0);
        let joined = former.and_then(|(key, row)| {
            let InstantOutcome::Archived { instants, ahead_min_ms, ahead_max_ms, until: others_until } = row else {
                return None;
            };
            let step_ms = distance_ms(&instants.last(&key.1), &name.1).filter(|step_ms| *step_ms > 0)?;
            let mut instants = instants.clone();
            instants.extend(step_ms, 1);
            let joined = InstantOutcome::Archived {
                instants,
                ahead_min_ms: ahead_ms.min(*ahead_min_ms),
                ahead_max_ms: ahead_ms.max(*ahead_max_ms),
                until: until.max(*others_until),
            };
            Some((key.clone(), joined)).filter(|(_, joined)| joined.steps() <= RANGE_STEPS_MAX)
        });
        match joined {
            Some((key, joined)) => {
                self.history.remove(&name);
                self.history.put(key, joined);
            }
            None => {
                let (instants, ahead_min_ms, ahead_max_ms) = (InstantRange::default(), ahead_ms, ahead_ms);
                self.history.put(name, InstantOutcome::Archived { instants, ahead_min_ms, ahead_max_ms, until });
            }
        }
    }

    /// Releases a blob of an archived run whose details are kept until `until`. Returns the blob if nothing else uses
    /// it, for the archive. Else it stays in the state at least until then.
    fn archive_blob(&mut self, hash: &Hash, until: Time) -> Option<StoredBlob> {
        let now = self.head.now;
        let stored = self.blobs.edit(hash)?;
        if stored.references == 1 && stored.kept_until <= now {
            return self.remove_blob(hash);
        }
        stored.kept_until = stored.kept_until.max(until);
        self.release_blob(hash);
        None
    }

    /// Removes the details of a part after their retention, and the whole part when its summaries are old enough.
    fn shrink_part(&mut self, key: ArchivePartKey, now: Time) {
        let Some(part) = self.parts.get(&key) else { return };
        if part.is_over(now) {
            self.remove_part(key);
        } else if part.has_old_details(now)
            && let Some(part) = self.parts.edit(&key)
        {
            part.details.clear();
        }
    }

    /// Adds a part that has rows which no run owns.
    pub(super) fn add_part_of_rows(
        &mut self,
        key: ArchivePartKey,
        content: PartContent,
        mut rows: Ledger,
        until: Time,
    ) {
        rows.head.level = self.head.level;
        let (details, summaries) = (Vec::new(), self.pack_part(&rows));
        let (tenants, details_until, summaries_until, lost_at) = (Vec::new(), until, until, None);
        let part = ArchivePart { details, summaries, content, tenants, details_until, summaries_until, lost_at };
        self.parts.put(key, part);
    }

    /// Lets parts name no more what an operator accepts as lost. A part is read whole, so with one block all of its
    /// details go, or all of its summaries. Of lost events the readers learn by the head, as of old ones.
    pub(super) fn archive_loss_accept(
        &mut self,
        context: &Context,
        lost: &[LostBlocks],
    ) -> Result<CommandOutcome, CommandRefusal> {
        let mut changed = 0;
        for LostBlocks { part: key, blocks } in lost {
            let is_lost = |block: &BlockEntry| blocks.contains(&block.hash);
            let Some(part) = self.parts.get(key).filter(|part| part.all_blocks().any(is_lost)) else { continue };
            changed += 1;
            if matches!(part.content, PartContent::Events { .. }) {
                self.remove_part(*key);
            } else if let Some(part) = self.parts.edit(key) {
                for named in [&mut part.details, &mut part.summaries] {
                    if named.iter().any(is_lost) {
                        named.clear();
                    }
                }
                part.lost_at = Some(context.now);
            }
        }
        refuse_if(changed == 0, Impossible::NothingLost)?;
        Ok(CommandOutcome::Changed(changed))
    }

    /// Removes a whole part.
    pub(super) fn remove_part(&mut self, key: ArchivePartKey) {
        self.derived.audit_parts.remove(&key);
        self.derived.event_parts.remove(&key);
        let Some(part) = self.parts.remove(&key) else { return };
        if let PartContent::Events { last, .. } = part.content {
            self.head.dropped_events_index = self.head.dropped_events_index.max(last);
        }
    }

    fn remove_summary(&mut self, run: RunId, now: Time) {
        if self.summaries.get(&run).is_none_or(|summary| summary.kept_until() > now) {
            return;
        }
        let Some(summary) = self.summaries.remove(&run) else { return };
        if let Some(mailing) = summary.mailing {
            self.derived.to_seals.remove(&(mailing.content, run));
        }
        let name = (summary.schedule, summary.occurrence);
        self.forget_through(name.0, summary.due);
        self.forget_name(&name);
    }

    /// Removes a name from the history, with the whole range that begins with it.
    fn forget_name(&mut self, name: &(ScheduleId, OccurrenceName)) {
        let Some(row) = self.history.remove(name) else { return };
        let has_gap = |schedule: &Schedule| schedule.settings.policies.min_gap_ms > 0;
        let last = match row {
            // A backfill beside it would not see its emails (P17).
            InstantOutcome::ArchivedTrigger { due, .. } => {
                Some(due).filter(|_| self.schedules.get(&name.0).is_some_and(has_gap))
            }
            row => latest(&row.last(&name.1)),
        };
        if let Some(last) = last {
            self.forget_through(name.0, last);
        }
    }

    /// Records that a backfill opens nothing up to this instant any more (P7).
    fn forget_through(&mut self, schedule: ScheduleId, through: Time) {
        if let Some(schedule) = self.schedules.edit(&schedule) {
            let through = through.min(schedule.plan.fired_through);
            schedule.plan.forgotten_through = schedule.plan.forgotten_through.max(Some(through));
        }
    }
}

/// Adds the slots of a run, by chunk.
fn add_slots(slots: &mut BTreeMap<u32, Bitmap>, run: &Run) {
    for number in run.slots().chunks() {
        run.slots().add_to(slots.entry(number).or_default(), number);
    }
}
