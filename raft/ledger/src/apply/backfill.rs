//! Backfill: opens occurrences at or before `fired_through` that never opened (P7).
//!
//! The plan does not move. An occurrence that opened never opens again, so a second backfill of the same range opens
//! nothing. Backfilled runs are claimed after runs that are on time.

use std::collections::BTreeSet;

use super::Context;
use super::bounds::{bounded, refuse_if};
use super::fire::OpeningOccurrence;
use crate::command::{Backfill, Opening};
use crate::model::{
    CommandOutcome, CommandRefusal, DAY_MS, Impossible, Ledger, LimitedQuantity, OccurrenceName, OpeningCause,
    RangePosition, ScheduleId, ScheduleState,
};

/// True if two names can be out of order. Names of interval patterns never are.
fn is_within_a_day(one: &OccurrenceName, other: &OccurrenceName) -> bool {
    match (one, other) {
        (OccurrenceName::Civil { civil_ms: one, .. }, OccurrenceName::Civil { civil_ms: other, .. }) => {
            one.abs_diff(*other) <= DAY_MS as u64
        }
        _ => false,
    }
}

impl Ledger {
    /// Removes the name of an occurrence that opens from the ranges of the history: an instant is either opened or
    /// explained (P1). The range is split around the name, even if it does not list the name, because the schedule had
    /// another timing then. So no row is inside a range, and only the row before a name can be a range that contains
    /// it.
    pub(super) fn split_ranges_at(&mut self, name: &(ScheduleId, OccurrenceName), cause: OpeningCause) {
        for (first, position) in self.ranges_around(name, cause) {
            let Some(row) = self.history.remove(&first) else { continue };
            let Some(instants) = row.instants() else { continue };
            let after = position.before + u32::from(position.is_member);
            let parts = [instants.part(&first.1, 0, position.before), instants.part(&first.1, after, u32::MAX)];
            for (part, instants) in parts.into_iter().flatten() {
                self.history.put((name.0, part), row.with_instants(instants));
            }
        }
    }

    /// Returns the ranges that contain a name, by their first name, with its position. Two ranges can overlap where the
    /// clocks of a zone change, so a backfill checks the rows of one day.
    fn ranges_around(
        &self,
        name: &(ScheduleId, OccurrenceName),
        cause: OpeningCause,
    ) -> Vec<((ScheduleId, OccurrenceName), RangePosition)> {
        let mut around = Vec::new();
        for (key, row) in self.history.range(..=name).rev().take_while(|((schedule, _), _)| *schedule == name.0) {
            if let Some(instants) = row.instants() {
                around.extend(instants.position(&key.1, &name.1).map(|position| (key.clone(), position)));
            }
            if cause != OpeningCause::Backfill || !is_within_a_day(&key.1, &name.1) {
                break;
            }
        }
        around
    }

    pub(super) fn backfill(
        &mut self,
        context: &mut Context,
        backfill: &Backfill,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let id = backfill.schedule;
        let schedule = self.schedules.get(&id).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        bounded(LimitedQuantity::Backfill, backfill.openings.len(), self.limits().backfill_openings_max)?;
        refuse_if(
            matches!(schedule.state, ScheduleState::Blocked { .. }),
            CommandRefusal::NotActive(schedule.state.kind()),
        )?;
        let (through, forgotten) = (schedule.plan.fired_through, schedule.plan.forgotten_through);
        let names: BTreeSet<&OccurrenceName> = backfill.openings.iter().map(|opening| &opening.occurrence).collect();
        let is_behind = |opening: &Opening| {
            opening.due <= through
                && forgotten.is_none_or(|forgotten| opening.due > forgotten)
                && opening.cause == OpeningCause::Backfill
                && !matches!(opening.occurrence, OccurrenceName::Trigger(_))
        };
        let has_twice = names.len() < backfill.openings.len();
        refuse_if(has_twice || !backfill.openings.iter().all(is_behind), Impossible::BackfillAhead)?;
        let fresh = backfill.openings.iter().filter(|opening| !self.has_opened(&(id, opening.occurrence.clone())));
        let fresh: Vec<Opening> = fresh.cloned().collect();
        let overtaken = (backfill.openings.len() - fresh.len()) as u32;
        let mut batch = self.backfill_batch(id);
        let may_mail = |opening: &Opening| self.may_backfill(&mut batch, opening.due);
        let (fresh, inside): (Vec<Opening>, Vec<Opening>) = fresh.into_iter().partition(may_mail);
        self.keep_mappings(batch.lookups);
        let inside_gap = inside.len() as u32;
        let fresh = fresh.into_iter().map(|opening| OpeningOccurrence::of_schedule(id, opening)).collect();
        let (known, rest) = (backfill.known.saturating_add(overtaken), backfill.rest);
        let runs = self.open_runs(context, fresh);
        let run = |run: Option<&(_, _)>| run.map(|(_, run)| *run);
        let (first, last, opened) = (run(runs.first()), run(runs.last()), runs.len() as u32);
        Ok(CommandOutcome::Backfilled { opened, first, last, known, rest, inside_gap })
    }
}
