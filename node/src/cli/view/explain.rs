//! Output of `explain`.

use reveille_proto::admin::v1;

use super::View;
use super::fields::view;
use super::layout::{Cell, Tone, table};
use crate::cli::word::word;

view! {
    /// The history of one recipient in one run.
    pub struct ExplanationView of v1::ExplainResponse as story {
        run: String,
        recipient: String,
        number: u32,
        state: String = word("RECIPIENT_STATE_", story.state().as_str_name()),
        events: Vec<EventView>,
    }
}

view! {
    /// One event of it.
    pub struct EventView of v1::ExplainedEvent as event {
        index: u64,
        instant: Option<String>,
        what: String,
        node: Option<String>,
        fence: Option<String>,
        detail: Option<String>,
    }
}

impl View for ExplanationView {
    fn name(&self) -> String {
        self.recipient.clone()
    }

    fn text(&self, paint: bool) -> String {
        let head = format!("{} #{} in {}: {}", self.recipient, self.number, self.run, self.state.replace('_', " "));
        let columns = ["INDEX", "INSTANT", "WHAT", "NODE", "FENCE", "DETAIL"];
        let row = |event: &EventView| {
            vec![
                event.index.to_string().into(),
                Cell::or_dash(event.instant.as_deref()),
                event.what.as_str().into(),
                Cell::or_dash(event.node.as_deref()),
                Cell::toned(event.fence.as_deref().unwrap_or("-"), Tone::Dim),
                Cell::or_dash(event.detail.as_deref()),
            ]
        };
        format!("{head}\n\n{}", table(&columns, self.events.iter().map(row).collect(), paint))
    }
}
