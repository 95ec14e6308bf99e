//! Daily schedules in twelve zones on the test clock (P19): days pass while nodes are broken.
//!
//! The clock of the cluster is moved by hand over the hours in which nothing is due, to a second before the next instant,
//! and there it is left alone: each instant comes by real timers, with whatever is broken at that moment. It is moved on
//! when the cluster says that everything due so far has opened. So lateness is judged as it is on a real clock, and the
//! days go by as fast as the faults let them.
//!
//! What is due comes of the checker's almanac, on other zone tables than the product's. The days are around a change of
//! the clocks, one of the year's, and the times of day are those that the changes leave out or tell twice.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reveille_check::almanac::Rule;
use reveille_check::history::Event;
use reveille_proto::admin::v1::{Daily, When, when};

use super::recorder::Recorder;
use super::workload::{Item, Kind};
use crate::admin::Admin;
use crate::almanac::wire;

/// Each zone with a time of day: one that its changes of the clocks touch, where it has any.
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
/// Seconds of the fault phase for each day: twelve instants, each of which takes more than one.
const SECONDS_A_DAY: u64 = 15;
/// The clock is moved to so long before an instant.
const AHEAD: Duration = Duration::from_secs(1);
/// Runs of what is due are waited for so long, then time goes on without them.
const OPENED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A time of day in a zone, and when that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// Of its time of day.
    pub zone: &'static str,
    hour: u32,
    minute: u32,
    /// The days begin and end.
    between: (Timestamp, Timestamp),
    /// Milliseconds since 1970, in order.
    pub instants_ms: Vec<i64>,
}

impl Rhythm {
    /// As the API has it: pattern, zone, beginning and end.
    pub fn wire(&self) -> (When, String, prost_types::Timestamp, prost_types::Timestamp) {
        let daily = Daily { hour: self.hour, minute: self.minute, days: String::new() };
        let when = When { pattern: Some(when::Pattern::Daily(daily)) };
        (when, self.zone.to_owned(), wire(self.between.0), wire(self.between.1))
    }
}

/// Schedules with so many recipients for all days together, of the year after `now`.
pub fn schedules(seed: u64, phase: Duration, recipients: u32, now: Timestamp) -> Result<Vec<Item>> {
    let days = (phase.as_secs() / SECONDS_A_DAY).max(1) as i64;
    let mut dice = StdRng::seed_from_u64(seed ^ 0xDA11);
    let changes = changes(now)?;
    let change = *changes.choose(&mut dice).context("a year without a change of the clocks")?;
    let from = change - SignedDuration::from_hours(24 * dice.random_range(0..days));
    let to = from + SignedDuration::from_hours(24 * days);
    let each = (i64::from(recipients) / (days * TIMES.len() as i64)).max(1) as u32;
    let schedule = |(place, (zone, hour, minute)): (usize, (&'static str, u32, u32))| {
        let rule = Rule::Daily { zone: zone.to_owned(), hour, minute, days: Vec::new() };
        let instants_ms = rule.instants(from.as_millisecond(), to.as_millisecond())?;
        let rhythm = Rhythm { zone, hour, minute, between: (from, to), instants_ms };
        anyhow::Ok(Item { name: format!("daily-{place}"), due_ms: 0, recipients: each, kind: Kind::Daily(rhythm) })
    };
    TIMES.into_iter().enumerate().map(schedule).collect()
}

/// Half a minute into each day (UTC) of the next year on which the clocks of one of the zones are changed.
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

/// The hand on the clock.
pub struct Hand {
    /// Of the cluster.
    pub admin: Admin,
    /// Where it is written down how far the clock is ahead.
    pub recorder: Recorder,
    /// Civil time when the history began; milliseconds.
    pub began_unix_ms: i64,
    /// All instants that are due, one for each run.
    pub instants_ms: Vec<i64>,
    /// How far the clock is ahead at most; milliseconds.
    pub offset_ms: i64,
}

impl Hand {
    /// Moves the clock to some seconds before the first instant.
    pub async fn begin(&mut self, before: Duration) -> Result<()> {
        let first = self.instants_ms.iter().min().copied().context("no instant")?;
        self.advance(first - before.as_millis() as i64).await
    }

    /// Goes from instant to instant, until the last one is over.
    pub async fn go_on(mut self) -> Result<()> {
        self.instants_ms.sort_unstable();
        let all = std::mem::take(&mut self.instants_ms);
        let mut opened = 0;
        for runs in all.chunk_by(|left, right| left == right) {
            let Some(at_ms) = runs.first() else { continue };
            self.advance(at_ms - AHEAD.as_millis() as i64).await?;
            opened += runs.len();
            tokio::time::sleep(AHEAD).await;
            let until = Instant::now() + OPENED_WITHIN;
            // Whoever cannot answer now is asked again.
            while !self.admin.runs().await.is_ok_and(|runs| runs.len() >= opened) && Instant::now() < until {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    /// What is written down is where the clock is to go, from the moment on when it is asked for: it is never further
    /// ahead than that.
    async fn advance(&mut self, to_ms: i64) -> Result<()> {
        let now_ns = self.recorder.now_ns();
        let offset_ms = to_ms - self.began_unix_ms - (now_ns / 1_000_000) as i64;
        if offset_ms > self.offset_ms {
            self.offset_ms = offset_ms;
            self.recorder.event(&Event::ClockMoved { at_ns: now_ns, offset_ms });
            self.admin.advance(Timestamp::from_millisecond(to_ms)?, false).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_days_of_a_seed_are_around_a_change_of_the_clocks_and_everybody_is_due_on_each() {
        let now = "2026-11-23T00:00:00Z".parse().unwrap();
        let mut firsts = BTreeSet::new();
        for seed in 0..30 {
            let items = schedules(seed, Duration::from_secs(60), 1_200, now).unwrap();
            assert_eq!(items, schedules(seed, Duration::from_secs(60), 1_200, now).unwrap());
            assert_eq!(items.len(), TIMES.len());
            let mut changes = 0;
            for item in &items {
                let Kind::Daily(rhythm) = &item.kind else { panic!("{item:?}") };
                // A day that is an hour longer or shorter may have one more or less at its edge.
                assert!((3..=5).contains(&rhythm.instants_ms.len()), "{rhythm:?}");
                let zone = TimeZone::get(rhythm.zone).unwrap();
                changes += usize::from(zone.to_offset(rhythm.between.0) != zone.to_offset(rhythm.between.1));
                assert_eq!(item.recipients, 25);
            }
            assert!(changes > 0, "seed {seed}");
            let Kind::Daily(rhythm) = &items[0].kind else { unreachable!() };
            firsts.insert(rhythm.between.0);
        }
        assert!(firsts.len() > 5, "{firsts:?}");
    }
}
