//! Output of `audience …`.

use reveille_proto::admin::v1::SealedAudience;

use super::{Cell, Serialize, Tone, View, card};
use crate::cli::{format, instant};

/// An imported audience, with the counts of its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedAudience {
    /// The sealed audience.
    #[serde(serialize_with = "crate::api_json::serialize")]
    pub audience: SealedAudience,
    /// Rows of the file after its header.
    pub rows: u64,
    /// Unusable rows.
    pub refused: u64,
    /// Rows whose address an earlier row has.
    pub duplicates: u32,
    /// Parts that this command sent.
    pub parts_sent: u32,
    /// Parts that the nodes had before.
    pub parts_there: u32,
}

impl View for ImportedAudience {
    fn name(&self) -> String {
        self.audience.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = pairs(&self.audience);
        pairs.extend([
            ("rows read", format::count(self.rows).into()),
            ("refused", Cell::count(self.refused, Tone::Bad)),
            ("duplicates", format::count(self.duplicates.into()).into()),
            ("parts sent", format!("{}, and {} were there", self.parts_sent, self.parts_there).into()),
        ]);
        card(pairs, paint)
    }
}

fn pairs(audience: &SealedAudience) -> Vec<(&'static str, Cell)> {
    let sealed = instant::text(audience.seal_time.as_ref()).unwrap_or_default();
    vec![
        ("audience", audience.name.as_str().into()),
        ("tenant", audience.tenant.as_str().into()),
        ("recipients", format::count(audience.recipients.into()).into()),
        ("columns", Cell::or_dash(audience.columns.join(", ").as_str())),
        ("parts", audience.parts.to_string().into()),
        ("missing here", Cell::count(audience.missing.into(), Tone::Bad)),
        ("seal", audience.seal.as_str().into()),
        ("sealed", format!("{sealed}, log index {}", audience.index).into()),
    ]
}

impl View for SealedAudience {
    fn text(&self, paint: bool) -> String {
        card(pairs(self), paint)
    }

    const NOUN: &'static str = "audiences";
    const COLUMNS: &'static [&'static str] = &["NAME", "RECIPIENTS", "COLUMNS", "PARTS", "MISSING", "SEALED"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            format::count(self.recipients.into()).into(),
            Cell::or_dash(self.columns.join(", ").as_str()),
            self.parts.to_string().into(),
            Cell::count(self.missing.into(), Tone::Bad),
            Cell::at(self.seal_time.as_ref()),
        ]
    }
}
