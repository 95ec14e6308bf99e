//! Backfill (P7): occurrences below `fired_through` that the history shows as never opened.
//!
//! The plan does not move. Names make it idempotent: what has opened, by whatever, never opens again, so a
//! second backfill of a range opens nothing more. What opens goes after what is on time.

use std::collections::BTreeSet;

use super::Context;
use super::fire::Opened;
use super::gap::Look;
use super::schedule::bounded;
use crate::command::{Backfill, Cause, Opening};
use crate::ids::Nominal;
use crate::refusal::Refusal;
use crate::reply::Outcome;
use crate::state::{Activity, Ledger};

/// Occurrences that one backfill opens.
pub const BACKFILL_MAX: usize = 1_000;

impl Ledger {
    pub(super) fn backfill(&mut self, context: &mut Context, backfill: &Backfill) -> Result<Outcome, Refusal> {
        let id = backfill.schedule;
        let schedule = self.schedules.get(&id).ok_or(Refusal::NoSuchSchedule(id))?;
        let (tenant, request) = (schedule.tenant.clone(), backfill.request.as_deref());
        if let Some(outcome) = self.answered_again(context, &tenant, request, backfill.body)? {
            return Ok(outcome);
        }
        bounded("occurrences in one backfill", backfill.openings.len(), BACKFILL_MAX)?;
        if matches!(schedule.activity, Activity::Blocked { .. }) {
            return Err(Refusal::NotActive(schedule.activity.word().to_owned()));
        }
        let (through, forgotten) = (schedule.plan.fired_through, schedule.plan.forgotten_through);
        let names: BTreeSet<&Nominal> = backfill.openings.iter().map(|opening| &opening.nominal).collect();
        let is_behind = |opening: &Opening| {
            opening.due <= through
                && forgotten.is_none_or(|forgotten| opening.due > forgotten)
                && opening.cause == Cause::Backfill
                && !matches!(opening.nominal, Nominal::Trigger(_))
        };
        if names.len() < backfill.openings.len() || !backfill.openings.iter().all(is_behind) {
            return Err(Refusal::NotPossible("a backfill of what the plan has not left behind, or twice".to_owned()));
        }
        let fresh = backfill.openings.iter().filter(|opening| !self.has_opened(&(id, opening.nominal.clone())));
        let fresh: Vec<Opening> = fresh.cloned().collect();
        let overtaken = (backfill.openings.len() - fresh.len()) as u32;
        let mut look = Look::default();
        let may_mail = |opening: &Opening| self.may_backfill(&mut look, id, opening.due);
        let (fresh, inside): (Vec<Opening>, Vec<Opening>) = fresh.into_iter().partition(may_mail);
        self.keep_tables(look);
        let inside_gap = inside.len() as u32;
        let fresh = fresh.into_iter().map(|opening| Opened { schedule: id, opening, waited_for: None }).collect();
        let (known, rest) = (backfill.known.saturating_add(overtaken), backfill.rest);
        let runs = self.open_runs(context, fresh);
        let run = |run: Option<&(_, _)>| run.map(|(_, run)| *run);
        let (first, last, opened) = (run(runs.first()), run(runs.last()), runs.len() as u32);
        let outcome = Outcome::Backfilled { opened, first, last, known, rest, inside_gap };
        self.remember(context, &tenant, request, backfill.body, &outcome);
        Ok(outcome)
    }
}
