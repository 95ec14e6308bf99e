//! Output of `audit …`.

use reveille_proto::admin::v1::{AuditOutcome, AuditRecord};

use super::{Cell, View, word};

/// Returns what came of the command, such as `12 done, 3 refused`.
fn outcome(record: &AuditRecord) -> String {
    match record.outcome() {
        AuditOutcome::Repeated => format!("repeats {}", record.repeated_index),
        AuditOutcome::Partly => format!("{} done, {} refused", record.done_count, record.refused_count),
        AuditOutcome::Refused => format!("refused: {}", word(record.refusal().as_str_name())),
        done => word(done.as_str_name()),
    }
}

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
            outcome(self).into(),
        ]
    }
}
