//! What `version` prints.

use serde::Serialize;

use super::View;
use super::sheet::card;

/// This binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionView {
    /// Of the binary.
    pub version: &'static str,
    /// Of its time zone database.
    pub tzdb: &'static str,
    /// The ledger level that it applies.
    pub level: u32,
    /// Places at which a variable can make it die: of a build for tests only.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub crash_points: &'static [&'static str],
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
