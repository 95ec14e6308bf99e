//! Backfill (P7): occurrences below `fired_through` that the history shows as never opened.
//!
//! The plan does not move. Names make it idempotent: what has opened, by whatever, never opens again, so a
//! second backfill of a range opens nothing more. What opens goes after what is on time.

use std::collections::BTreeSet;

use super::Context;
use super::bounds::bounded;
use super::fire::Opened;
use crate::command::{Backfill, Opening};
use crate::model::{
    Activity, Bounded, CommandOutcome, DAY_MS, Impossible, InstantOutcome, Ledger, Nominal, OpeningCause,
    RangePosition, Refusal, ScheduleId,
};

/// Can names that are this near be out of order? Those of intervals never are.
fn is_same_day(one: &Nominal, other: &Nominal) -> bool {
    match (one, other) {
        (Nominal::Civil { civil_ms: one, .. }, Nominal::Civil { civil_ms: other, .. }) => {
            one.abs_diff(*other) <= DAY_MS as u64
        }
        _ => false,
    }
}

impl Ledger {
    /// P1: an instant is opened or explained, never both. Of a range in which the name lies two are left: what
    /// comes before it, and what comes after it. That is so too where the range does not tell of it, since the
    /// schedule had another timing then: so no row lies within a range, and the row before a name is the range in
    /// which it can lie.
    pub(super) fn take_out_of_ranges(&mut self, name: &(ScheduleId, Nominal), cause: OpeningCause) {
        for (first, place) in self.ranges_around(name, cause) {
            let Some(InstantOutcome::Explained { instants, reason, index }) = self.history.remove(&first) else {
                continue;
            };
            let after = place.before + u32::from(place.is_told);
            let parts = [instants.part(&first.1, 0, place.before), instants.part(&first.1, after, u32::MAX)];
            for (part, instants) in parts.into_iter().flatten() {
                self.history.put((name.0, part), InstantOutcome::Explained { instants, reason, index });
            }
        }
    }

    /// The ranges in which a name lies, by their first, and where in them. Where the clocks of a zone go back, or
    /// forward and what is skipped opens later, two can lie within each other: for a backfill the rows of a day
    /// are looked at.
    fn ranges_around(
        &self,
        name: &(ScheduleId, Nominal),
        cause: OpeningCause,
    ) -> Vec<((ScheduleId, Nominal), RangePosition)> {
        let mut around = Vec::new();
        for (key, row) in self.history.range(..=name).rev().take_while(|((schedule, _), _)| *schedule == name.0) {
            if let InstantOutcome::Explained { instants, .. } = row {
                around.extend(instants.place(&key.1, &name.1).map(|place| (key.clone(), place)));
            }
            if cause != OpeningCause::Backfill || !is_same_day(&key.1, &name.1) {
                break;
            }
        }
        around
    }

    pub(super) fn backfill(&mut self, context: &mut Context, backfill: &Backfill) -> Result<CommandOutcome, Refusal> {
        let id = backfill.schedule;
        let schedule = self.schedules.get(&id).ok_or(Refusal::NoSuchSchedule(id))?;
        let (tenant, request) = (schedule.tenant.clone(), backfill.request.as_deref());
        if let Some(outcome) = self.answered_again(context, &tenant, request, backfill.body)? {
            return Ok(outcome);
        }
        bounded(Bounded::Backfill, backfill.openings.len(), self.limits().backfill)?;
        if matches!(schedule.activity, Activity::Blocked { .. }) {
            return Err(Refusal::NotActive(schedule.activity.kind()));
        }
        let (through, forgotten) = (schedule.plan.fired_through, schedule.plan.forgotten_through);
        let names: BTreeSet<&Nominal> = backfill.openings.iter().map(|opening| &opening.nominal).collect();
        let is_behind = |opening: &Opening| {
            opening.due <= through
                && forgotten.is_none_or(|forgotten| opening.due > forgotten)
                && opening.cause == OpeningCause::Backfill
                && !matches!(opening.nominal, Nominal::Trigger(_))
        };
        if names.len() < backfill.openings.len() || !backfill.openings.iter().all(is_behind) {
            return Err(Impossible::BackfillAhead.into());
        }
        let fresh = backfill.openings.iter().filter(|opening| !self.has_opened(&(id, opening.nominal.clone())));
        let fresh: Vec<Opening> = fresh.cloned().collect();
        let overtaken = (backfill.openings.len() - fresh.len()) as u32;
        let mut batch = self.backfill_batch(id);
        let may_mail = |opening: &Opening| self.may_backfill(&mut batch, opening.due);
        let (fresh, inside): (Vec<Opening>, Vec<Opening>) = fresh.into_iter().partition(may_mail);
        self.keep_mappings(batch.lookups);
        let inside_gap = inside.len() as u32;
        let fresh = fresh.into_iter().map(|opening| Opened { schedule: id, opening, waited_for: None }).collect();
        let (known, rest) = (backfill.known.saturating_add(overtaken), backfill.rest);
        let runs = self.open_runs(context, fresh);
        let run = |run: Option<&(_, _)>| run.map(|(_, run)| *run);
        let (first, last, opened) = (run(runs.first()), run(runs.last()), runs.len() as u32);
        let outcome = CommandOutcome::Backfilled { opened, first, last, known, rest, inside_gap };
        self.remember(context, &tenant, request, backfill.body, &outcome);
        Ok(outcome)
    }
}
