//! Output of `schedule history`.

use reveille_proto::admin::v1::{HistoryEntry, HistoryOutcome};

use super::{Cell, Tone, View, table, word};

impl View for HistoryEntry {
    const NAME: &'static str = "nominal";
    const NOUN: &'static str = "instants so far";
    const COLUMNS: &'static [&'static str] = &["NOMINAL", "OUTCOME", "COUNT", "RUN", "REASON", "INDEX"];

    fn cells(&self) -> Vec<Cell> {
        let is_range = self.last != self.nominal && !self.last.is_empty();
        let range = if is_range { format!(" … {}", self.last) } else { String::new() };
        let tone = if self.outcome() == HistoryOutcome::Fired { Tone::Good } else { Tone::Notable };
        vec![
            format!("{}{range}", self.nominal).into(),
            Cell::toned(word(self.outcome().as_str_name()), tone),
            self.count.to_string().into(),
            Cell::or_dash(self.run.as_str()),
            Cell::or_dash(self.reason.as_str()),
            Cell::toned(self.index.to_string(), Tone::Dim),
        ]
    }

    fn text(&self, paint: bool) -> String {
        table(HistoryEntry::COLUMNS, vec![self.cells()], paint)
    }
}
