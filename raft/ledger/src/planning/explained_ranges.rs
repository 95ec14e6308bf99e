//! Instants that do not open, and their reasons.

use crate::command::ExplainedRange;
use crate::model::instant_range::distance_ms;
use crate::model::{InstantRange, OccurrenceName, OpeningCause, Time, UnopenedReason};

/// An instant, and whether it opens (P16).
pub(super) struct JudgedInstant {
    pub occurrence: OccurrenceName,
    pub due: Time,
    /// When it opens, with its jitter.
    pub opens: Time,
    pub verdict: Result<OpeningCause, UnopenedReason>,
}

/// Collects instants that do not open into ranges. So an outage of hours takes a few bytes.
#[derive(Default)]
pub(super) struct ExplainedRanges {
    pub ranges: Vec<ExplainedRange>,
    /// The last instant of the last range; `None` if the next instant begins a new range.
    last: Option<OccurrenceName>,
}

impl ExplainedRanges {
    /// Adds one explained instant. It extends the last range if it follows its last instant and has the same reason;
    /// otherwise it begins a new range. Names that go back, when the clocks go back, begin a new range.
    pub fn add(&mut self, occurrence: OccurrenceName, reason: UnopenedReason) {
        let step_ms = self.last.as_ref().and_then(|last| distance_ms(last, &occurrence)).filter(|ms| *ms > 0);
        match (self.ranges.last_mut(), step_ms) {
            (Some(range), Some(step_ms)) if range.reason == reason => range.instants.extend(step_ms, 1),
            _ => self.ranges.push(ExplainedRange {
                first: occurrence.clone(),
                instants: InstantRange::default(),
                reason,
            }),
        }
        self.last = Some(occurrence);
    }

    pub fn end_range(&mut self) {
        self.last = None;
    }
}
