//! `calendar`: daily schedules over all minutes of a day in twelve zones, on the test clock (P19), with outages and
//! kills of the leader at random places of a month that takes minutes.
//!
//! Judged three ways that know nothing of each other: how many instants there are by `almanac.rs`, what the
//! ledger says became of each (fired or explained), and what the sink recorded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reveille_sink::{Sink, SinkOptions};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::admin::{Accounts, Admin};
use crate::almanac::{Entry, ZONES, first_day};
use crate::cluster::{Cluster, Start};
use crate::load::{self, Until};

/// Sessions to the sink on each node.
const SESSIONS: u32 = 50;
/// Clients that create and that read the history.
const CLIENTS: u32 = 32;
/// The leader is killed at most so long (real time) after a walk began.
const KILL_WITHIN_MS: u64 = 2_000;
/// Outages, in minutes: drawn from these.
const OUTAGES: [i64; 6] = [1, 11, 90, 6 * 60, 23 * 60, 36 * 60];
/// At the end, so long for a mail that comes twice.
const QUIET_AFTER: Duration = Duration::from_secs(3);

/// Options of `calendar`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Daily schedules, over all minutes of a day
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub schedules: u64,
    /// Days of virtual time
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(i64).range(1..=400))]
    pub days: i64,
    /// Zones
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=12))]
    pub zones: u8,
    /// Outages, each of a length drawn between a minute and a day and a half
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub outages: u32,
    /// Kills of the leader
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub kills: u32,
    /// What is random comes from this
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
}

#[derive(Serialize)]
struct Report {
    seed: u64,
    schedules: u64,
    days: i64,
    zones: u8,
    outages: u32,
    kills: u32,
    steps: u64,
    seconds: f64,
    #[serde(flatten)]
    verdict: Verdict,
    valid: bool,
}

/// Sums over all schedules.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Verdict {
    expected: u64,
    fired: u64,
    explained: u64,
    accepted: u64,
    /// Mails beyond the first of a run to its recipient (I1).
    duplicates: u64,
    /// Runs that fired, whose mail did not come, and that nobody calls in doubt (I4).
    lost: u64,
    in_doubt: u64,
    /// Schedules whose fired and explained instants are not those that were expected.
    wrong: u64,
}

impl Verdict {
    fn is_valid(&self) -> bool {
        self.wrong == 0 && self.duplicates == 0 && self.lost == 0
    }

    /// One schedule's part.
    fn add(&mut self, expected: u64, accounts: Accounts, arrived: Arrived, in_doubt: u64) {
        self.expected += expected;
        self.fired += accounts.fired;
        self.explained += accounts.explained;
        self.accepted += arrived.mails;
        self.duplicates += arrived.mails - arrived.runs;
        self.lost += accounts.fired.saturating_sub(arrived.runs).saturating_sub(in_doubt);
        self.in_doubt += in_doubt;
        let more_than_fired = arrived.runs > accounts.fired;
        self.wrong += u64::from(accounts.fired + accounts.explained != expected || more_than_fired);
    }
}

/// What came to one address.
#[derive(Clone, Copy, Debug, Default)]
struct Arrived {
    mails: u64,
    /// Different Message-IDs: each run has one.
    runs: u64,
}

/// What happens at an instant of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    /// Nothing runs for so many minutes.
    Outage(i64),
    /// `kill -9` of whoever leads, in the midst of a walk.
    Kill,
}

/// Runs it; valid when every instant fired or is explained, and no mail came twice or is missing.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let keep_records = 2 * (args.schedules as usize) * (args.days as usize + 1);
    let sink = Sink::start(SinkOptions { keep_records, keep_bodies: 0, sync: false, ..SinkOptions::default() })?;
    let mut cluster = Cluster::start_with_test_clock(start, args.nodes).await?;
    cluster.admin().add_relay(sink.address(), SESSIONS).await?;
    let from = first_day(Timestamp::now())?;
    let to = from + SignedDuration::from_hours(24 * args.days);
    let zones = usize::from(args.zones);
    let body = move |number| Entry::new(number, zones).body(from, to);
    let until = Until::Count(args.schedules);
    load::create(cluster.admin(), CLIENTS, until, "daily schedules", body).await?;
    let mut steps = cluster.admin().advance(from - SignedDuration::from_mins(1), false).await?;
    eprintln!("{} schedules in {zones} of {} zones stand before {from}", args.schedules, ZONES.len());

    let begun = Instant::now();
    let mut dice = StdRng::seed_from_u64(args.seed);
    for (at, blow) in blows(&mut dice, args, from, to) {
        steps += cluster.admin().advance(at, false).await?;
        let left = begun.elapsed().as_secs();
        eprintln!("{at}, after {left} s: {blow:?}, {} mails came", sink.accepted_count());
        match blow {
            Blow::Outage(minutes) => {
                let end = (at + SignedDuration::from_mins(minutes)).min(to);
                steps += cluster.admin().advance(end, true).await?;
            }
            Blow::Kill => kill(&mut cluster, &mut dice, at).await?,
        }
    }
    steps += cluster.admin().advance(to + SignedDuration::from_mins(1), false).await?;
    let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    tokio::time::sleep(QUIET_AFTER).await;
    let verdict = judge(cluster.admin(), &sink, args, from, to).await?;
    let Args { seed, schedules, days, zones, outages, kills, .. } = *args;
    let valid = verdict.is_valid();
    Outcome::new(&Report { seed, schedules, days, zones, outages, kills, steps, seconds, verdict, valid }, valid)
}

/// Blows at random instants, in order, none in the midst of an outage.
fn blows(dice: &mut StdRng, args: &Args, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, Blow)> {
    let mut all = Vec::new();
    for number in 0..args.outages + args.kills {
        let at = Timestamp::from_second(dice.random_range(from.as_second()..to.as_second())).unwrap_or(from);
        let outage = Blow::Outage(OUTAGES[dice.random_range(0..OUTAGES.len())]);
        all.push((at, if number < args.outages { outage } else { Blow::Kill }));
    }
    all.sort_unstable();
    let mut free = from;
    for (at, blow) in &mut all {
        *at = (*at).max(free);
        if let Blow::Outage(minutes) = blow {
            free = *at + SignedDuration::from_mins(*minutes);
        }
    }
    all
}

/// Kills the leader while the clock walks on, and starts it again.
async fn kill(cluster: &mut Cluster, dice: &mut StdRng, at: Timestamp) -> Result<()> {
    let admin = cluster.admin().clone();
    let end = at + SignedDuration::from_hours(12);
    let walk = tokio::spawn(async move { admin.advance(end, false).await });
    tokio::time::sleep(Duration::from_millis(dice.random_range(0..KILL_WITHIN_MS))).await;
    if let Some((leader, epoch)) = cluster.leader().await {
        cluster.kill(&leader)?;
        eprintln!("  {leader}, which led epoch {epoch}, is killed");
        tokio::time::sleep(Duration::from_millis(dice.random_range(0..KILL_WITHIN_MS))).await;
        cluster.restart(&leader)?;
    }
    cluster.wait_until_healthy().await?;
    walk.await.context("a walk")??;
    Ok(())
}

async fn judge(admin: &Admin, sink: &Sink, args: &Args, from: Timestamp, to: Timestamp) -> Result<Verdict> {
    eprintln!("reading what became of every instant");
    let doubts = admin.doubts_of_addresses().await?;
    let arrived = arrivals(sink);
    let mut readers = JoinSet::new();
    for client in 0..u64::from(CLIENTS) {
        let (admin, args) = (admin.another(client as usize)?, args.clone());
        readers.spawn(async move {
            let mut read = Vec::new();
            for number in (client..args.schedules).step_by(CLIENTS as usize) {
                let entry = Entry::new(number, usize::from(args.zones));
                read.push((entry, admin.accounts(&entry.name()).await?));
            }
            anyhow::Ok(read)
        });
    }
    let mut verdict = Verdict::default();
    while let Some(read) = readers.join_next().await {
        for (entry, accounts) in read.context("a reader")?? {
            let address = entry.address();
            let came = arrived.get(&address).copied().unwrap_or_default();
            let in_doubt = doubts.get(&address).copied().unwrap_or(0);
            let (expected, wrong) = (entry.expected(from, to)?, verdict.wrong);
            verdict.add(expected, accounts, came, in_doubt);
            if verdict.wrong > wrong {
                eprintln!("{entry:?}: {expected} expected, {accounts:?}, {came:?}");
            }
        }
    }
    Ok(verdict)
}

fn arrivals(sink: &Sink) -> BTreeMap<String, Arrived> {
    let mut by_run: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (_, mail) in sink.mails().iter() {
        let run = mail.message_id.clone().unwrap_or_default();
        *by_run.entry((mail.recipient.clone(), run)).or_default() += 1;
    }
    let mut arrived: BTreeMap<String, Arrived> = BTreeMap::new();
    for ((address, _), mails) in by_run {
        let came = arrived.entry(address).or_default();
        came.mails += mails;
        came.runs += 1;
    }
    arrived
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expected: u64, fired: u64, explained: u64, mails: u64, runs: u64, in_doubt: u64) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.add(expected, Accounts { fired, explained }, Arrived { mails, runs }, in_doubt);
        verdict
    }

    #[test]
    fn every_instant_fires_or_is_explained_and_every_mail_comes_once() {
        assert!(verdict(30, 28, 2, 28, 28, 0).is_valid());
        assert!(verdict(30, 28, 2, 27, 27, 1).is_valid(), "one is in doubt");
        assert!(!verdict(30, 27, 2, 27, 27, 0).is_valid(), "an instant has gone");
        assert!(!verdict(30, 28, 3, 28, 28, 0).is_valid(), "an instant too many");
        assert!(!verdict(30, 28, 2, 27, 27, 0).is_valid(), "a mail is lost");
        assert!(!verdict(30, 28, 2, 29, 28, 1).is_valid(), "a mail came twice");
        assert!(!verdict(30, 28, 2, 29, 29, 0).is_valid(), "a mail of a run that nobody knows");
    }

    #[test]
    fn the_same_seed_draws_the_same_blows() {
        let args = Args { schedules: 1, days: 30, zones: 12, outages: 4, kills: 3, seed: 7, nodes: 3 };
        let from = first_day("2026-03-01T00:00:30Z".parse().unwrap()).unwrap();
        assert_eq!(from.to_string(), "2027-03-01T00:00:30Z");
        let to = from + SignedDuration::from_hours(24 * 30);
        let draw = |seed| blows(&mut StdRng::seed_from_u64(seed), &args, from, to);
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        assert_eq!(drawn.iter().filter(|(_, blow)| *blow == Blow::Kill).count(), 3);
        assert!(drawn.len() == 7 && drawn.is_sorted());
    }
}
