//! Output of `version`.

use serde::Serialize;

use super::View;
use super::layout::card;

/// Versions of this binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionView {
    /// Release of the binary.
    pub version: &'static str,
    /// Release of its time zone database.
    pub tzdb: &'static str,
    /// The highest ledger level that it can apply.
    pub level: u32,
    /// Points at which an environment variable can crash the process; only in test builds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crash_points: Vec<&'static str>,
}

impl View for VersionView {
    fn name(&self) -> String {
        self.version.to_owned()
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = vec![
            ("reveille", self.version.into()),
            ("time zones", self.tzdb.into()),
            ("ledger level", self.level.to_string().into()),
        ];
        if !self.crash_points.is_empty() {
            pairs.push(("crash points", format!("{}; for tests alone", self.crash_points.len()).into()));
        }
        card(pairs, paint)
    }
}
