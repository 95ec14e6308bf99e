//! What applying one document would change.

use crate::cli::manifest::difference::Change;
use crate::cli::view::apply::Outcome;

/// What would change.
pub struct Plan {
    pub(super) step: Step,
    pub changes: Vec<Change>,
    pub notes: Vec<String>,
}

pub(super) enum Step {
    Nothing,
    Create,
    /// Made on this etag; only schedules have one.
    Update(String),
}

impl Plan {
    /// What became of it, or would.
    pub fn outcome(&self, made: bool) -> Outcome {
        match (&self.step, made) {
            (Step::Nothing, _) => Outcome::Unchanged,
            (Step::Create, true) => Outcome::Created,
            (Step::Create, false) => Outcome::WouldCreate,
            (Step::Update(_), true) => Outcome::Updated,
            (Step::Update(_), false) => Outcome::WouldUpdate,
        }
    }
}
