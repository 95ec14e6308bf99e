//! Output of `schedule history`.

use reveille_proto::admin::v1::{HistoryEntry, HistoryOutcome, Run, RunCause, UnopenedReason};

use super::{Cell, Tone, View, duration_ms, format, table, word};
use crate::cli::instant;
use crate::cli::wording::{self, made_way};

impl View for HistoryEntry {
    const NAME: &'static str = "occurrence";
    const NOUN: &'static str = "instants so far";
    const COLUMNS: &'static [&'static str] = &["OCCURRENCE", "OUTCOME", "COUNT", "RUN", "REASON", "INDEX"];

    fn cells(&self) -> Vec<Cell> {
        let is_range = self.last != self.occurrence && !self.last.is_empty();
        let range = if is_range { format!(" … {}", self.last) } else { String::new() };
        let tone = if self.outcome() == HistoryOutcome::Fired { Tone::Good } else { Tone::Notable };
        vec![
            format!("{}{range}", self.occurrence).into(),
            Cell::toned(word(self.outcome().as_str_name()), tone),
            self.count.to_string().into(),
            Cell::or_dash(self.run.as_str()),
            Cell::or_dash(reason(self).as_str()),
            Cell::toned(self.index.to_string(), Tone::Dim),
        ]
    }

    fn text(&self, paint: bool) -> String {
        table(HistoryEntry::COLUMNS, vec![self.cells()], paint)
    }
}

/// Returns why an instant opened, and what else there is to say about it, or why it did not open. Empty for a run that
/// opened on time.
fn reason(entry: &HistoryEntry) -> String {
    match entry.outcome() {
        HistoryOutcome::Fired => fired(entry),
        HistoryOutcome::Waiting => {
            let missed = if entry.missed { "missed, and " } else { "" };
            format!("overlap: {missed}waits until {} is finished", entry.waited_for)
        }
        _ => why_unopened(entry.reason()).to_owned(),
    }
}

fn fired(entry: &HistoryEntry) -> String {
    if entry.run_lost {
        return "its run is lost with a part of the archive".to_owned();
    }
    let opened = why_opened(entry.cause(), &entry.waited_for, entry.late.as_ref().map(duration_ms).unwrap_or_default());
    let opened = (!opened.is_empty()).then_some(opened);
    let cancelled = (!entry.cancelled_by.is_empty()).then(|| made_way(&entry.cancelled_by));
    let inside_gap = (entry.inside_gap > 0).then(|| {
        let who = format::counted(entry.inside_gap.into(), "recipient");
        format!("min_gap: {who} suppressed, since an email of another run is too near")
    });
    opened.into_iter().chain(cancelled).chain(inside_gap).collect::<Vec<_>>().join("; ")
}

/// Returns why a run opened and how late, if it is more than that it was due.
pub fn why_it_opened(run: &Run) -> String {
    let ms = |time: Option<&prost_types::Timestamp>| instant::from_wire(time?).map(|time| time.as_millisecond());
    let late_ms = ms(run.open_time.as_ref()).zip(ms(run.due_time.as_ref())).map(|(opened, due)| opened - due);
    why_opened(run.cause(), &run.waited_for, late_ms.unwrap_or_default())
}

fn why_opened(cause: RunCause, waited_for: &str, late_ms: i64) -> String {
    // If a run is late by more than some minutes, seconds are left out.
    let whole_ms = if late_ms < 600_000 { 1_000 } else { 60_000 };
    let late = format::whole_units(late_ms.max(0) / whole_ms * whole_ms);
    let waited = (!waited_for.is_empty()).then(|| wording::waited_for(waited_for));
    match (cause, waited) {
        (RunCause::Unspecified | RunCause::Due, None) => String::new(),
        (RunCause::Unspecified | RunCause::Due, Some(waited)) => format!("{waited}, {late} late"),
        (RunCause::CatchUp, None) => format!("missed, and caught up {late} late"),
        (RunCause::CatchUp, Some(waited)) => format!("missed, and caught up {late} late; {waited}"),
        (RunCause::Trigger, _) => "triggered".to_owned(),
        (RunCause::Backfill, _) => format!("backfilled {late} late"),
        (RunCause::Test, _) => "a test email".to_owned(),
        (RunCause::Message, _) => "a message".to_owned(),
    }
}

fn why_unopened(reason: UnopenedReason) -> &'static str {
    match reason {
        UnopenedReason::Coalesced => "missed; a later instant stands for it",
        UnopenedReason::NoCatchUp => "missed, and catch_up is none",
        UnopenedReason::TooLate => "late by more than start_within",
        UnopenedReason::DoesNotExist => "the local time or date does not exist",
        UnopenedReason::Edited => "missed or waiting when its timing was edited",
        UnopenedReason::Overlap => "overlap: the former run was not finished, and overlap is skip",
        UnopenedReason::Superseded => "overlap: a former run was not finished, and a later instant stands for it",
        UnopenedReason::OpenedBefore => "an instant of that name has opened already",
        UnopenedReason::Restored => "restored from a backup, and the former cluster may have sent it",
        UnopenedReason::Unspecified => "for a reason that this version does not know",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handbook_has_a_line_for_each_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/schedules.md");
        let page = std::fs::read_to_string(page).expect("the handbook");
        let reasons: Vec<UnopenedReason> = (1..).map_while(|number| UnopenedReason::try_from(number).ok()).collect();
        assert_eq!(reasons.len(), 9);
        for reason in reasons {
            let words = why_unopened(reason);
            assert!(page.contains(&format!("` | {words} |")), "{words}");
        }
    }

    #[test]
    fn run_that_opened_late_says_how_late_and_why() {
        let entry = HistoryEntry {
            outcome: HistoryOutcome::Fired.into(),
            cause: RunCause::CatchUp.into(),
            late: Some(prost_types::Duration { seconds: 3_630, nanos: 0 }),
            waited_for: "r1.0".into(),
            inside_gap: 1,
            ..HistoryEntry::default()
        };
        let expected = "missed, and caught up 1 h late; overlap: waited for r1.0; min_gap: 1 recipient suppressed, since \
                        an email of another run is too near";
        assert_eq!(reason(&entry), expected);
        let on_time = HistoryEntry { outcome: HistoryOutcome::Fired.into(), ..HistoryEntry::default() };
        assert_eq!(reason(&on_time), "");
    }
}
