//! The only place where a recipient changes its state.
//!
//! A transition moves slots from one set of a chunk to another and moves the counts of their runs by the same number.
//! So the sum over all states stays the size of the audience (P1), whatever the commands do.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Context;
use crate::effect::Effect;
use crate::index::mailed_runs::MailedRuns;
use crate::model::{
    Bitmap, BounceBreakerLimits, CHUNK, CanaryVerdict, ChunkKey, EventKind, Ledger, Page, PageId, PauseReason,
    RecipientState, Run, RunEventKind, RunId, RunState, StateChange, remove_from_all,
};

/// What a move of recipients changed of a run.
struct RunChange {
    run: RunId,
    /// Whether it has emails now, if that changed.
    has_emails: Option<bool>,
    /// True if it finished or is open again.
    end_changed: bool,
    /// What the move decided about the run.
    events: Vec<RunEventKind>,
}

impl Ledger {
    /// Moves slots of one chunk from state `from` to `to`.
    ///
    /// # Panics
    /// Panics if a slot is in another state: an error of the ledger itself (P1).
    pub(super) fn transition(
        &mut self,
        context: &mut Context,
        key: ChunkKey,
        slots: &Bitmap,
        from: RecipientState,
        to: RecipientState,
    ) {
        if slots.is_empty() || from == to {
            return;
        }
        let Some(chunk) = self.chunks.edit(&key) else { return };
        let moved = slots.and(chunk.set(from));
        assert_eq!(moved.len(), slots.len(), "P1: {slots:?} are not all {from:?} in {key:?}");
        chunk.sets[from as usize].remove(slots);
        chunk.sets[to as usize].add(slots);
        if to.is_terminal() {
            chunk.crash_suspects.remove(slots);
        }
        if to.is_terminal() && to != RecipientState::Expired {
            chunk.deferrals.remove(slots);
        }
        if from == RecipientState::Pending {
            remove_from_all(&mut chunk.waves, slots);
        }
        if chunk.is_at_rest() {
            chunk.compress();
        }
        let change = StateChange { from, to };
        self.transition_counts(context, key, slots, change);
        if from == RecipientState::Claimed || to == RecipientState::Claimed {
            self.count_by_pool(context, key, slots, change);
        }
        if to == RecipientState::Pending {
            let start = self.pages.get(&key.page).map(Page::starts_at);
            self.derived.open_pages.extend(start.map(|start| (start, key.page)));
            context.emit(Effect::WorkAppeared(key.page));
        }
    }

    /// Moves the counts of the tenant and of the runs that have these slots.
    fn transition_counts(
        &mut self,
        context: &mut Context,
        ChunkKey { page: page_id, number: chunk }: ChunkKey,
        slots: &Bitmap,
        change: StateChange,
    ) {
        let limits = &self.limits().bounce_breaker;
        let (Some(page), Some(lowest)) = (self.pages.edit(&page_id), slots.min()) else { return };
        count_claimed(&mut self.derived.claimed, &page.tenant, change, slots.len());
        let at = (page_id, &Arc::clone(&page.tenant));
        let base = chunk * CHUNK;
        let start = page.run_of_slot(base + u32::from(lowest)).unwrap_or(0);
        let (mut left, mut changes) = (slots.len(), Vec::new());
        for run in page.runs.iter_mut().skip(start) {
            if left == 0 {
                break;
            }
            let first = run.first.saturating_sub(base);
            let last = (run.first + run.count - 1).saturating_sub(base).min(CHUNK - 1);
            let count = slots.count_in(first..=last);
            if count == 0 {
                continue;
            }
            left -= count;
            let had_emails = run.has_emails();
            run.counts.transition(change, count);
            let end_changed = update_end(run, context);
            run.update_canary(chunk, slots, change);
            if is_event(change) {
                context.events.add_recipients(at, run, change.to, (chunk, slots));
            }
            if end_changed && run.finished_index.is_some() {
                context.events.add(at, run, EventKind::RunFinished(run.counts));
            }
            changes.push(RunChange {
                run: page_id.run_id(run),
                has_emails: Some(run.has_emails()).filter(|has_emails| *has_emails != had_emails),
                end_changed,
                events: events_after(run, change, count, limits),
            });
        }
        if !page.is_open() {
            self.derived.open_pages.remove(&(page.starts_at(), page_id));
        }
        for change in changes {
            self.record_run_change(context, page_id, change);
        }
    }

    /// Brings the indexes and the recorded events up to date with a run of a page.
    fn record_run_change(&mut self, context: &mut Context, page_id: PageId, change: RunChange) {
        let Some(run) = self.run(change.run) else { return };
        let schedule = run.schedule;
        let mut ends_or_pauses = change.end_changed;
        // The index of runs with emails, which the `min_gap` check reads (P17).
        if let Some(has_emails) = change.has_emails {
            let rows = MailedRuns::rows(change.run, run, self.blob(&run.audience));
            match has_emails {
                true => self.derived.mailed.insert(rows),
                false => self.derived.mailed.remove(&rows),
            }
        }
        for event in change.events {
            if let RunEventKind::Paused(reason) = &event {
                let name = self.run(change.run).map_or("", Run::label);
                context.alarm(format!("run of {name} is paused: {reason}"));
                ends_or_pauses = true;
            }
            self.record_run_event(context, change.run, event, BTreeMap::new());
            context.emit(Effect::WorkAppeared(page_id));
        }
        if ends_or_pauses {
            self.update_overlap_indexes(context, schedule, change.run);
        }
    }
}

/// True if readers of events learn of the change. A claim, and its return to pending, is no event: it may happen often.
fn is_event(change: StateChange) -> bool {
    match change.to {
        RecipientState::Claimed => false,
        RecipientState::Pending => change.from != RecipientState::Claimed,
        _ => true,
    }
}

/// Counts the claimed recipients of a tenant (P12) or of a pool (P25).
pub(super) fn count_claimed(claimed: &mut BTreeMap<String, u32>, whose: &str, change: StateChange, count: u32) {
    if change.to == RecipientState::Claimed {
        match claimed.get_mut(whose) {
            Some(known) => *known += count,
            None => drop(claimed.insert(whose.to_owned(), count)),
        }
    }
    if change.from == RecipientState::Claimed
        && let Some(known) = claimed.get_mut(whose)
    {
        *known -= count;
        if *known == 0 {
            claimed.remove(whose);
        }
    }
}

/// Sets or clears the end of a run after its counts changed. True if it changed.
fn update_end(run: &mut Run, context: &Context) -> bool {
    let is_finished = run.counts.is_finished();
    let changed = is_finished != run.finished_index.is_some();
    if changed {
        run.finished_index = is_finished.then_some(context.index);
        run.finished_at = is_finished.then_some(context.now);
    }
    if changed && is_finished {
        run.blocked = None;
    }
    match (&run.state, is_finished) {
        (RunState::Open, true) => run.state = RunState::Finished,
        // A pause holds until the operator resumes the run (P15), unless no recipient can become pending again.
        (RunState::Paused { .. }, true) if !run.may_become_pending() => run.state = RunState::Finished,
        (RunState::Finished, false) => run.state = RunState::Open,
        _ => {}
    }
    changed
}

/// Decides by canary and bounce breaker after a move of recipients; returns the events of the run.
fn events_after(run: &mut Run, change: StateChange, count: u32, limits: &BounceBreakerLimits) -> Vec<RunEventKind> {
    let canary = run.judge_canary().map(|canary| match canary.verdict {
        CanaryVerdict::Held => RunEventKind::Paused(PauseReason::Canary(canary)),
        _ => RunEventKind::CanaryPassed,
    });
    let breaker = run.count_bounces(change, count, limits).map(RunEventKind::Paused);
    canary.into_iter().chain(breaker).collect()
}
