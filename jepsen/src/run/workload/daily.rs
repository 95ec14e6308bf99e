//! Daily schedules in twelve zones on the test clock (P19): days pass while nodes are broken.
//!
//! The harness moves the clock over the hours in which nothing is due, to a second before the next instant. Each
//! instant itself is reached in real time, while faults are in force. The clock moves on when every run that was due
//! has opened. So lateness is judged as on a real clock.
//!
//! The instants come from the checker's calendar, which uses other zone tables than the product. The days are around a
//! change of clocks, and the times of day are those that such changes skip or repeat.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reveille_check::calendar::Rule;
use reveille_check::events::Event;
use reveille_harness::{AdminClient, wait};

use super::item::{DailyTimes, ItemKind, WorkloadItem};
use crate::run::observe::Recorder;

/// Zones, each with a time of day that its changes of clocks affect, if it has any.
const TIMES: [(&str, u32, u32); 12] = [
    ("Australia/Lord_Howe", 2, 15),
    ("Antarctica/Troll", 2, 30),
    ("America/St_Johns", 2, 30),
    ("Pacific/Chatham", 3, 0),
    ("Asia/Kathmandu", 9, 0),
    ("Europe/Berlin", 2, 30),
    ("America/New_York", 2, 30),
    ("America/Santiago", 0, 30),
    ("Africa/Cairo", 0, 30),
    ("Pacific/Apia", 9, 0),
    ("Asia/Kolkata", 9, 30),
    ("UTC", 12, 0),
];
/// Seconds of the fault phase for each day, which has twelve instants of more than one second each.
const SECONDS_A_DAY: u64 = 15;
/// Time before an instant to which the clock is moved.
const AHEAD: Duration = Duration::from_secs(1);
/// Maximum wait for the runs of an instant before the clock moves on.
const OPENED_WITHIN: Duration = Duration::from_secs(60);

/// Returns schedules in the year after `now`, with `recipients` over all days.
pub fn schedules(seed: u64, phase: Duration, recipients: u32, now: Timestamp) -> Result<Vec<WorkloadItem>> {
    let days = (phase.as_secs() / SECONDS_A_DAY).max(1) as i64;
    let mut random = StdRng::seed_from_u64(seed ^ 0xDA11);
    let changes = changes(now)?;
    let change = *changes.choose(&mut random).context("a year without a change of clocks")?;
    let from = change - SignedDuration::from_hours(24 * random.random_range(0..days));
    let to = from + SignedDuration::from_hours(24 * days);
    let each = (i64::from(recipients) / (days * TIMES.len() as i64)).max(1) as u32;
    let schedule = |(index, (zone, hour, minute)): (usize, (&'static str, u32, u32))| {
        let between_ms = (from.as_millisecond(), to.as_millisecond());
        let instants_ms = Rule::daily(zone, hour, minute).instants(between_ms.0, between_ms.1)?;
        let times = DailyTimes { zone, hour, minute, between_ms, instants_ms };
        anyhow::Ok(WorkloadItem {
            name: format!("daily-{index}"),
            due_ms: 0,
            recipients: each,
            kind: ItemKind::Daily(times),
        })
    };
    TIMES.into_iter().enumerate().map(schedule).collect()
}

/// Returns the next year's days (UTC) on which the clocks of one of the zones change, half a minute after midnight.
fn changes(now: Timestamp) -> Result<Vec<Timestamp>> {
    let year = now.to_zoned(TimeZone::UTC).year() + 1;
    let days = date(year, 2, 1).series(1.day()).take_while(|day| *day < date(year, 12, 1));
    let zones = TIMES.into_iter().map(|(zone, ..)| TimeZone::get(zone)).collect::<Result<Vec<_>, _>>()?;
    let mut changes = Vec::new();
    for day in days {
        let begins = day.at(0, 0, 30, 0).to_zoned(TimeZone::UTC)?.timestamp();
        let ends = begins + SignedDuration::from_hours(24);
        if zones.iter().any(|zone| zone.to_offset(begins) != zone.to_offset(ends)) {
            changes.push(begins);
        }
    }
    Ok(changes)
}

/// Moves the test clock.
pub struct ClockDriver {
    admin: AdminClient,
    recorder: Recorder,
    began_unix_ms: i64,
    /// All instants in order, one for each run.
    instants_ms: Vec<i64>,
    /// Milliseconds by which the clock is ahead of real time.
    offset_ms: i64,
}

impl ClockDriver {
    /// Creates a driver. `began_unix_ms` is civil time at the beginning of the history.
    pub fn new(admin: AdminClient, recorder: Recorder, began_unix_ms: i64, mut instants_ms: Vec<i64>) -> ClockDriver {
        instants_ms.sort_unstable();
        ClockDriver { admin, recorder, began_unix_ms, instants_ms, offset_ms: 0 }
    }

    /// Moves the clock to `before` the first instant.
    pub async fn begin(&mut self, before: Duration) -> Result<()> {
        let first = self.instants_ms.first().copied().context("no instant")?;
        self.advance(first - before.as_millis() as i64).await
    }

    /// Moves the clock from instant to instant, to the last one.
    pub async fn drive(mut self) -> Result<()> {
        let all = std::mem::take(&mut self.instants_ms);
        let mut opened = 0;
        for runs in all.chunk_by(|left, right| left == right) {
            let Some(at_ms) = runs.first() else { continue };
            self.advance(at_ms - AHEAD.as_millis() as i64).await?;
            opened += runs.len();
            tokio::time::sleep(AHEAD).await;
            // If the cluster cannot answer, the request is repeated.
            let is_open = || async { self.admin.runs().await.is_ok_and(|runs| runs.len() >= opened) };
            wait::until(OPENED_WITHIN, is_open).await;
        }
        Ok(())
    }

    /// Moves the clock. The new offset is recorded when it is requested, so the clock is never further ahead than the
    /// history says.
    async fn advance(&mut self, to_ms: i64) -> Result<()> {
        let now_ns = self.recorder.now_ns();
        let offset_ms = to_ms - self.began_unix_ms - (now_ns / 1_000_000) as i64;
        if offset_ms > self.offset_ms {
            self.offset_ms = offset_ms;
            self.recorder.event(&Event::ClockMoved { at_ns: now_ns, offset_ms });
            self.admin.advance_clock(to_ms).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn days_of_seed_include_change_of_clocks() {
        let now = "2026-11-23T00:00:00Z".parse().unwrap();
        let mut firsts = BTreeSet::new();
        for seed in 0..30 {
            let items = schedules(seed, Duration::from_secs(60), 1_200, now).unwrap();
            assert_eq!(items, schedules(seed, Duration::from_secs(60), 1_200, now).unwrap());
            assert_eq!(items.len(), TIMES.len());
            let mut changes = 0;
            for item in &items {
                let ItemKind::Daily(times) = &item.kind else { panic!("{item:?}") };
                // A day of 23 or 25 hours may have one instant more or less at its edge.
                assert!((3..=5).contains(&times.instants_ms.len()), "{times:?}");
                let zone = TimeZone::get(times.zone).unwrap();
                let [from, to] =
                    [times.between_ms.0, times.between_ms.1].map(|ms| Timestamp::from_millisecond(ms).unwrap());
                changes += usize::from(zone.to_offset(from) != zone.to_offset(to));
                assert_eq!(item.recipients, 25);
            }
            assert!(changes > 0, "seed {seed}");
            let ItemKind::Daily(times) = &items[0].kind else { unreachable!() };
            firsts.insert(times.between_ms.0);
        }
        assert!(firsts.len() > 5, "{firsts:?}");
    }
}
