//! `creates`: how many schedules a second a cluster makes durable through gRPC, and how few syncs that takes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::load::{self, A_YEAR, Until};
use crate::measure::{in_ms, percentile, rounded};
use crate::pages;

/// Counted by each node: `fdatasync` calls of its log.
const SYNCS: &str = "reveille_wal_syncs_total";

/// Options of `creates`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Concurrent clients, each with its next create when the former is answered
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub clients: u32,
    /// For how long
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
}

#[derive(Serialize)]
struct Report {
    clients: u32,
    creates: u64,
    retries: u64,
    seconds: f64,
    rate: f64,
    fsyncs: BTreeMap<String, u64>,
    /// By the average of the nodes: each of them syncs for each create.
    creates_per_fsync: f64,
    latency_ms: Latency,
}

#[derive(Serialize)]
struct Latency {
    p50: Option<f64>,
    p99: Option<f64>,
}

/// Runs it; a create that is refused is an error, one that is asked for again is counted.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let cluster = Cluster::start(start, args.nodes).await?;
    let due = SystemTime::now() + A_YEAR;
    let before = syncs(&cluster).await?;
    let until = Until::Time(Instant::now() + Duration::from_secs(args.seconds));
    let body = move |number| load::once_to(format!("create-{number}"), due, 1);
    let created = load::create(cluster.admin(), args.clients, until, "creates", body).await?;
    let fsyncs = syncs(&cluster).await?.into_iter().map(|(name, after)| {
        let former = before.get(&name).copied().unwrap_or(0);
        (name, after.saturating_sub(former))
    });
    let fsyncs: BTreeMap<String, u64> = fsyncs.collect();
    let average = fsyncs.values().sum::<u64>() as f64 / fsyncs.len().max(1) as f64;
    let at = |per_cent| percentile(&created.latencies_us, per_cent).map(in_ms);
    let report = Report {
        clients: args.clients,
        creates: created.count(),
        retries: created.retries,
        seconds: rounded(created.took.as_secs_f64()),
        rate: rounded(created.rate()),
        creates_per_fsync: rounded(created.count() as f64 / average.max(1.0)),
        fsyncs,
        latency_ms: Latency { p50: at(50.0), p99: at(99.0) },
    };
    Outcome::new(&report, true)
}

async fn syncs(cluster: &Cluster) -> Result<BTreeMap<String, u64>> {
    let mut counted = BTreeMap::new();
    for node in cluster.nodes() {
        let syncs = pages::counter(node.http, SYNCS).await;
        counted.insert(node.name.clone(), syncs.with_context(|| format!("{} shows no metrics", node.name))?);
    }
    Ok(counted)
}
