//! Output of `in-doubt …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::mail::MailView;
use super::sheet::{Cell, Tone, card};
use super::{Row, View, some};
use crate::cli::instant::text;

/// An email in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoubtView {
    #[serde(flatten)]
    mail: MailView,
    fence: String,
    node: String,
    cause: String,
    since: Option<String>,
    claimed_at: Option<String>,
    evidence: String,
    next: Option<String>,
}

/// Emails in doubt with the same cause and node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    cause: String,
    node: String,
    count: u64,
}

impl From<v1::DoubtGroup> for GroupView {
    fn from(group: v1::DoubtGroup) -> GroupView {
        GroupView { cause: group.cause, node: group.node, count: group.count }
    }
}

impl From<v1::Doubt> for DoubtView {
    fn from(doubt: v1::Doubt) -> DoubtView {
        DoubtView {
            since: text(doubt.since.as_ref()),
            claimed_at: text(doubt.claimed_at.as_ref()),
            mail: MailView { run: doubt.run, recipient: doubt.recipient, number: doubt.number },
            fence: doubt.fence,
            node: doubt.node,
            cause: doubt.cause,
            evidence: doubt.evidence,
            next: some(doubt.next),
        }
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
