//! Output of `audit …`.

use reveille_proto::admin::v1::AuditRecord;
use serde::Serialize;

use super::layout::Cell;
use super::{Row, View};
use crate::format;

impl Row for AuditRecord {
    const NOUN: &'static str = "audit records";
    const COLUMNS: &'static [&'static str] = &["INDEX", "TIME", "CALLER", "TENANT", "COMMAND", "OBJECT", "OUTCOME"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.index.to_string().into(),
            Cell::at(self.time.as_ref()),
            self.caller.as_str().into(),
            Cell::or_dash(self.tenant.as_str()),
            self.command.as_str().into(),
            self.subject.as_str().into(),
            self.outcome.as_str().into(),
        ]
    }
}

/// An exported file whose records are as the cluster wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedView {
    /// Number of records.
    pub records: u64,
    /// Log index of the first one.
    pub first: u64,
    /// Log index of the last one.
    pub last: u64,
    /// True if no record was ever before the first one.
    pub from_the_beginning: bool,
    /// Hash of the last record.
    pub hash: String,
}

impl View for VerifiedView {
    fn name(&self) -> String {
        self.hash.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let VerifiedView { records, first, last, from_the_beginning, hash } = self;
        let records = format::counted(*records, "record");
        let before = if *from_the_beginning { "the first ones of the cluster" } else { "others were before them" };
        format!("{records} from index {first} to {last} are unchanged; {before}; the last hash is {hash}")
    }
}
