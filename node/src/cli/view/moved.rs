//! How many recipients a decision moved: `in-doubt resolve`, `dead-letter requeue` and `discard`.

use serde::Serialize;

use super::View;
use super::doubt::GroupView;
use crate::format;

/// The answer to a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedView {
    /// The run, as it was named; none for those of all runs.
    pub run: Option<String>,
    /// What was done to them: `resolved`, `requeued`, `discarded`.
    #[serde(skip)]
    pub verb: &'static str,
    /// How many; of a dry run, how many it would be.
    pub moved: u64,
    /// How many of the requeued recipients were left, because they got an email of another run less than
    /// the min gap away.
    pub inside_gap: u64,
    /// Log index of the last entry that did it; none where there was none.
    pub index: Option<u64>,
    /// Were they only counted?
    pub dry_run: bool,
    /// Of doubts that were only counted: by cause and node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupView>>,
}

impl View for MovedView {
    fn name(&self) -> String {
        self.run.clone().unwrap_or_default()
    }

    fn text(&self, _paint: bool) -> String {
        let counted = format::counted(self.moved, "recipient");
        match (self.dry_run, self.index) {
            (true, _) => format!("{counted} would be {}", self.verb),
            (false, Some(index)) => format!("{counted} {}, log index {index}", self.verb),
            (false, None) => format!("{counted} {}", self.verb),
        }
    }
}
