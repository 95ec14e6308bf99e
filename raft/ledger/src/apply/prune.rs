//! Pruning (P24): removes rows that are older than their retention, if an entry names them.
//!
//! A page is removed as a whole when each of its runs is finished and old enough: recipients, claims, dead letters, and
//! content and audience that nothing else uses. A summary of each run remains, with its name and its counts; a
//! recipient in doubt then stays in doubt. Summaries and explained instants are removed much later. The plan does not
//! move; it remembers up to which instant names were removed.
//!
//! `apply` checks each age again: a run that was reopened after the proposal stays.

use super::Context;
use crate::command::Prune;
use crate::effect::Effect;
use crate::model::{
    CommandOutcome, DAY_MS, InstantOutcome, Ledger, Nominal, Page, Run, RunId, RunSummary, SUMMARIES_MS, ScheduleId,
    Time, run_events,
};

/// Tolerance for a civil time that is read as UTC: the instant is never further away. It is compared only with
/// retentions of many days. Milliseconds.
pub(crate) const CIVIL_MS: i64 = DAY_MS;

/// When a row of the history may be removed: after its last instant is old enough. `None` for the name of a run, which
/// is removed with its summary.
pub fn history_kept_until(first: &Nominal, row: &InstantOutcome) -> Option<Time> {
    match (row, row.last(first)) {
        (InstantOutcome::Opened(_), _) | (_, Nominal::Trigger(_)) => None,
        (_, last) => Some(latest(&last)?.plus_ms(SUMMARIES_MS)),
    }
}

/// Returns an instant that is not before that of this name; `None` for a trigger.
fn latest(name: &Nominal) -> Option<Time> {
    match name {
        Nominal::Civil { civil_ms, .. } => Some(Time(*civil_ms).plus_ms(CIVIL_MS)),
        Nominal::Instant(instant) => Some(*instant),
        Nominal::Trigger(_) => None,
    }
}

impl Ledger {
    pub(super) fn prune(&mut self, context: &mut Context, prune: &Prune) -> CommandOutcome {
        let runs = prune.pages.iter().map(|page| self.prune_page(context, *page)).sum();
        for run in &prune.summaries {
            self.prune_summary(*run, context.now);
        }
        for name in &prune.history {
            let kept_until = self.history.get(name).and_then(|row| history_kept_until(&name.1, row));
            if kept_until.is_some_and(|until| until <= context.now) {
                self.forget_name(name);
            }
        }
        CommandOutcome::Pruned(runs)
    }

    fn prune_page(&mut self, context: &mut Context, id: RunId) -> u32 {
        let kept_until = self.pages.get(&id).and_then(|page| self.kept_until(page));
        if kept_until.is_none_or(|until| until > context.now) {
            return 0;
        }
        let Some(page) = self.pages.remove(&id) else { return 0 };
        self.prune_claims(context, id);
        self.chunks.remove_range((id, 0)..=(id, u32::MAX));
        for (position, run) in page.runs.iter().enumerate() {
            let name = id.at(position);
            self.dead.remove_range((name, 0)..=(name, u32::MAX));
            self.run_events.remove_range(run_events::keys_of(name));
            if self.derived.mailed.remove(&(run.schedule, run.due, name)) {
                self.derived.forgotten.insert((run.schedule, run.due, name));
            }
            let mailing = self.mailing(run);
            if mailing.is_none() {
                self.derived.to_seals.remove(&(run.content, name));
            }
            self.release_blob(&run.content);
            self.release_blob(&run.audience);
            self.summaries.put(name, RunSummary { mailing, ..summary(&page, run, context) });
        }
        self.derived.open_pages.remove(&id);
        page.runs.len() as u32
    }

    /// Removes the claims of a page: closed ones, and those with recipients in doubt for ever.
    fn prune_claims(&mut self, context: &mut Context, id: RunId) {
        let open: Vec<_> = self.claims.iter().filter(|(_, claim)| claim.page == id).map(|(fence, _)| *fence).collect();
        for fence in open {
            if let Some(claim) = self.claims.remove(&fence) {
                context.emit(Effect::ClaimClosed { fence, owner: claim.owner });
            }
        }
        self.prune_closed_claims(id);
    }

    fn prune_summary(&mut self, run: RunId, now: Time) {
        if self.summaries.get(&run).is_none_or(|summary| summary.kept_until() > now) {
            return;
        }
        let Some(summary) = self.summaries.remove(&run) else { return };
        self.derived.forgotten.remove(&(summary.schedule, summary.due, run));
        if let Some(mailing) = summary.mailing {
            self.derived.to_seals.remove(&(mailing.content, run));
        }
        let name = (summary.schedule, summary.nominal);
        self.forget_through(name.0, summary.due);
        self.forget_name(&name);
    }

    /// Removes a name from the history, with the whole range that begins with it.
    fn forget_name(&mut self, name: &(ScheduleId, Nominal)) {
        let Some(row) = self.history.remove(name) else { return };
        if let Some(last) = latest(&row.last(&name.1)) {
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

fn summary(page: &Page, run: &Run, context: &Context) -> RunSummary {
    RunSummary {
        tenant: page.tenant.clone(),
        schedule: run.schedule,
        name: run.name.clone(),
        nominal: run.nominal.clone(),
        due: run.due,
        cause: run.cause,
        opened_at: page.opened_at,
        finish_by: run.finish_by,
        state: run.state.clone(),
        counts: run.counts,
        finished_index: run.finished_index,
        known_duplicates: run.known_duplicates,
        contradictions: run.contradictions,
        assumptions_disproved: run.assumptions_disproved,
        resent: run.resent,
        pruned_index: context.index,
        pruned_at: context.now,
        waited_for: run.waited_for,
        mailing: None,
    }
}
