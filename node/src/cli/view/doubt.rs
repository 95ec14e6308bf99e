//! Output of `in-doubt …`.

use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::mail::MailView;
use super::{Row, View};

view! {
    /// An email in doubt.
    pub struct DoubtView of v1::Doubt as doubt {
        #[serde(flatten)]
        mail: MailView = MailView { run: doubt.run, recipient: doubt.recipient, number: doubt.number },
        fence: String,
        node: String,
        cause: String,
        since: Option<String>,
        claimed_at: Option<String>,
        evidence: String,
        next: Option<String>,
        message_id: Option<String>,
    }
}

view! {
    /// Emails in doubt with the same cause and node.
    pub struct GroupView of v1::DoubtGroup as group {
        cause: String,
        node: String,
        count: u64,
    }
}

impl View for DoubtView {
    fn name(&self) -> String {
        self.mail.name()
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = self.mail.pairs();
        pairs.extend([
            ("since", Cell::or_dash(self.since.as_deref())),
            ("claimed", Cell::or_dash(self.claimed_at.as_deref())),
            ("cause", Cell::toned(self.cause.as_str(), Tone::Notable)),
            ("node", self.node.as_str().into()),
            ("fence", self.fence.as_str().into()),
            ("evidence", self.evidence.as_str().into()),
            ("next", Cell::or_dash(self.next.as_deref())),
        ]);
        card(pairs, paint)
    }
}

impl Row for DoubtView {
    const NOUN: &'static str = "emails in doubt";
    const COLUMNS: &'static [&'static str] = &["RUN", "RECIPIENT", "#", "SINCE", "NODE", "CAUSE"];

    fn cells(&self) -> Vec<Cell> {
        let mut cells = self.mail.cells();
        cells.extend([
            Cell::or_dash(self.since.as_deref()),
            self.node.as_str().into(),
            Cell::toned(self.cause.as_str(), Tone::Notable),
        ]);
        cells
    }
}
