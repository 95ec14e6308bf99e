//! `idle`: what schedules cost while nothing is due. The same cluster without any schedule is measured before,
//! so that the share of heartbeats can be told from the share of schedules.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::load::{self, A_YEAR, Until};
use crate::measure::{cpu_seconds, resident_mb, rounded};

/// After a change, so long until the state store has written and the log is quiet.
const SETTLE: Duration = Duration::from_secs(10);

/// Options of `idle`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Schedules, all due in a year
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub schedules: u64,
    /// How long CPU is measured, with and without schedules
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
    /// Concurrent clients that create
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub clients: u32,
}

#[derive(Serialize)]
struct Report {
    schedules: u64,
    seconds: u64,
    cpu_percent_of_a_core: BTreeMap<String, f64>,
    cpu_percent_empty: BTreeMap<String, f64>,
    rss_mb: BTreeMap<String, f64>,
    rss_mb_empty: BTreeMap<String, f64>,
    create_per_second: f64,
}

/// Runs it; what it measures cannot be wrong, only high.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let cluster = Cluster::start(start, args.nodes).await?;
    let window = Duration::from_secs(args.seconds);
    let cpu_percent_empty = measured(&cluster, window, "without schedules").await?;
    let rss_mb_empty = cluster.of_each(resident_mb)?;
    let due = SystemTime::now() + A_YEAR;
    let body = move |number| load::once_to(format!("idle-{number}"), due, 1);
    let count = Until::Count(args.schedules);
    let created = load::create(cluster.admin(), args.clients, count, "schedules", body).await?;
    eprintln!("{} schedules are created, {:.0} a second", created.count(), created.rate());
    let cpu_percent_of_a_core = measured(&cluster, window, "with them").await?;
    let report = Report {
        schedules: args.schedules,
        seconds: args.seconds,
        cpu_percent_of_a_core,
        cpu_percent_empty,
        rss_mb: cluster.of_each(resident_mb)?,
        rss_mb_empty,
        create_per_second: rounded(created.rate()),
    };
    Outcome::new(&report, true)
}

/// Percent of one core that each node uses, over the window, once the cluster is settled.
async fn measured(cluster: &Cluster, window: Duration, what: &str) -> Result<BTreeMap<String, f64>> {
    eprintln!("measuring {what}: {} s to settle, then {} s", SETTLE.as_secs(), window.as_secs());
    tokio::time::sleep(SETTLE).await;
    let (before, start) = (cluster.of_each(cpu_seconds)?, Instant::now());
    tokio::time::sleep(window).await;
    let (after, took) = (cluster.of_each(cpu_seconds)?, start.elapsed().as_secs_f64());
    let percent = after.into_iter().map(|(name, after)| {
        let used = after - before.get(&name).copied().unwrap_or(after);
        (name, rounded(100.0 * used / took))
    });
    Ok(percent.collect())
}
