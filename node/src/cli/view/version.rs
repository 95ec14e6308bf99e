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
}

impl View for VersionView {
    fn name(&self) -> String {
        self.version.to_owned()
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("reveille", self.version.into()),
            ("time zones", self.tzdb.into()),
            ("ledger level", self.level.to_string().into()),
        ];
        card(pairs, paint)
    }
}
