//! Output of `audience …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::{Row, View};
use crate::cli::{format, instant};

view! {
    /// A sealed audience.
    pub struct AudienceView of v1::SealedAudience as audience {
        tenant: String,
        name: String,
        recipients: u32,
        columns: Vec<String>,
        parts: u32,
        /// Parts that the answering node lacks now.
        lacking: u32,
        seal: String,
        index: u64,
        sealed_at: String = instant::text(audience.sealed_at.as_ref()).unwrap_or_default(),
    }
}

/// An imported audience, with the counts of its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportView {
    #[serde(flatten)]
    audience: AudienceView,
    /// Rows of the file after its header.
    rows: u64,
    /// Unusable rows.
    refused: u64,
    /// Rows whose address an earlier row has.
    duplicates: u32,
    /// Parts that this command sent.
    parts_sent: u32,
    /// Parts that the nodes had before.
    parts_there: u32,
}

impl ImportView {
    /// Creates the view from the answer and the counts of the import.
    pub fn new(
        audience: v1::SealedAudience,
        rows: u64,
        refused: u64,
        duplicates: u32,
        (parts_sent, parts_there): (u32, u32),
    ) -> ImportView {
        ImportView { audience: audience.into(), rows, refused, duplicates, parts_sent, parts_there }
    }
}

impl View for ImportView {
    fn name(&self) -> String {
        self.audience.name()
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = self.audience.pairs();
        pairs.push(("rows read", format::count(self.rows).into()));
        pairs.push(("refused", Cell::count(self.refused, Tone::Bad)));
        pairs.push(("duplicates", format::count(self.duplicates.into()).into()));
        pairs.push(("parts sent", format!("{}, and {} were there", self.parts_sent, self.parts_there).into()));
        card(pairs, paint)
    }
}

impl AudienceView {
    fn pairs(&self) -> Vec<(&'static str, Cell)> {
        let columns = self.columns.join(", ");
        let columns = Some(columns.as_str()).filter(|columns| !columns.is_empty());
        vec![
            ("audience", self.name.as_str().into()),
            ("tenant", self.tenant.as_str().into()),
            ("recipients", format::count(self.recipients.into()).into()),
            ("columns", Cell::or_dash(columns)),
            ("parts", self.parts.to_string().into()),
            ("lacking here", self.lacks()),
            ("seal", self.seal.as_str().into()),
            ("sealed", format!("{}, log index {}", self.sealed_at, self.index).into()),
        ]
    }

    fn lacks(&self) -> Cell {
        Cell::count(self.lacking.into(), Tone::Bad)
    }
}

impl View for AudienceView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        card(self.pairs(), paint)
    }
}

impl Row for AudienceView {
    const NOUN: &'static str = "audiences";
    const COLUMNS: &'static [&'static str] = &["NAME", "RECIPIENTS", "COLUMNS", "PARTS", "LACKING", "SEALED"];

    fn cells(&self) -> Vec<Cell> {
        let columns = self.columns.join(", ");
        vec![
            self.name.as_str().into(),
            format::count(self.recipients.into()).into(),
            Cell::or_dash(Some(columns.as_str()).filter(|columns| !columns.is_empty())),
            self.parts.to_string().into(),
            self.lacks(),
            self.sealed_at.as_str().into(),
        ]
    }
}
