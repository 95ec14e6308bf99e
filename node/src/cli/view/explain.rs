//! Output of `explain`.

use reveille_proto::admin::v1::{ExplainResponse, ExplainedEvent, ExplainedEventKind};

use super::{Cell, Tone, View, table, word};
use crate::cli::wording;

/// Returns the kind of an event in one word or a few: `opened`, `claimed`, `in doubt`.
pub fn words(kind: ExplainedEventKind) -> String {
    word(kind.as_str_name()).replace('_', " ")
}

impl View for ExplainResponse {
    const NAME: &'static str = "recipient";

    fn text(&self, paint: bool) -> String {
        let state = word(self.state().as_str_name()).replace('_', " ");
        let head = format!("{} #{} in {}: {state}", self.recipient, self.number, self.run);
        let columns = ["INDEX", "INSTANT", "WHAT", "NODE", "FENCE", "DETAIL"];
        let row = |event: &ExplainedEvent| {
            let fence = if event.fence.is_empty() { "-" } else { &event.fence };
            vec![
                event.index.to_string().into(),
                Cell::at(event.time.as_ref()),
                words(event.kind()).into(),
                Cell::or_dash(event.node.as_str()),
                Cell::toned(fence, Tone::Dim),
                Cell::or_dash(wording::explained(event).as_str()),
            ]
        };
        format!("{head}\n\n{}", table(&columns, self.events.iter().map(row).collect(), paint))
    }
}
