//! `punctual`: how late mails come when many schedules are due in the same second.
//!
//! Lateness is the sink's note of the accept minus the due instant: one machine, one wall clock. A negative
//! lateness would be a mail that came early: counted, told, and not valid.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use reveille_sink::{Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::load::{self, A_YEAR, Until};
use crate::measure::{in_ms, percentile, rounded, unix_us};
use crate::tally::Arrivals;

/// Creates are over at least this long before the due instant.
const QUIET_BEFORE: Duration = Duration::from_secs(5);
/// Mails a second that are waited for, at the least, after the due instant; and what is added to it.
const SLOWEST_PER_SECOND: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(120);
/// After the last mail, so long for one that comes twice.
const QUIET_AFTER: Duration = Duration::from_secs(3);
/// Schedules by which the rate of creates is found out, where none are kept.
const TRIAL: std::ops::RangeInclusive<u64> = 20..=500;

/// Options of `punctual`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Schedules that are due in the same second
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub schedules: u64,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
    /// Recipients of each schedule
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub recipients: u32,
    /// Further schedules, due in a year, that the cluster keeps meanwhile
    #[arg(long, default_value_t = 0, value_name = "SCHEDULES")]
    pub kept: u64,
    /// Concurrent clients that create
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub clients: u32,
    /// Sessions to the sink, on each node
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub sessions: u32,
}

#[derive(Serialize)]
struct Report {
    schedules: u64,
    recipients: u32,
    kept: u64,
    arrived: u64,
    duplicates: u64,
    missing: u64,
    unexplained: u64,
    early: u64,
    lateness_ms: Lateness,
    create_per_second: f64,
    /// From just before the due instant until the last mail.
    cpu_seconds: BTreeMap<String, f64>,
    valid: bool,
}

#[derive(Serialize)]
struct Lateness {
    /// Far above zero: an offset, not a queue.
    min: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// Runs it; valid when each mail came exactly once, and none before its instant.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let mails = args.schedules * u64::from(args.recipients);
    let sink = Sink::start(SinkOptions { keep_records: 2 * mails as usize, keep_bodies: 0, ..SinkOptions::default() })?;
    let cluster = Cluster::start(start, args.nodes).await?;
    cluster.admin().add_relay(sink.address(), args.sessions).await?;
    let (due, create_per_second) = prepare(&cluster, args).await?;
    wait_until(due - Duration::from_secs(1)).await;
    let before = cluster.cpu_seconds()?;
    let patience = PATIENCE + Duration::from_secs(mails / SLOWEST_PER_SECOND);
    if let Err(missing) = sink.wait_for(mails, patience).await {
        eprintln!("{missing}");
    }
    let cpu_seconds = cluster.cpu_seconds()?.into_iter().map(|(name, after)| {
        let used = after - before.get(&name).copied().unwrap_or(0.0);
        (name, rounded(used))
    });
    let cpu_seconds = cpu_seconds.collect();
    tokio::time::sleep(QUIET_AFTER).await;
    report(args, &sink, due, create_per_second, cpu_seconds)
}

/// Creates everything; answers the due instant and how many creates a second there were.
async fn prepare(cluster: &Cluster, args: &Args) -> Result<(SystemTime, f64)> {
    let trial = args.kept.max((args.schedules / 20).clamp(*TRIAL.start(), *TRIAL.end()));
    let later = SystemTime::now() + A_YEAR;
    let what = "schedules due in a year";
    let body = move |number| load::once_to(format!("kept-{number}"), later, 1);
    let kept = load::create(cluster.admin(), args.clients, Until::Count(trial), what, body).await?;
    eprintln!("{} {what} are created, {:.0} a second", kept.count(), kept.rate());

    let ahead = Duration::from_secs_f64(2.0 * args.schedules as f64 / kept.rate()) + 2 * QUIET_BEFORE;
    let due = whole_second(SystemTime::now() + ahead);
    let (what, recipients) = ("schedules due together", args.recipients);
    let body = move |number| load::once_to(format!("due-{number}"), due, recipients);
    let created = load::create(cluster.admin(), args.clients, Until::Count(args.schedules), what, body).await?;
    let left = due.duration_since(SystemTime::now()).unwrap_or_default();
    if left < QUIET_BEFORE {
        let next = "choose fewer --schedules, or a quieter machine";
        bail!("creating slowed down so much that {:.1} s are left to the due instant; {next}", left.as_secs_f64());
    }
    eprintln!("{} {what} are created; due in {:.0} s", created.count(), left.as_secs_f64());
    Ok((due, rounded(created.rate())))
}

fn report(
    args: &Args,
    sink: &Sink,
    due: SystemTime,
    create_per_second: f64,
    cpu_seconds: BTreeMap<String, f64>,
) -> Result<Outcome> {
    let mails = sink.mails();
    let names = (0..args.schedules).map(|number| format!("due-{number}"));
    let expected = names.flat_map(|name| (0..args.recipients).map(move |number| load::address(&name, number)));
    let tally = Arrivals::of(&mails).judge(expected, &BTreeSet::new());
    let due_us = unix_us(due);
    let mut lateness_us: Vec<i64> = mails.iter().map(|(_, mail)| mail.accept_unix_us as i64 - due_us).collect();
    lateness_us.sort_unstable();
    let at = |per_cent| percentile(&lateness_us, per_cent).map(in_ms);
    let early = lateness_us.iter().filter(|lateness| **lateness < 0).count() as u64;
    if early > 0 {
        eprintln!("{early} mails came before their instant, the first by {:?} ms", at(0.0).map(|ms| -ms));
    }
    let report = Report {
        schedules: args.schedules,
        recipients: args.recipients,
        kept: args.kept,
        arrived: tally.arrived,
        duplicates: tally.duplicates,
        missing: tally.lost,
        unexplained: tally.unexplained,
        early,
        lateness_ms: Lateness { min: at(0.0), p50: at(50.0), p99: at(99.0), max: at(100.0) },
        create_per_second,
        cpu_seconds,
        valid: tally.is_clean() && early == 0,
    };
    Outcome::new(&report, report.valid)
}

fn whole_second(at: SystemTime) -> SystemTime {
    let seconds = unix_us(at) as u64 / 1_000_000;
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds + 1)
}

async fn wait_until(at: SystemTime) {
    tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_due_instant_is_a_whole_second_and_not_earlier() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        assert_eq!(whole_second(at), SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_001));
    }
}
