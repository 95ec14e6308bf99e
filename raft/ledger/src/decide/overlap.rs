//! What opens of the instants that are due, where runs of a schedule must not stand side by side (P16).
//!
//! `apply` looks at the runs again: a fire that was computed beside an older state is refused there.

use super::catch_up::Judged;
use crate::command::Reason;
use crate::ids::Time;
use crate::policy::Overlap;

/// Leaves one opening of `judged`, which are in order, or none; answers how many of them the fire takes. The
/// others wait. `is_busy`: a former run stands in the way; `planned`: a fire comes
/// at least to here.
pub(super) fn fit(overlap: Overlap, is_busy: bool, planned: Time, judged: &mut [Judged]) -> usize {
    let opens = |step: &Judged| step.verdict.is_ok();
    match overlap {
        Overlap::Allow => {}
        Overlap::CancelOther => {
            // Whatever opens before another would be cancelled by it at once.
            let latest = judged.iter().rposition(opens).unwrap_or_default();
            for step in judged.iter_mut().take(latest).filter(|step| opens(step)) {
                step.verdict = Err(Reason::Superseded);
            }
        }
        Overlap::Skip => {
            let first = judged.iter().position(opens).filter(|_| !is_busy);
            for (place, step) in judged.iter_mut().enumerate() {
                if opens(step) && Some(place) != first {
                    step.verdict = Err(Reason::Overlap);
                }
            }
        }
        Overlap::BufferOne => {
            // More than one of them only where new rules of a zone have moved instants.
            let before = judged.iter().rposition(|step| opens(step) && step.due <= planned).unwrap_or_default();
            for step in judged.iter_mut().take(before).filter(|step| opens(step)) {
                step.verdict = Err(Reason::Superseded);
            }
            let mut opening = judged.iter().filter(|step| opens(step));
            let first_to_wait = if is_busy { opening.next() } else { opening.nth(1) };
            if let Some(due) = first_to_wait.map(|step| step.due) {
                return judged.partition_point(|step| step.due < due);
            }
        }
    }
    judged.len()
}
