//! Output of `audit …`.

use reveille_proto::admin::v1::AuditRecord;

use super::{Cell, View};

impl View for AuditRecord {
    const NAME: &'static str = "index";
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
