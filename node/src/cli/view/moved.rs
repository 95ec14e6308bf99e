//! How many recipients a decision moved: `in-doubt resolve`, `dead-letter requeue` and `discard`.

use serde::Serialize;

use super::View;
use crate::cli::human;

/// The answer to a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedView {
    /// The run, as it was named.
    pub run: String,
    /// What was done to them: `resolved`, `requeued`, `discarded`.
    #[serde(skip)]
    pub verb: &'static str,
    /// How many.
    pub moved: u64,
    /// Log index.
    pub index: u64,
}

impl View for MovedView {
    fn name(&self) -> String {
        self.run.clone()
    }

    fn text(&self, _paint: bool) -> String {
        format!("{} {}, log index {}", human::counted(self.moved, "recipient"), self.verb, self.index)
    }
}
