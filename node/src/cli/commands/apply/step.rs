//! The change that applying one document would make.

use crate::cli::manifest::difference::Change;
use crate::cli::view::apply::Outcome;

/// The planned step, with the changed fields and notes for the user.
pub struct Plan {
    pub(super) step: Step,
    pub changes: Vec<Change>,
    pub notes: Vec<String>,
}

pub(super) enum Step {
    Nothing,
    Create,
    /// Update of an object with this etag. Only schedules have an etag.
    Update(String),
}

impl Plan {
    /// Returns the document's outcome: done if `made` is set, otherwise intended.
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
