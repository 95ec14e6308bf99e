//! Changes of a run as a whole: pause, resume, cancel, and its deadline (P15, P16).

use std::collections::BTreeMap;

use super::Context;
use super::bounds::refuse_if;
use crate::command::{RunBlock, RunPause, RunResume};
use crate::effect::Effect;
use crate::model::{
    Bitmap, CommandOutcome, CommandRefusal, DeadLetter, DeadLetterCause, EventKind, Impossible, Ledger, MissingFile,
    PageId, PauseReason, RecipientState, Run, RunEvent, RunEventKey, RunEventKind, RunId, RunState, run_events,
};
use crate::storage::form::RowForm;

/// Next states of pending recipients when a run ends.
#[derive(Clone, Copy)]
struct Closing {
    /// State of recipients without a counted attempt.
    fresh: RecipientState,
    /// State of recipients with a counted attempt.
    tried: RecipientState,
}

impl Ledger {
    pub(super) fn run_pause(
        &mut self,
        context: &mut Context,
        pause: &RunPause,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let known = self.page_of(pause.run).map(|(_, page, position)| &page.runs[position].state);
        let reason = match known {
            Some(RunState::Paused { reason }) if pause.reason.is_empty() => reason.clone(),
            _ => PauseReason::Operator(pause.reason.clone()),
        };
        self.halt_run(context, pause.run, reason)
    }

    /// Pauses a run. A second pause replaces the reason. A finished run can be paused while a recipient may become
    /// pending again.
    pub(super) fn halt_run(
        &mut self,
        context: &mut Context,
        run: RunId,
        reason: PauseReason,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let kept = self.fit_in_page(run, reason.clone());
        self.change_run(context, run, |run| {
            stoppable(run)?;
            run.state = RunState::Paused { reason: kept };
            Ok(())
        })?;
        self.record_run_event(context, run, RunEventKind::Paused(reason), BTreeMap::new());
        self.head.forbidden_index = context.index;
        Ok(CommandOutcome::Done)
    }

    /// Returns the reason as the run's page stores it: without its text if the row of the page would come close to 1
    /// MiB. The text stays in the run's history, which has rows of its own.
    pub(super) fn fit_in_page(&self, run: RunId, reason: PauseReason) -> PauseReason {
        let Some((_, page, _)) = self.page_of(run).filter(|_| !reason.words().is_empty()) else { return reason };
        let bytes = page.row_len(self.head.level) + reason.words().len();
        if bytes > self.limits().page_bytes_max { reason.without_text() } else { reason }
    }

    /// Refuses a resume of a run that has another event than the caller has read.
    pub(super) fn check_run_resume(&self, resume: RunResume) -> Result<(), CommandRefusal> {
        let is_other = |expected: u64| expected != self.last_run_change(resume.run);
        refuse_if(resume.expected.is_some_and(is_other), CommandRefusal::StalePlan)
    }

    pub(super) fn run_resume(
        &mut self,
        context: &mut Context,
        resume: RunResume,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let RunResume { run, without_canary, .. } = resume;
        let bounce_breaker = &self.limits().bounce_breaker;
        let page = self.change_run(context, run, |run| match run.state {
            RunState::Paused { .. } => {
                run.overrule_canary(without_canary)?;
                run.reset_tripped_breaker(bounce_breaker);
                run.state = if run.counts.is_finished() { RunState::Finished } else { RunState::Open };
                run.unattributed_refusals.clear();
                Ok(())
            }
            ref other => Err(Impossible::RunIs(other.kind()).into()),
        })?;
        self.record_run_event(context, run, RunEventKind::Resumed, BTreeMap::new());
        context.emit(Effect::WorkAppeared(page));
        Ok(CommandOutcome::Done)
    }

    /// Checks that the run can be cancelled. A cancelled run can be cancelled again.
    pub(super) fn check_run_cancel(&self, run: RunId) -> Result<(), CommandRefusal> {
        let (_, page, position) = self.page_of(run).ok_or(CommandRefusal::NoSuchRun(run))?;
        match page.runs.get(position) {
            Some(run) if run.state.is_cancelled() => Ok(()),
            Some(run) => stoppable(run),
            None => Err(CommandRefusal::NoSuchRun(run)),
        }
    }

    /// Cancels a run. Pending recipients are cancelled now, claimed ones when their worker releases them, and those in
    /// doubt if they turn out not to be handed off. `by`: the run of the schedule because of which it is
    /// cancelled.
    pub(super) fn run_cancel(
        &mut self,
        context: &mut Context,
        run: RunId,
        by: Option<RunId>,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let mut is_new = false;
        self.change_run(context, run, |run| {
            if !run.state.is_cancelled() {
                stoppable(run)?;
                run.state = RunState::Cancelled { by };
                is_new = true;
            }
            Ok(())
        })?;
        if is_new {
            self.add_run_event(context, run, EventKind::RunCancelled(by));
        }
        self.head.forbidden_index = context.index;
        let closing = Closing { fresh: RecipientState::Cancelled, tried: RecipientState::Cancelled };
        let moved = self.close_pending(context, run, closing);
        Ok(CommandOutcome::Changed(moved))
    }

    /// Ends runs that are past their deadline: recipients without an attempt expire, and those with one are dead (P16).
    pub(super) fn expire(&mut self, context: &mut Context, runs: &[RunId]) -> CommandOutcome {
        let now = context.now;
        let mut moved = 0;
        for run in runs {
            let due = |run: &mut Run| {
                let paused = match &run.state {
                    RunState::Open => None,
                    RunState::Paused { reason } => Some(reason.clone()),
                    _ => return None,
                };
                if run.finish_by > now {
                    return None;
                }
                run.state = RunState::Expired { paused };
                Some(())
            };
            if let Some(()) = self.change_run_if(context, *run, due) {
                self.add_run_event(context, *run, EventKind::RunExpired);
                let closing = Closing { fresh: RecipientState::Expired, tried: RecipientState::Dead };
                moved += self.close_pending(context, *run, closing);
            }
        }
        CommandOutcome::Changed(moved)
    }

    /// Marks runs that wait for a file which no live node has, and unmarks those that no longer wait (P20). Returns the
    /// number of changed marks.
    pub(super) fn run_block(&mut self, context: &mut Context, blocks: &[RunBlock]) -> CommandOutcome {
        let mut changed = 0;
        for RunBlock { run, file } in blocks {
            let since = context.now;
            let mark = |run: &mut Run| {
                if run.counts.is_finished() || run.blocked.map(|blocked| blocked.file) == *file {
                    return None;
                }
                run.blocked = file.map(|file| MissingFile { file, since });
                Some(run.label().to_owned())
            };
            if let Some(name) = self.change_run_if(context, *run, mark) {
                changed += 1;
                if let Some(file) = file {
                    context.alarm(format!("run of {name} is blocked: no live node has {file}"));
                }
            }
        }
        CommandOutcome::Changed(changed)
    }

    /// Edits a run and returns its page. A pause, a resume or a reopening changes whether the run counts for `overlap`.
    pub(super) fn change_run(
        &mut self,
        context: &mut Context,
        run: RunId,
        change: impl FnOnce(&mut Run) -> Result<(), CommandRefusal>,
    ) -> Result<PageId, CommandRefusal> {
        let (id, _, position) = self.page_of(run).ok_or(CommandRefusal::NoSuchRun(run))?;
        let page = self.pages.edit(&id).ok_or(CommandRefusal::NoSuchRun(run))?;
        change(&mut page.runs[position])?;
        let schedule = page.runs[position].schedule;
        self.update_overlap_indexes(context, schedule, run);
        Ok(id)
    }

    /// Like [`Ledger::change_run`], for a change that may turn out to change nothing. Returns what `change`
    /// returns; `None` if there is no such run, or if `change` left it as it was.
    fn change_run_if<T>(
        &mut self,
        context: &mut Context,
        run: RunId,
        change: impl FnOnce(&mut Run) -> Option<T>,
    ) -> Option<T> {
        let (id, _, position) = self.page_of(run)?;
        let page = self.pages.edit(&id)?;
        let changed = change(&mut page.runs[position])?;
        let schedule = page.runs[position].schedule;
        self.update_overlap_indexes(context, schedule, run);
        Some(changed)
    }

    /// Closes all pending recipients of a run, each by whether it has a counted attempt. The recipients of a chunk move
    /// as two sets. So a million deferred recipients are closed in one entry, on every node.
    fn close_pending(&mut self, context: &mut Context, run: RunId, closing: Closing) -> u64 {
        let Some((id, page, position)) = self.page_of(run) else { return 0 };
        let own = page.runs[position].slots();
        let mut moved = 0;
        let mut closed: BTreeMap<RecipientState, BTreeMap<u32, Bitmap>> = BTreeMap::new();
        for number in own.chunks() {
            let Some(chunk) = self.chunks.get(&id.chunk(number)) else { continue };
            let pending = chunk.set(RecipientState::Pending).and(&own.in_chunk(number));
            let attempts: Vec<(u16, u8)> = match closing.tried {
                RecipientState::Dead => chunk.attempts.iter().map(|(slot, attempts)| (*slot, *attempts)).collect(),
                _ => Vec::new(),
            };
            // A recipient with an entry here has at least one attempt.
            let tried = Bitmap::of_many(chunk.attempts.keys().copied()).and(&pending);
            let fresh = pending.and_not(&tried);
            let closes = [(&fresh, closing.fresh), (&tried, closing.tried)];
            for (slots, to) in closes.into_iter().filter(|(slots, _)| !slots.is_empty()) {
                self.transition(context, id.chunk(number), slots, RecipientState::Pending, to);
                closed.entry(to).or_default().entry(number).or_default().add(slots);
            }
            for (slot, attempts) in attempts.into_iter().filter(|(slot, _)| tried.contains(*slot)) {
                if let Some(recipient) = self.recipient_at(id.chunk(number), slot) {
                    self.dead.put(
                        recipient,
                        DeadLetter::without_answer(DeadLetterCause::DeadlinePassed, attempts, context.now),
                    );
                }
            }
            moved += u64::from(pending.len());
        }
        for (state, by_chunk) in closed {
            let what = match state {
                RecipientState::Dead => RunEventKind::DeadAtDeadline,
                RecipientState::Cancelled => RunEventKind::Cancelled,
                _ => RunEventKind::Expired,
            };
            self.record_run_event(context, run, what, by_chunk);
        }
        moved
    }

    /// Records an event of these slots of a run, or of the whole run if none are given. Removes the oldest of too many.
    pub(super) fn record_run_event(
        &mut self,
        context: &mut Context,
        run: RunId,
        what: RunEventKind,
        by_chunk: BTreeMap<u32, Bitmap>,
    ) {
        match &what {
            RunEventKind::Paused(reason) => self.add_run_event(context, run, EventKind::RunPaused(reason.clone())),
            RunEventKind::Resumed => self.add_run_event(context, run, EventKind::RunResumed),
            _ => {}
        }
        let parts: Vec<(u32, Option<Bitmap>)> = match by_chunk.is_empty() {
            true => vec![(0, None)],
            false => by_chunk.into_iter().map(|(chunk, slots)| (chunk, Some(slots))).collect(),
        };
        for (chunk, slots) in parts {
            let key = (run, context.index, chunk);
            let mut run_events = self.run_events.get(&key).cloned().unwrap_or_default();
            let known = run_events.iter_mut().find(|event| event.what == what && event.slots.is_some());
            match (known.and_then(|known| known.slots.as_mut()), slots) {
                (Some(known), Some(slots)) => known.add(&slots),
                (_, slots) => run_events.push(RunEvent { at: context.now, what: what.clone(), slots }),
            }
            self.run_events.put(key, run_events);
        }
        self.forget_old_run_events(run);
    }

    /// Joins run events, or removes those of the oldest entry in all chunks, if there are too many entries.
    fn forget_old_run_events(&mut self, run: RunId) {
        let after = |index: u64| self.run_events.range((run, index, 0)..=(run, u64::MAX, u32::MAX)).next();
        let mut entries = std::iter::successors(after(0), |((_, index, _), _)| after(index.saturating_add(1)));
        let oldest = entries.next().map(|((_, index, _), _)| *index);
        if let (Some(oldest), Some(_)) = (oldest, entries.nth(self.limits().run_event_entries_max - 1))
            && !self.join_suppressions(run)
        {
            self.run_events.remove_range((run, oldest, 0)..=(run, oldest, u32::MAX));
        }
    }

    /// Adds the oldest suppression that can be joined to the next one of its kind, because each claim may record one:
    /// they would crowd out what operators did. Between the two no run opened that could be taken for the reason
    /// ([`Ledger::kept_apart_by`]). A run with a gap has all its recipients in one chunk. Returns false if there are
    /// no two.
    fn join_suppressions(&mut self, run: RunId) -> bool {
        let of_run = self.run_events.range(run_events::keys_of(run));
        let suppressions = of_run.filter_map(|(key, run_events)| match run_events.as_slice() {
            [RunEvent { what, slots: Some(_), .. }] if what.is_suppression() => Some((*key, what)),
            _ => None,
        });
        let suppressions: Vec<(RunEventKey, &RunEventKind)> = suppressions.collect();
        let opened = self.openings_nearby(run);
        let joined = suppressions.windows(2).find_map(|pair| {
            let [(former @ (_, from, chunk), kind), (next @ (_, to, other), next_kind)] = *pair else { return None };
            let is_alike = chunk == other && kind == next_kind;
            (is_alike && opened.range(from..to).next().is_none()).then_some((former, next))
        });
        let Some((former, next)) = joined else { return false };
        let slots = self.run_events.remove(&former).into_iter().flatten().find_map(|event| event.slots);
        let known =
            self.run_events.edit(&next).and_then(|events| events.first_mut()).and_then(|one| one.slots.as_mut());
        if let (Some(known), Some(slots)) = (known, slots) {
            known.add(&slots);
        }
        true
    }

    /// Like [`Ledger::record_run_event`], for recipients by number.
    pub(super) fn record_recipients_event(
        &mut self,
        context: &mut Context,
        run: RunId,
        what: RunEventKind,
        numbers: &[u32],
    ) {
        let mut by_chunk: BTreeMap<u32, Bitmap> = BTreeMap::new();
        for (chunk, slot) in numbers.iter().filter_map(|number| self.slot_of(run, *number)) {
            by_chunk.entry(chunk.number).or_default().insert(slot);
        }
        if !by_chunk.is_empty() {
            self.record_run_event(context, run, what, by_chunk);
        }
    }
}

/// Checks that a run can be paused or cancelled: one of its emails may still be sent, now or when a recipient in doubt
/// becomes pending.
fn stoppable(run: &Run) -> Result<(), CommandRefusal> {
    match run.state {
        RunState::Open | RunState::Paused { .. } => Ok(()),
        RunState::Finished if run.may_become_pending() => Ok(()),
        ref ended => Err(Impossible::RunIs(ended.kind()).into()),
    }
}
