//! The backlog: what is late and not sent yet, how old it is, how fast it shrinks, and when it is over (P16).
//!
//! What was missed and waits its turn behind another run of its schedule (`buffer_one`) is in it, though it has no
//! run yet: it is counted by the calendar. That costs a look at each such instant, so there is a bound to it; where
//! more waits, the sizes are lower bounds, and there is no estimate of the end.
//!
//! Pure: `backlog_watch.rs` reads the state every few seconds on every node, so any node can be asked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use reveille_ledger::calendar::Pattern;
use reveille_ledger::decide::overlap::{WaitingInstants, missed_that_wait, oldest_missed};
use reveille_ledger::decide::timing::Calendar;
use reveille_ledger::ids::Time;
use reveille_ledger::{Ledger, RecipientState, RunState, Schedule};

use super::zones::Zones;
use crate::leader::claims::claimable::is_late;
use crate::leader::claims::limits::late_rate;

/// Over which span it is seen to shrink.
const SPAN: Duration = Duration::from_secs(60);
/// A change over less than this tells nothing: two looks are far enough apart, also where one came late.
const SPAN_MIN: Duration = Duration::from_secs(3);
/// Waiting instants that one measurement counts, over all schedules.
const WAITING_MAX: u64 = 16_384;
/// Schedules of which they are: each costs a copy under the state's lock, and a calendar.
const SCHEDULES_MAX: usize = 1_024;

/// What is late of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// The pool that its runs go by.
    pub pool: String,
    /// Recipients that are pending or claimed in runs that send, and those of the instants that wait their turn.
    pub recipients: u64,
    /// When the oldest of its instants was due.
    pub oldest: Time,
    /// Late emails a second that may be claimed at most; none where there is no bound.
    pub bound_per_second: Option<f64>,
    /// By how many it shrank a second lately; none where it does not shrink, or was not measured for long enough.
    pub shrinks_per_second: Option<f64>,
    /// How long it lasts at that; none where it is not known.
    pub eta: Option<Duration>,
    /// Was it measured for long enough to say whether it shrinks?
    pub measured: bool,
    /// Instants of it that wait their turn, behind other runs of their schedules.
    pub waiting: u64,
    /// Does more wait than was counted? Then the sizes are lower bounds.
    pub is_lower_bound: bool,
}

/// What is late of one pool at one look.
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

/// What is late, by pool.
pub(crate) type Pools = BTreeMap<String, Late>;

fn add(found: &mut Pools, pool: &str, late: Late) {
    match found.get_mut(pool) {
        Some(known) => *known = known.add(late),
        None => drop(found.insert(pool.to_owned(), late)),
    }
}

/// What is late in the state and has opened.
fn late(ledger: &Ledger) -> Pools {
    let mut found = Pools::new();
    for (_, page) in ledger.open_pages().filter(|(_, page)| is_late(page)) {
        let runs = page.runs.iter().filter(|run| matches!(run.state, RunState::Open));
        let left = |standing| runs.clone().map(|run| u64::from(run.counts.get(standing))).sum::<u64>();
        let recipients = left(RecipientState::Pending) + left(RecipientState::Claimed);
        if recipients > 0 {
            add(&mut found, &page.pool, Late { recipients, oldest: page.due, waiting: 0, is_all: true });
        }
    }
    found
}

/// What was missed and waits its turn. Blocks for as long as the calendars of these schedules take.
pub(crate) fn add_waiting(found: &mut Pools, missed: &[Schedule], zones: &Zones, now: Time) {
    let mut left = WAITING_MAX;
    for schedule in missed {
        if left == 0 {
            add_uncounted(found, schedule, now);
            continue;
        }
        // Where there is no calendar nothing opens, and the timer says so.
        let (Ok(zone), Ok(pattern)) = (zones.get(&schedule.zone), Pattern::compile(&schedule.when)) else { continue };
        let calendar = Calendar { pattern: &pattern, zone: &zone };
        let Some(waits) = missed_that_wait(schedule, calendar, now, left) else { continue };
        let WaitingInstants { instants, oldest, is_all } = waits;
        left = left.saturating_sub(instants);
        let recipients = instants.saturating_mul(schedule.recipients.into());
        add(found, &schedule.pool, Late { recipients, oldest, waiting: instants, is_all });
    }
}

/// A schedule whose calendar is not asked: something of it may wait, so what was counted is not all.
fn add_uncounted(found: &mut Pools, schedule: &Schedule, now: Time) {
    if let Some(oldest) = oldest_missed(schedule, now) {
        add(found, &schedule.pool, Late { recipients: 0, oldest, waiting: 0, is_all: false });
    }
}

/// What was seen over the last minute.
#[derive(Debug, Default)]
pub(crate) struct BacklogWatch(BTreeMap<String, VecDeque<(Duration, u64)>>);

impl BacklogWatch {
    /// Takes in what is late at `now`; `bound` is the rate of a pool.
    pub(crate) fn look(&mut self, late: Pools, bound: impl Fn(&str) -> Option<f64>, now: Duration) -> Vec<Backlog> {
        self.0.retain(|pool, _| late.contains_key(pool));
        let told = late.into_iter().map(|(pool, late)| {
            let Late { recipients, oldest, waiting, is_all } = late;
            let seen = self.0.entry(pool.clone()).or_default();
            if !is_all {
                // What is not counted whole cannot be seen to shrink.
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
        told.collect()
    }
}

/// What the state says at one look.
pub(crate) struct Seen {
    /// What is late and has opened, and the pools of schedules beyond [`SCHEDULES_MAX`].
    pub late: Pools,
    /// Late emails a second, by pool.
    pub bounds: BTreeMap<String, f64>,
    /// Schedules of which something may wait.
    pub missed: Vec<Schedule>,
    pub now: Time,
}

impl Seen {
    pub(crate) fn of(ledger: &Ledger) -> Seen {
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
        Seen { late, bounds, missed, now }
    }
}

#[cfg(test)]
mod tests;
