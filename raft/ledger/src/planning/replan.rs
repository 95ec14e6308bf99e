//! Finds schedules whose next instant another release of the time zone database changes, and plans them again (I10).
//!
//! The leader's timer calls it for a limited number of schedules, so that the read lock is short. It remembers the last
//! one, and starts again from the first at the end: a node with another release may create a schedule at any time.

use std::ops::Bound;

use super::timing::{Calendar, Jitter, Zone, first_instant_after};
use crate::calendar::Pattern;
use crate::command::Replan;
use crate::model::{Ledger, Schedule, ScheduleId, Time};

/// Maximum number of schedules that one entry replans: about 200 bytes each, far below the limit of an entry.
pub const REPLANS_MAX: usize = 256;
/// Maximum number of schedules that one call reads.
const SCAN_MAX: usize = 4_096;

/// Returns schedules after `after` whose next instant is after `now` and was computed with another release than `tzdb`;
/// and where to continue. `None`: the scan is complete.
pub fn outdated(
    ledger: &Ledger,
    after: Option<ScheduleId>,
    tzdb: &str,
    now: Time,
) -> (Vec<ScheduleId>, Option<ScheduleId>) {
    let mut found = Vec::new();
    let mut last = after;
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    for (scanned, (id, schedule)) in ledger.schedules().range((from, Bound::Unbounded)).enumerate() {
        if scanned >= SCAN_MAX || found.len() >= REPLANS_MAX {
            return (found, last);
        }
        last = Some(*id);
        let plan = &schedule.plan;
        if *plan.tzdb != *tzdb && plan.next.as_ref().is_some_and(|next| next.due > now) {
            found.push(*id);
        }
    }
    (found, None)
}

/// Plans a schedule again with these rules; `None` if it has no next instant.
pub fn replan(id: ScheduleId, schedule: &Schedule, pattern: &Pattern, zone: &Zone) -> Option<Replan> {
    let plan = &schedule.plan;
    let (bounds, jitter) = ((schedule.timing.start, schedule.timing.end), Jitter::of(schedule));
    let (calendar, dst) = (Calendar { pattern, zone }, &schedule.settings.policies.dst);
    let next = first_instant_after(calendar, dst, plan.fired_through, bounds, jitter);
    Some(Replan { schedule: id, plan_version: plan.version, from: plan.next.clone()?, next, tzdb: zone.tzdb.clone() })
}
