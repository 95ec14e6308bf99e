//! Output of `cluster archive-loss`.

use reveille_proto::admin::v1::{ArchiveContent, LostPart};

use super::{Cell, Tone, View, format};

impl View for LostPart {
    const NAME: &'static str = "part";
    const NOUN: &'static str = "lost parts of the archive";
    const COLUMNS: &'static [&'static str] = &["PART", "CONTENT", "FROM", "TO", "LOST", "ACCEPTED"];

    fn cells(&self) -> Vec<Cell> {
        let content = match self.content() {
            ArchiveContent::AuditRecords => "audit records".to_owned(),
            ArchiveContent::Events => "events".to_owned(),
            _ => format::counted(self.runs.into(), "run"),
        };
        let lost = match (self.details, self.summaries) {
            (true, false) => "results of recipients",
            (false, true) if self.content() == ArchiveContent::Runs => "counts, after the retention",
            _ => "all",
        };
        let accepted = match &self.accept_time {
            Some(at) => Cell::at(Some(at)),
            None => Cell::toned("no", Tone::Bad),
        };
        vec![
            self.part.as_str().into(),
            content.into(),
            Cell::at(self.from_time.as_ref()),
            Cell::at(self.to_time.as_ref()),
            lost.into(),
            accepted,
        ]
    }
}
