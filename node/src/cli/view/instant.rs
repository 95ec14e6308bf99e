//! Instants at which a schedule fires, for `schedule create`, `show`, `resume` and `preview`.

use jiff::Timestamp;
use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, Tone, table};
use super::{Row, View};
use crate::cli::instant::text;
use crate::format;

view! {
    /// One instant at which a schedule fires.
    pub struct InstantView of v1::Instant as at {
        /// Instant in UTC.
        pub instant: String = text(at.instant.as_ref()).unwrap_or_default(),
        /// Local time with its offset.
        pub local: String,
        /// Effect of a clock change on the instant; empty without one.
        pub remark: String,
        /// When the run opens; null for a schedule without a jitter.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub opens: Option<String>,
    }
}

impl InstantView {
    /// Returns the remark for a table: the opening time, and the effect of a clock change.
    pub fn remarks(&self) -> String {
        match (&self.opens, self.remark.as_str()) {
            (None, remark) => remark.to_owned(),
            (Some(opens), "") => format!("opens {opens}"),
            (Some(opens), remark) => format!("opens {opens}; {remark}"),
        }
    }
}

/// Returns a table of instants with local time, distance from `now`, and remarks.
pub fn instants(instants: &[InstantView], now: Timestamp, paint: bool) -> String {
    let row = |one: &InstantView| {
        let distance = one.instant.parse().map(|at| format::distance(at, now)).unwrap_or_default();
        vec![
            one.local.as_str().into(),
            Cell::toned(one.instant.as_str(), Tone::Dim),
            Cell::toned(distance, Tone::Dim),
            Cell::toned(one.remarks(), Tone::Notable),
        ]
    };
    table(&["LOCAL", "INSTANT", "DISTANCE", "REMARK"], instants.iter().map(row).collect(), paint)
}

impl View for InstantView {
    fn name(&self) -> String {
        self.instant.clone()
    }

    fn text(&self, paint: bool) -> String {
        instants(std::slice::from_ref(self), Timestamp::now(), paint)
    }
}

impl Row for InstantView {
    const NOUN: &'static str = "instants";
    const COLUMNS: &'static [&'static str] = &["LOCAL", "INSTANT", "REMARK"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.local.as_str().into(),
            Cell::toned(self.instant.as_str(), Tone::Dim),
            Cell::toned(self.remarks(), Tone::Notable),
        ]
    }
}
