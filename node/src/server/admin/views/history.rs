//! Describes what happened to the instants of a schedule.

use reveille_ledger::command::{OpeningCause, UnopenedReason};
use reveille_ledger::ids::{Nominal, RunId, ScheduleId, Time};
use reveille_ledger::instant_range::InstantRange;
use reveille_ledger::policy::{MINUTE_MS, Policies};
use reveille_ledger::{Ledger, RunState, Schedule};
use reveille_proto::admin::v1::{HistoryEntry, HistoryOutcome};

use super::run::made_way;
use crate::server::admin::enums::OnWire;
use crate::server::admin::validate::in_words;

/// Builds the entry of a range of instants that did not open.
pub fn explained(
    nominal: &Nominal,
    instants: &InstantRange,
    (reason, index): (UnopenedReason, u64),
    policies: &Policies,
) -> HistoryEntry {
    let (last, count) = (instants.last(nominal).to_string(), instants.count());
    let (outcome, reason) = (reason.outcome().wire(), why(reason, policies));
    let (nominal, run) = (nominal.to_string(), String::new());
    HistoryEntry { nominal, last, outcome: outcome.into(), reason, count, run, index }
}

/// Builds the entry of an instant that opened. `ledger` has the run or its summary.
pub fn opened(nominal: &Nominal, run: RunId, ledger: &Ledger) -> HistoryEntry {
    let cancelled = match ledger.summary_of(run).map(|known| known.state) {
        Some(RunState::Cancelled { by: Some(other) }) => made_way(other),
        _ => String::new(),
    };
    let reason = [why_it_opened(ledger, run), cancelled, inside_gap(ledger, run).unwrap_or_default()];
    let reason = reason.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    let (nominal, outcome) = (nominal.to_string(), HistoryOutcome::Fired.into());
    let (run, index) = (run.to_string(), run.index);
    HistoryEntry { last: nominal.clone(), nominal, outcome, reason, count: 1, run, index }
}

/// Builds the entry of an instant that opened a run in a part of the archive that is lost. Perhaps not even the id of the
/// run is known.
pub fn opened_and_lost(nominal: &Nominal, run: Option<RunId>) -> HistoryEntry {
    let (nominal, outcome) = (nominal.to_string(), HistoryOutcome::Fired.into());
    let (index, run) = run.map(|run| (run.index, run.to_string())).unwrap_or_default();
    let reason = "its run is lost with a part of the archive".to_owned();
    HistoryEntry { last: nominal.clone(), nominal, outcome, reason, count: 1, run, index }
}

/// Returns why a run opened and how late, if it is more than that it was due. Only its summary may be left.
pub fn why_it_opened(ledger: &Ledger, id: RunId) -> String {
    let known = ledger.summary_of(id);
    known.map_or_else(String::new, |run| why_opened(run.cause, run.waited_for, run.opened_at, run.due))
}

fn why_opened(cause: OpeningCause, waited: Option<RunId>, opened_at: Time, due: Time) -> String {
    let late_ms = opened_at.since_ms(due).max(0);
    // If a run is late by more than some minutes, seconds are left out.
    let whole_ms = if late_ms < 10 * MINUTE_MS { 1_000 } else { MINUTE_MS };
    let late = in_words(late_ms / whole_ms * whole_ms);
    match (cause, waited) {
        (OpeningCause::Due, None) => String::new(),
        (OpeningCause::Due, Some(former)) => format!("{}, {late} late", waited_for(former)),
        (OpeningCause::CatchUp, None) => format!("missed, and caught up {late} late"),
        (OpeningCause::CatchUp, Some(former)) => format!("missed, and caught up {late} late; {}", waited_for(former)),
        (OpeningCause::Trigger, _) => "triggered".to_owned(),
        (OpeningCause::Backfill, _) => format!("backfilled {late} late"),
        (OpeningCause::Test, _) => "a test email".to_owned(),
        (OpeningCause::Message, _) => "a message".to_owned(),
    }
}

/// Says that a run waited until an earlier one was finished.
pub fn waited_for(former: RunId) -> String {
    format!("overlap: waited for {former}")
}

/// Says how many recipients a run suppressed because they got an email of another run within `min_gap` (P17). Returns
/// `None` if there are none.
pub fn inside_gap(ledger: &Ledger, id: RunId) -> Option<String> {
    let (run, near) = (ledger.run(id)?, ledger.suppressed_by_gap_of(id));
    let gap = in_words(run.policies.min_gap_ms);
    (near > 0).then(|| kept_back(near.into(), run.count.into(), &gap))
}

fn kept_back(near: u64, all: u64, gap: &str) -> String {
    let who = if all == 1 { "its recipient".to_owned() } else { format!("{near} of {all}") };
    let get = if near == 1 { "gets" } else { "get" };
    format!("min_gap: {who} got an email less than {gap} away, and {get} none")
}

/// Returns the due instant that waits until a run is finished (`overlap`). Returns `None` if no instant waits.
pub fn waiting(ledger: &Ledger, id: ScheduleId, schedule: &Schedule) -> Option<HistoryEntry> {
    let run = ledger.waits_for(id)?;
    let nominal = schedule.plan.next.as_ref()?.nominal.to_string();
    let missed = if schedule.plan.missed_before.is_some() { "missed, and " } else { "" };
    Some(HistoryEntry {
        last: nominal.clone(),
        nominal,
        outcome: HistoryOutcome::Waiting.into(),
        reason: format!("overlap: {missed}waits until {run} is finished"),
        ..HistoryEntry::default()
    })
}

fn why(reason: UnopenedReason, policies: &Policies) -> String {
    let words = match reason {
        UnopenedReason::Coalesced => "missed; a later instant stands for it",
        UnopenedReason::NoCatchUp => "missed, and catch_up is none",
        UnopenedReason::TooLate => {
            return format!("late by more than start_within, {}", in_words(policies.start_within_ms));
        }
        UnopenedReason::DoesNotExist => "the local time or date does not exist",
        UnopenedReason::Edited => "missed or waiting when its timing was edited",
        UnopenedReason::Overlap => "overlap: the former run was not finished, and overlap is skip",
        UnopenedReason::Superseded => "overlap: a former run was not finished, and a later instant stands for it",
        UnopenedReason::OpenedBefore => "an instant of that name has opened already",
        UnopenedReason::Restored => "restored from a backup, and the former cluster may have sent it",
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_and_plural_are_worded() {
        let reason = |near, all| kept_back(near, all, "20 h");
        assert_eq!(reason(1, 1), "min_gap: its recipient got an email less than 20 h away, and gets none");
        assert_eq!(reason(1, 3), "min_gap: 1 of 3 got an email less than 20 h away, and gets none");
        assert_eq!(reason(2, 3), "min_gap: 2 of 3 got an email less than 20 h away, and get none");
    }

    #[test]
    fn handbook_has_a_line_for_each_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/schedules.md");
        let page = std::fs::read_to_string(page).expect("the handbook");
        for reason in [
            UnopenedReason::Coalesced,
            UnopenedReason::NoCatchUp,
            UnopenedReason::TooLate,
            UnopenedReason::DoesNotExist,
            UnopenedReason::Edited,
            UnopenedReason::Overlap,
            UnopenedReason::Superseded,
            UnopenedReason::OpenedBefore,
            UnopenedReason::Restored,
        ] {
            let (outcome, words) = (reason.outcome().wire(), why(reason, &Policies::default()));
            let outcome = outcome.as_str_name().trim_start_matches("HISTORY_OUTCOME_").to_lowercase();
            // The limit differs between schedules.
            let words = words.replace("12 h", "…");
            assert!(page.contains(&format!("| `{outcome}` | {words} |")), "`{outcome}`: {words}");
        }
    }
}
