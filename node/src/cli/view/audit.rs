//! Output of `audit …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::fields::view;
use super::layout::{Cell, card};
use super::{Row, View};
use crate::format;

view! {
    /// An audit record.
    pub struct AuditView of v1::AuditRecord as audited {
        index: u64,
        time: Option<String>,
        caller: String,
        /// Null if the call was about several tenants, or none.
        tenant: Option<String>,
        command: String,
        object: String,
        request_id: Option<String>,
        reason: Option<String>,
        outcome: String,
        /// Hash of the record before this one.
        previous: String,
        /// Hash of the bytes in `record`.
        hash: String,
        /// The bytes that are hashed, as hexadecimal digits.
        record: String = audited.record.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

impl View for AuditView {
    fn name(&self) -> String {
        self.index.to_string()
    }

    fn text(&self, paint: bool) -> String {
        let names = AuditView::COLUMNS.iter().map(|column| column.to_lowercase()).collect::<Vec<_>>();
        card(names.iter().map(String::as_str).zip(self.cells()).collect(), paint)
    }
}

impl Row for AuditView {
    const NOUN: &'static str = "audit records";
    const COLUMNS: &'static [&'static str] = &["INDEX", "TIME", "CALLER", "TENANT", "COMMAND", "OBJECT", "OUTCOME"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name().as_str().into(),
            Cell::or_dash(self.time.as_deref()),
            self.caller.as_str().into(),
            Cell::or_dash(self.tenant.as_deref()),
            self.command.as_str().into(),
            self.object.as_str().into(),
            self.outcome.as_str().into(),
        ]
    }
}

/// An exported file whose records are as the cluster wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
