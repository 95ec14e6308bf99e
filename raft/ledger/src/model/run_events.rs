//! Events of a run that no claim caused: a pause, a cancel, the deadline, a requeue. They are kept as long as the
//! details of the run, so `explain` works after the log was purged.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::model::{Bitmap, Ledger, PauseReason, RunId, Time};

/// What was ruled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunEventKind {
    /// The run was paused, for this reason.
    Paused(PauseReason),
    /// The run was let go on.
    Resumed,
    /// Pending, and cancelled.
    Cancelled,
    /// Pending and never attempted when the deadline passed.
    Expired,
    /// Pending after an attempt when the deadline passed: dead.
    Died,
    /// Dead, and to be sent again; by this pool from then on, if the operator named one.
    Requeued(Option<String>),
    /// Dead, and taken off the list.
    Discarded,
    /// Dead by an answer that is not believed any more (P6): to be sent again.
    DeathUndone,
    /// Pending, and suppressed: too near to a mail of another run (P17).
    SuppressedByGap,
    /// The run's canary went well: the others are sent (P6).
    CanaryPassed,
}

/// A run event, under the run, the log index of its entry and a chunk: a row holds one chunk of 65,536 recipients at most,
/// so its size does not grow with the audience.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Ledger time of the entry.
    pub at: Time,
    /// What.
    pub what: RunEventKind,
    /// The recipients, as slots of the chunk in the row's key; none: all of the run.
    pub slots: Option<Bitmap>,
}

/// Where run events are kept. A run event over the whole run is kept under chunk 0.
pub type RunEventKey = (RunId, u64, u32);

/// The keys of all run events of a run.
pub(crate) fn keys_of(run: RunId) -> RangeInclusive<RunEventKey> {
    (run, 0, 0)..=(run, u64::MAX, u32::MAX)
}

impl RunEvent {
    /// Does it, of this chunk, concern this slot of that one?
    pub fn concerns(&self, chunk: u32, slot: (u32, u16)) -> bool {
        self.slots.as_ref().is_none_or(|slots| chunk == slot.0 && slots.contains(slot.1))
    }
}

impl Ledger {
    /// How long a run that is not paused now has been so since it opened, as far as run events of it are kept. Milliseconds.
    pub fn paused_ms(&self, run: RunId) -> i64 {
        let run_events = self.run_events.range(keys_of(run));
        paused_ms(run_events.flat_map(|(_, run_events)| run_events))
    }
}

/// From each pause that changed something to what let the run go on.
fn paused_ms<'a>(run_events: impl Iterator<Item = &'a RunEvent>) -> i64 {
    let (mut sum, mut since) = (0_i64, None);
    for RunEvent { at, what, slots } in run_events {
        match what {
            // Paused again with another reason, it has been so since the first.
            RunEventKind::Paused(_) if slots.is_none() => since = since.or(Some(*at)),
            RunEventKind::Resumed => sum = sum.saturating_add(since.take().map_or(0, |since: Time| at.since_ms(since))),
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64, what: RunEventKind) -> RunEvent {
        RunEvent { at: Time(ms), what, slots: None }
    }

    #[test]
    fn pauses_are_summed_up() {
        let paused = |reason: &str| RunEventKind::Paused(PauseReason::Operator(reason.to_owned()));
        let twice = [
            at(1_000, RunEventKind::CanaryPassed),
            at(2_000, paused("a look at it")),
            at(3_000, paused("it is wrong")),
            at(7_000, RunEventKind::Resumed),
            at(9_000, paused("")),
            at(9_500, RunEventKind::Resumed),
        ];
        assert_eq!(paused_ms(twice.iter()), 5_500);
        let forgotten = [at(7_000, RunEventKind::Resumed)];
        assert_eq!(paused_ms(forgotten.iter()), 0, "its pause is kept no more");
    }
}
