//! Output of `schedule backfill`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::instant::InstantView;
use super::{View, some};
use crate::cli::instant::text;
use crate::format;

/// Occurrences that a backfill opened, or would open.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackfillView {
    schedule: String,
    opened: u32,
    opened_before: u32,
    first: Option<InstantView>,
    last: Option<InstantView>,
    first_run: Option<String>,
    last_run: Option<String>,
    rest: Option<String>,
    inside_gap: u32,
}

impl BackfillView {
    /// Creates the view for this schedule.
    pub fn new(schedule: String, answer: v1::BackfillScheduleResponse) -> BackfillView {
        BackfillView {
            schedule,
            opened: answer.opened,
            opened_before: answer.opened_before,
            first: answer.first.map(InstantView::from),
            last: answer.last.map(InstantView::from),
            first_run: some(answer.first_run),
            last_run: some(answer.last_run),
            rest: text(answer.rest.as_ref()),
            inside_gap: answer.inside_gap,
        }
    }
}

impl View for BackfillView {
    fn name(&self) -> String {
        self.schedule.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let mut said = format::counted(self.opened.into(), "occurrence");
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            said = format!("{said}, {} to {}", first.local, last.local);
        }
        let said = match (&self.first_run, &self.last_run) {
            (Some(first), Some(last)) => format!("{said}, opened as {first} to {last}"),
            _ => format!("{said}; {} had opened before", self.opened_before),
        };
        let said = match self.inside_gap {
            0 => said,
            inside => {
                format!(
                    "{said}; {} inside the min gap, where no recipient would get an email",
                    format::count(inside.into())
                )
            }
        };
        match &self.rest {
            Some(rest) => format!("{said}; what comes from {rest} on is not among them"),
            None => said,
        }
    }
}
