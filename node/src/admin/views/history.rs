//! What became of an instant, in words.

use reveille_ledger::command::{Cause, Reason};
use reveille_ledger::ids::{Nominal, RunId, ScheduleId};
use reveille_ledger::policy::Policies;
use reveille_ledger::{History, Ledger, Schedule};
use reveille_proto::admin::v1::{HistoryEntry, HistoryOutcome};

use crate::admin::validate::in_words;

/// The entries of one row of a schedule's history: one, or two where a backfill opened the first of a range.
pub fn history(ledger: &Ledger, policies: &Policies, nominal: &Nominal, row: &History) -> Vec<HistoryEntry> {
    match row {
        History::Opened(run) => vec![opened(nominal, *run, ledger)],
        History::Explained { last, count, reason, index } => {
            vec![explained(nominal, (last, *count, *reason, *index), policies)]
        }
        History::Backfilled { run, last, count, reason, index } => {
            let rest = explained(nominal, (last, count.saturating_sub(1), *reason, *index), policies);
            let reason = format!("{}; the first of them was backfilled", rest.reason);
            vec![opened(nominal, *run, ledger), HistoryEntry { reason, ..rest }]
        }
    }
}

fn opened(nominal: &Nominal, run: RunId, ledger: &Ledger) -> HistoryEntry {
    let kept = ledger.page_of(run).and_then(|(_, page, place)| {
        let known = page.runs.get(place)?;
        Some((page.opened_at, known.due, known.cause))
    });
    let summary = || ledger.summaries().get(&run).map(|left| (left.opened_at, left.due, left.cause));
    let why = kept.or_else(summary).map_or_else(String::new, |(opened_at, due, cause)| {
        let late_ms = opened_at.since_ms(due).max(0) / 1_000 * 1_000;
        match cause {
            Cause::Due => String::new(),
            Cause::CatchUp => format!("missed, and caught up {} late", in_words(late_ms)),
            Cause::Trigger => "triggered".to_owned(),
            Cause::Backfill => format!("backfilled {} late", in_words(late_ms)),
            Cause::Test => "a test mail".to_owned(),
        }
    });
    let reason = [why, inside_gap(ledger, run).unwrap_or_default()];
    let reason = reason.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    let (nominal, outcome) = (nominal.to_string(), HistoryOutcome::Fired.into());
    let (run, index) = (run.to_string(), run.index);
    HistoryEntry { last: nominal.clone(), nominal, outcome, reason, count: 1, run, index }
}

/// P17: whom a run suppressed since they got a mail of another one, in words; none where nobody.
pub fn inside_gap(ledger: &Ledger, id: RunId) -> Option<String> {
    let (run, near) = (ledger.run(id)?, ledger.too_near_of(id));
    let gap = in_words(run.policies.min_gap_ms);
    (near > 0).then(|| format!("min_gap: {near} of {} got a mail less than {gap} away, and get none", run.count))
}

/// The instant that is due and waits for a run to be finished, if there is one (`overlap`).
pub fn waiting(ledger: &Ledger, id: ScheduleId, schedule: &Schedule) -> Option<HistoryEntry> {
    let run = ledger.waits_for(id)?;
    let nominal = schedule.plan.next.as_ref()?.nominal.to_string();
    Some(HistoryEntry {
        last: nominal.clone(),
        nominal,
        outcome: HistoryOutcome::Waiting.into(),
        reason: format!("overlap: waits until {run} is finished"),
        ..HistoryEntry::default()
    })
}

fn explained(
    nominal: &Nominal,
    (last, count, reason, index): (&Nominal, u32, Reason, u64),
    policies: &Policies,
) -> HistoryEntry {
    let (outcome, reason) = why(reason, policies);
    let (nominal, last) = (nominal.to_string(), last.to_string());
    HistoryEntry { nominal, last, outcome: outcome.into(), reason, count, run: String::new(), index }
}

fn why(reason: Reason, policies: &Policies) -> (HistoryOutcome, String) {
    match reason {
        Reason::Coalesced => (HistoryOutcome::Coalesced, "missed; a later missed instant stands for it".to_owned()),
        Reason::NoCatchUp => (HistoryOutcome::Skipped, "missed, and catch_up is none".to_owned()),
        Reason::TooLate => {
            let bound = in_words(policies.start_within_ms);
            (HistoryOutcome::Expired, format!("missed by more than start_within, {bound}"))
        }
        Reason::DoesNotExist => (HistoryOutcome::Skipped, "the local time or date does not exist".to_owned()),
        Reason::Edited => (HistoryOutcome::Skipped, "missed or waiting when its timing was edited".to_owned()),
        Reason::Overlap => {
            (HistoryOutcome::Skipped, "overlap: the former run was not finished, and overlap is skip".to_owned())
        }
        Reason::Superseded => (
            HistoryOutcome::Coalesced,
            "overlap: a former run was not finished, and a later instant stands for it".to_owned(),
        ),
        Reason::OpenedBefore => (HistoryOutcome::Refused, "an instant of that name has opened already".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handbook_has_a_line_for_each_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
        let page = std::fs::read_to_string(page).expect("the handbook");
        for reason in [
            Reason::Coalesced,
            Reason::NoCatchUp,
            Reason::TooLate,
            Reason::DoesNotExist,
            Reason::Edited,
            Reason::Overlap,
            Reason::Superseded,
            Reason::OpenedBefore,
        ] {
            let (outcome, words) = why(reason, &Policies::default());
            let outcome = outcome.as_str_name().trim_start_matches("HISTORY_OUTCOME_").to_lowercase();
            // The bound is the schedule's own.
            let words = words.replace("12 h", "…");
            assert!(page.contains(&format!("| `{outcome}` | {words} |")), "`{outcome}`: {words}");
        }
    }
}
