//! What became of an instant, in words.

use reveille_ledger::command::{Cause, Reason};
use reveille_ledger::ids::Nominal;
use reveille_ledger::policy::Policies;
use reveille_ledger::{History, Ledger};
use reveille_proto::admin::v1::{HistoryEntry, HistoryOutcome};

use crate::admin::validate::in_words;

/// One row of a schedule's history.
pub fn history(ledger: &Ledger, policies: &Policies, nominal: &Nominal, row: &History) -> HistoryEntry {
    match row {
        History::Opened(run) => {
            let (_, page, place) = match ledger.page_of(*run) {
                Some(found) => found,
                // A run that was pruned keeps its name.
                None => return opened(nominal, run.to_string(), String::new(), run.index),
            };
            let reason = page.runs.get(place).map_or_else(String::new, |known| {
                let late_ms = page.opened_at.since_ms(known.due).max(0);
                match known.cause {
                    Cause::Due => String::new(),
                    Cause::CatchUp => format!("missed, and caught up {} late", in_words(late_ms / 1_000 * 1_000)),
                    Cause::Trigger => "triggered".to_owned(),
                }
            });
            opened(nominal, run.to_string(), reason, run.index)
        }
        History::Explained { last, count, reason, index } => {
            let (outcome, reason) = explained(*reason, policies);
            HistoryEntry {
                nominal: nominal.to_string(),
                last: last.to_string(),
                outcome: outcome.into(),
                reason,
                count: *count,
                run: String::new(),
                index: *index,
            }
        }
    }
}

fn opened(nominal: &Nominal, run: String, reason: String, index: u64) -> HistoryEntry {
    let (nominal, outcome) = (nominal.to_string(), HistoryOutcome::Fired.into());
    HistoryEntry { last: nominal.clone(), nominal, outcome, reason, count: 1, run, index }
}

fn explained(reason: Reason, policies: &Policies) -> (HistoryOutcome, String) {
    match reason {
        Reason::Coalesced => (HistoryOutcome::Coalesced, "missed; a later missed instant stands for it".to_owned()),
        Reason::NoCatchUp => (HistoryOutcome::Skipped, "missed, and catch_up is none".to_owned()),
        Reason::TooLate => {
            let bound = in_words(policies.start_within_ms);
            (HistoryOutcome::Expired, format!("missed by more than start_within, {bound}"))
        }
        Reason::DoesNotExist => (HistoryOutcome::Skipped, "the local time or date does not exist".to_owned()),
        Reason::OpenedBefore => (HistoryOutcome::Refused, "an instant of that name has opened already".to_owned()),
    }
}
