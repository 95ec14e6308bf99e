//! Output of `explain`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::sheet::{Cell, Tone, table};
use super::{View, some};
use crate::cli::instant::text;
use crate::cli::word::word;

/// The history of one recipient in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoryView {
    run: String,
    recipient: String,
    number: u32,
    state: String,
    events: Vec<EventView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct EventView {
    index: u64,
    instant: Option<String>,
    what: String,
    node: Option<String>,
    fence: Option<String>,
    detail: Option<String>,
}

impl From<v1::ExplainResponse> for StoryView {
    fn from(story: v1::ExplainResponse) -> StoryView {
        StoryView {
            state: word("RECIPIENT_STATE_", story.state().as_str_name()),
            run: story.run,
            recipient: story.recipient,
            number: story.number,
            events: story.events.into_iter().map(EventView::from).collect(),
        }
    }
}

impl From<v1::Event> for EventView {
    fn from(event: v1::Event) -> EventView {
        EventView {
            index: event.index,
            instant: text(event.instant.as_ref()),
            what: event.what,
            node: some(event.node),
            fence: some(event.fence),
            detail: some(event.detail),
        }
    }
}

impl View for StoryView {
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
