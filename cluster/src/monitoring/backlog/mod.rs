//! The backlog: emails that are late and not sent yet, their age, how fast they become fewer, and the estimated end
//! (P16).
//!
//! Missed instants that wait for an earlier run of their schedule (`buffer_one`) count too, although they have no run
//! yet. The calendar counts them. Each such instant costs time, so their number is limited. If more wait, the sizes are
//! lower bounds, and there is no estimate of the end.
//!
//! Pure: `backlog_watch.rs` reads the state every few seconds on every node, so any node can answer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use reveille_ledger::calendar::Pattern;
use reveille_ledger::ids::Time;
use reveille_ledger::planning::overlap::{WaitingInstants, missed_that_wait, oldest_missed};
use reveille_ledger::planning::timing::Calendar;
use reveille_ledger::{Ledger, RecipientState, RunState, Schedule};

use crate::leader::claims::limits::late_rate;
use crate::process::zones::Zones;

/// Time over which the decrease is measured.
const SPAN: Duration = Duration::from_secs(60);
/// Minimum time for a measurement of the decrease. Two measurements are further apart, even if one is late.
const SPAN_MIN: Duration = Duration::from_secs(3);
/// Maximum number of waiting instants that one measurement counts, over all schedules.
const WAITING_MAX: u64 = 16_384;
/// Maximum number of schedules whose waiting instants are counted: each costs a copy under the state's lock, and a
/// calendar.
const SCHEDULES_MAX: usize = 1_024;

/// The backlog of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// Relay pool of its runs.
    pub pool: String,
    /// Number of recipients that are pending or claimed in open late runs, plus those of the waiting instants.
    pub recipients: u64,
    /// Time when the oldest of its instants was due.
    pub oldest: Time,
    /// Maximum number of late emails that may be claimed in a second. `None`: no limit.
    pub bound_per_second: Option<f64>,
    /// Recent decrease in recipients per second. `None` if it does not decrease, or was not measured for long enough.
    pub shrinks_per_second: Option<f64>,
    /// Estimated time until the end at that rate. `None`: not known.
    pub eta: Option<Duration>,
    /// True if it was measured for long enough to know if it decreases.
    pub measured: bool,
    /// Number of its instants that wait for other runs of their schedules.
    pub waiting: u64,
    /// True if more instants wait than were counted. The sizes are then lower bounds.
    pub is_lower_bound: bool,
}

/// The late emails of one pool at one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    recipients: u64,
    oldest: Time,
    waiting: u64,
    is_all: bool,
}

impl Late {
    fn add(self, other: Late) -> Late {
        Late {
            recipients: self.recipients.saturating_add(other.recipients),
            oldest: self.oldest.min(other.oldest),
            waiting: self.waiting + other.waiting,
            is_all: self.is_all && other.is_all,
        }
    }
}

/// Late emails by pool.
pub(crate) type Pools = BTreeMap<String, Late>;

fn add(found: &mut Pools, pool: &str, late: Late) {
    match found.get_mut(pool) {
        Some(known) => *known = known.add(late),
        None => drop(found.insert(pool.to_owned(), late)),
    }
}

/// Returns the late emails of open runs in the state.
fn late(ledger: &Ledger) -> Pools {
    let mut found = Pools::new();
    for (_, page) in ledger.started_pages(ledger.head().now).filter(|(_, page)| page.is_late()) {
        let runs = page.runs.iter().filter(|run| matches!(run.state, RunState::Open));
        let left = |state| runs.clone().map(|run| u64::from(run.counts.get(state))).sum::<u64>();
        let recipients = left(RecipientState::Pending) + left(RecipientState::Claimed);
        if recipients > 0 {
            add(&mut found, &page.pool, Late { recipients, oldest: page.due, waiting: 0, is_all: true });
        }
    }
    found
}

/// Adds the missed instants that wait for other runs. Blocks while it computes the calendars of these schedules.
pub(crate) fn add_waiting(found: &mut Pools, missed: &[Schedule], zones: &Zones, now: Time) {
    let mut left = WAITING_MAX;
    for schedule in missed {
        if left == 0 {
            add_uncounted(found, schedule, now);
            continue;
        }
        // Without a calendar nothing opens, and the timer reports that.
        let (Ok(zone), Ok(pattern)) = (zones.get(&schedule.timing.zone), Pattern::compile(&schedule.timing.when))
        else {
            continue;
        };
        let calendar = Calendar { pattern: &pattern, zone: &zone };
        let Some(waits) = missed_that_wait(schedule, calendar, now, left) else { continue };
        let WaitingInstants { instants, oldest, is_all } = waits;
        left = left.saturating_sub(instants);
        let recipients = instants.saturating_mul(schedule.recipients.into());
        add(found, &schedule.settings.pool, Late { recipients, oldest, waiting: instants, is_all });
    }
}

/// Adds a schedule whose calendar is not computed. Some of its instants may wait, so the counts are not complete.
fn add_uncounted(found: &mut Pools, schedule: &Schedule, now: Time) {
    if let Some(oldest) = oldest_missed(schedule, now) {
        add(found, &schedule.settings.pool, Late { recipients: 0, oldest, waiting: 0, is_all: false });
    }
}

/// Numbers of recipients over the last minute, by pool.
#[derive(Debug, Default)]
pub(crate) struct BacklogWatch(BTreeMap<String, VecDeque<(Duration, u64)>>);

impl BacklogWatch {
    /// Records the late emails at `now` and returns the backlogs. `bound` returns the late rate of a pool.
    pub(crate) fn update(&mut self, late: Pools, bound: impl Fn(&str) -> Option<f64>, now: Duration) -> Vec<Backlog> {
        self.0.retain(|pool, _| late.contains_key(pool));
        let backlogs = late.into_iter().map(|(pool, late)| {
            let Late { recipients, oldest, waiting, is_all } = late;
            let seen = self.0.entry(pool.clone()).or_default();
            if !is_all {
                // A decrease cannot be measured if not all is counted.
                seen.clear();
            }
            seen.push_back((now, recipients));
            while seen.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= SPAN) {
                seen.pop_front();
            }
            let since = seen.front().map(|(at, before)| (now.saturating_sub(*at), *before));
            let since = since.filter(|(span, _)| *span >= SPAN_MIN);
            let shrinks_per_second = since.and_then(|(span, before)| {
                let gone = before.checked_sub(recipients).filter(|gone| *gone > 0)?;
                Some(gone as f64 / span.as_secs_f64())
            });
            let eta = shrinks_per_second.and_then(|rate| Duration::try_from_secs_f64(recipients as f64 / rate).ok());
            let (bound_per_second, measured, is_lower_bound) = (bound(&pool), since.is_some(), !is_all);
            Backlog {
                pool,
                recipients,
                oldest,
                bound_per_second,
                shrinks_per_second,
                eta,
                measured,
                waiting,
                is_lower_bound,
            }
        });
        backlogs.collect()
    }
}

/// Contents of the state at one measurement.
pub(crate) struct BacklogReading {
    /// Late emails of open runs, and the pools of schedules beyond [`SCHEDULES_MAX`].
    pub late: Pools,
    /// Maximum number of late emails per second, by pool.
    pub bounds: BTreeMap<String, f64>,
    /// Schedules with missed instants that may wait.
    pub missed: Vec<Schedule>,
    pub now: Time,
}

impl BacklogReading {
    pub(crate) fn of(ledger: &Ledger) -> BacklogReading {
        let pools = ledger.relays().iter().map(|(_, relay)| &relay.pool);
        let bounds = pools.filter_map(|pool| Some((pool.clone(), late_rate(ledger, pool)?))).collect();
        let (mut late, mut missed, now) = (late(ledger), Vec::new(), ledger.head().now);
        let schedules = ledger.schedules().iter().map(|(_, schedule)| schedule);
        for schedule in schedules.filter(|schedule| oldest_missed(schedule, now).is_some()) {
            if missed.len() < SCHEDULES_MAX {
                missed.push(schedule.clone());
            } else {
                add_uncounted(&mut late, schedule, now);
            }
        }
        BacklogReading { late, bounds, missed, now }
    }
}

#[cfg(test)]
mod tests;
