//! Output of `schedule history`.

use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, Tone, table};
use super::{Row, View};
use crate::cli::word::word;

view! {
    /// Outcome of an instant, or of a range of instants.
    pub struct HistoryView of v1::HistoryEntry as entry {
        nominal: String,
        last: String,
        outcome: String = word("HISTORY_OUTCOME_", entry.outcome().as_str_name()),
        reason: Option<String>,
        count: u32,
        run: Option<String>,
        index: u64,
    }
}

impl View for HistoryView {
    fn name(&self) -> String {
        self.nominal.clone()
    }

    fn text(&self, paint: bool) -> String {
        table(HistoryView::COLUMNS, vec![self.cells()], paint)
    }
}

impl Row for HistoryView {
    const NOUN: &'static str = "instants so far";
    const COLUMNS: &'static [&'static str] = &["NOMINAL", "OUTCOME", "COUNT", "RUN", "REASON", "INDEX"];

    fn cells(&self) -> Vec<Cell> {
        let range = if self.last == self.nominal || self.last.is_empty() {
            String::new()
        } else {
            format!(" … {}", self.last)
        };
        let tone = if self.outcome == "fired" { Tone::Good } else { Tone::Notable };
        vec![
            format!("{}{range}", self.nominal).into(),
            Cell::toned(self.outcome.as_str(), tone),
            self.count.to_string().into(),
            Cell::or_dash(self.run.as_deref()),
            Cell::or_dash(self.reason.as_deref()),
            Cell::toned(self.index.to_string(), Tone::Dim),
        ]
    }
}
