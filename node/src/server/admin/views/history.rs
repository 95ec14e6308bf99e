//! Describes what happened to the instants of a schedule.

use reveille_ledger::command::{OpeningCause, UnopenedReason};
use reveille_ledger::ids::{OccurrenceName, RunId, ScheduleId};
use reveille_ledger::instant_range::InstantRange;
use reveille_ledger::{Ledger, RunState, Schedule};
use reveille_proto::admin::v1::{self, HistoryEntry, HistoryOutcome};

use super::duration;
use crate::server::admin::enums::OnWire;

/// Builds the entry of a range of instants that did not open.
pub fn explained(
    occurrence: &OccurrenceName,
    instants: &InstantRange,
    (reason, index): (UnopenedReason, u64),
) -> HistoryEntry {
    HistoryEntry {
        occurrence: occurrence.to_string(),
        last: instants.last(occurrence).to_string(),
        outcome: reason.outcome().wire().into(),
        reason: reason.wire().into(),
        count: instants.count(),
        index,
        ..HistoryEntry::default()
    }
}

/// Builds the entry of an instant that opened. `ledger` has the run or its summary.
pub fn opened(occurrence: &OccurrenceName, id: RunId, ledger: &Ledger) -> HistoryEntry {
    let entry = fired(occurrence, Some(id));
    let Some(run) = ledger.summary_of(id) else { return entry };
    let is_late = run.waited_for.is_some() || matches!(run.cause, OpeningCause::CatchUp | OpeningCause::Backfill);
    let cancelled_by = match run.state {
        RunState::Cancelled { by: Some(other) } => other.to_string(),
        _ => String::new(),
    };
    HistoryEntry {
        cause: run.cause.wire().into(),
        late: is_late.then(|| duration(run.opened_at.since_ms(run.due).max(0))),
        waited_for: run.waited_for.map(|former| former.to_string()).unwrap_or_default(),
        cancelled_by,
        inside_gap: ledger.suppressed_by_gap_of(id),
        ..entry
    }
}

/// Builds the entry of an instant that opened a run in a part of the archive that is lost. Perhaps not even the id of
/// the run is known.
pub fn opened_and_lost(occurrence: &OccurrenceName, run: Option<RunId>) -> HistoryEntry {
    HistoryEntry { run_lost: true, ..fired(occurrence, run) }
}

fn fired(occurrence: &OccurrenceName, run: Option<RunId>) -> HistoryEntry {
    let (index, run) = run.map(|run| (run.index, run.to_string())).unwrap_or_default();
    let (occurrence, outcome) = (occurrence.to_string(), HistoryOutcome::Fired.into());
    HistoryEntry { last: occurrence.clone(), occurrence, outcome, count: 1, run, index, ..HistoryEntry::default() }
}

/// Warns that a run suppressed recipients because they got an email of another run within `min_gap` (P17). Returns
/// `None` if there are none.
pub fn inside_gap(ledger: &Ledger, id: RunId) -> Option<v1::Warning> {
    let (run, suppressed) = (ledger.run(id)?, ledger.suppressed_by_gap_of(id));
    (suppressed > 0).then(|| v1::Warning {
        reason: v1::WarningReason::InsideMinGap.into(),
        suppressed,
        recipients: run.count,
        min_gap: Some(duration(run.policies.min_gap_ms)),
        ..v1::Warning::default()
    })
}

/// Returns the due instant that waits until a run is finished (`overlap`). Returns `None` if no instant waits.
pub fn waiting(ledger: &Ledger, id: ScheduleId, schedule: &Schedule) -> Option<HistoryEntry> {
    let run = ledger.waits_for(id)?;
    let occurrence = schedule.plan.next.as_ref()?.occurrence.to_string();
    Some(HistoryEntry {
        last: occurrence.clone(),
        occurrence,
        outcome: HistoryOutcome::Waiting.into(),
        waited_for: run.to_string(),
        missed: schedule.plan.missed_before.is_some(),
        ..HistoryEntry::default()
    })
}
