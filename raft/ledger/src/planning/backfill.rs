//! Computes which occurrences of a past range a backfill opens (P7).

use super::catch_up::STEPS_MAX;
use super::timing::Calendar;
use crate::calendar::{self, Step};
use crate::command::Opening;
use crate::model::{OccurrenceName, OpeningCause, Schedule, Time};

/// Maximum number of calendar steps that one backfill considers.
const SCAN_MAX: usize = 65_536;

/// The result of a backfill of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackfillRange {
    /// Occurrences to open, oldest first.
    pub openings: Vec<Opening>,
    /// Number of occurrences of the range that have opened before.
    pub known: u32,
    /// Start of the rest of the range; `None` if the range was read to its end.
    pub rest: Option<Time>,
}

/// Returns the past occurrences from `from` to `to`, both inclusive, for which `is_known` is false. At most `most` of
/// them open. Each gets the whole `finish_by`, counted from now.
pub fn range(
    schedule: &Schedule,
    calendar: Calendar<'_>,
    (from, to): (Time, Time),
    most: usize,
    now: Time,
    is_known: impl Fn(&OccurrenceName) -> bool,
) -> BackfillRange {
    let from = schedule.timing.start.map_or(from, |start| from.max(start));
    let from = schedule.plan.forgotten_through.map_or(from, |forgotten| from.max(forgotten.plus_ms(1)));
    let to = to.min(schedule.plan.fired_through).min(schedule.timing.end.unwrap_or(to));
    let finish_by = now.plus_ms(schedule.settings.policies.finish_by_ms);
    let mut found = BackfillRange::default();
    let mut after = from.plus_ms(-1);
    let mut scanned = 0;
    while after < to {
        let (dst, rules) = (&schedule.settings.policies.dst, &calendar.zone.rules);
        let steps = calendar::missed(calendar.pattern, rules, dst, after.timestamp(), to.timestamp(), STEPS_MAX);
        for step in &steps.steps {
            let (occurrence, due) = (OccurrenceName::from(step.occurrence()), Time::from(step.instant()));
            match step {
                Step::Absent(_) => {}
                Step::Fires(_) if is_known(&occurrence) => found.known += 1,
                Step::Fires(_) if found.openings.len() >= most => return BackfillRange { rest: Some(due), ..found },
                Step::Fires(_) => {
                    found.openings.push(Opening { occurrence, due, cause: OpeningCause::Backfill, finish_by });
                }
            }
            after = due;
        }
        scanned += steps.steps.len();
        if steps.complete || steps.steps.is_empty() {
            break;
        }
        if scanned >= SCAN_MAX {
            return BackfillRange { rest: Some(after.plus_ms(1)), ..found };
        }
    }
    found
}
