//! History of instants: which opened, and why others did not (P7).

use super::Context;
use crate::command::ExplainedRange;
use crate::model::{InstantOutcome, Ledger, OccurrenceName, OpeningCause, RunId, ScheduleId, distance_ms};

impl Ledger {
    /// Records why instants did not open. A name that has opened keeps its run (P7).
    pub(super) fn record_explained(&mut self, context: &Context, id: ScheduleId, explained: &[ExplainedRange]) {
        for explained in explained {
            let (instants, reason) = (explained.instants.clone(), explained.reason);
            let history = InstantOutcome::Explained { instants, reason, index: context.index };
            let name = (id, explained.first.clone());
            if !self.has_opened(&name) {
                self.history.put(name, history);
            }
        }
    }

    /// Records the run of a name, and removes the name from explained ranges.
    pub(super) fn record_opened(&mut self, name: (ScheduleId, OccurrenceName), run: RunId, cause: OpeningCause) {
        self.split_ranges_at(&name, cause);
        self.history.put(name, InstantOutcome::Opened(run));
    }

    /// True if an occurrence of that name has opened (P7), also if its run is in the archive.
    pub fn has_opened(&self, name: &(ScheduleId, OccurrenceName)) -> bool {
        for (key, row) in self.history.range(..=name.clone()).rev().take_while(|((id, _), _)| *id == name.0) {
            if key == name && row.run().is_some() {
                return true;
            }
            let ahead_ms = distance_ms(&key.1, &name.1);
            if let InstantOutcome::Archived { instants, .. } = row
                && instants.position(&key.1, &name.1).is_some_and(|position| position.is_member)
            {
                return true;
            }
            // Where clocks go back, names of the other fold may stand between a range and a name in it.
            let is_other_fold = ahead_ms.is_none()
                && matches!((&key.1, &name.1), (OccurrenceName::Civil { .. }, OccurrenceName::Civil { .. }));
            if ahead_ms.is_some_and(|ahead_ms| ahead_ms > 0) || ahead_ms.is_none() && !is_other_fold {
                return false;
            }
        }
        false
    }
}
