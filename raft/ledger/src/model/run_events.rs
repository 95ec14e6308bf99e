//! Events of a run that no claim caused: a pause, a cancel, the deadline, a requeue. They are kept as long as the
//! details of the run, so `explain` works after the log was purged.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::model::{Bitmap, Ledger, PauseReason, RunId, Time};

/// Kinds of run events. Most of them name the state of the recipients before, and what happened to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunEventKind {
    /// The run was paused, for this reason.
    Paused(PauseReason),
    /// The run was resumed.
    Resumed,
    /// Pending recipients were cancelled.
    Cancelled,
    /// Pending recipients without an attempt expired at the deadline.
    Expired,
    /// Pending recipients with an attempt became dead at the deadline.
    DeadAtDeadline,
    /// Dead recipients are sent again; by this pool from then on, if the operator named one.
    Requeued(Option<String>),
    /// Dead recipients were taken off the dead-letter list.
    Discarded,
    /// Dead recipients are sent again, because the relay's refusal is no longer believed (P6).
    RefusalUndone,
    /// Pending recipients were suppressed: an email of another run is too close (P17).
    SuppressedByGap,
    /// The run's canary passed, so the other recipients are sent (P6).
    CanaryPassed,
    /// Pending recipients were suppressed: they have opted out, and are claimed in another run (P17).
    SuppressedByOptOut,
}

impl RunEventKind {
    /// True if a claim of the run suppressed recipients.
    pub(crate) fn is_suppression(&self) -> bool {
        matches!(self, RunEventKind::SuppressedByGap | RunEventKind::SuppressedByOptOut)
    }
}

/// A run event. Its key has the run, the log index of its entry and a chunk. A row has one chunk of 65,536 recipients
/// at most, so its size does not grow with the audience.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Ledger time of the entry.
    pub at: Time,
    /// Kind of the event.
    pub what: RunEventKind,
    /// The recipients, as slots of the chunk in the key. `None`: all of the run.
    pub slots: Option<Bitmap>,
}

/// Key of run events: run, log index and chunk. An event of the whole run is under chunk 0.
pub type RunEventKey = (RunId, u64, u32);

/// Returns the range of keys of a run's events.
pub(crate) fn keys_of(run: RunId) -> RangeInclusive<RunEventKey> {
    (run, 0, 0)..=(run, u64::MAX, u32::MAX)
}

impl RunEvent {
    /// True if the event, stored under `chunk`, concerns `slot`, given as chunk and slot.
    pub fn concerns(&self, chunk: u32, slot: (u32, u16)) -> bool {
        self.slots.as_ref().is_none_or(|slots| chunk == slot.0 && slots.contains(slot.1))
    }
}

impl Ledger {
    /// Total time that a run was paused since it opened, in milliseconds. The run must not be paused now. Events that
    /// are no longer kept do not count.
    pub fn paused_ms(&self, run: RunId) -> i64 {
        let run_events = self.run_events.range(keys_of(run));
        paused_ms(run_events.flat_map(|(_, run_events)| run_events))
    }
}

/// Sums up the time from each pause of the whole run to the next resume.
fn paused_ms<'a>(run_events: impl Iterator<Item = &'a RunEvent>) -> i64 {
    let (mut sum, mut since) = (0_i64, None);
    for RunEvent { at, what, slots } in run_events {
        match what {
            // A second pause event only changes the reason; the pause began with the first.
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
