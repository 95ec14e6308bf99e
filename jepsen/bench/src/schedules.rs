//! `bench schedules`: measures the cost of many schedules. It measures the rate of creates and their syncs, the cost
//! while nothing is due, and the lateness of emails when many schedules are due in the same second.
//!
//! Lateness is the time from the due instant to the sink's accept, by one wall clock. An email before its instant makes
//! the result invalid.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use reveille_harness::load::{self, CreateLoad, LoadMeasurements};
use reveille_harness::measure::{cpu_seconds, in_ms, percentile, resident_mb, rounded, sleep_until, unix_us};
use reveille_harness::{AdminClient, Cluster, Needs, Report, StartArgs};
use reveille_proto::admin::v1::Backup;
use serde_json::{Value, json};

use crate::accepts::Accepts;
use crate::bounds::{self, Bounds};
use crate::locks::LockWatch;
use crate::{
    ARCHIVE_AFTER, ARCHIVED_QUIET, Counter, NODES, QUIET_AFTER, archived_pages, longest_wait, next_whole, restart,
    sum_of_nodes,
};

/// Number of clients that create schedules at the same time.
const CLIENTS: u32 = 64;
/// Number of sessions of each node with the sink.
const SESSIONS: u32 = 100;
/// Minimum time from the last create to the due instant.
const QUIET_BEFORE: Duration = Duration::from_secs(5);
/// Minimum number of further schedules, so that the rate of creates can be measured.
const KEPT_MIN: u64 = 500;
/// Time from the start to the first instant of the kept schedules in milliseconds, and the minutes over which they are
/// spread.
const KEPT_FIRST_MS: i64 = 6 * 3_600_000;
const KEPT_MINUTES: i64 = 12 * 60;
/// Time for which the benchmark waits after the creates, and then the time for which it measures the idle cost.
const SETTLE: Duration = Duration::from_secs(10);
const IDLE_FOR: Duration = Duration::from_secs(30);
/// Name of the nodes' counter of `fdatasync` calls of their logs.
const SYNCS: &str = "reveille_wal_syncs_total";

/// Options of `bench schedules`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Schedules that are due in the same second
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub schedules: u64,
    /// Further daily schedules with one content, due hours later; their creates are measured, and the idle cost, before
    /// and after
    #[arg(long, default_value_t = 0, value_name = "SCHEDULES", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub kept: u64,
    /// Schedules in each call that creates these further schedules
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub batch: u64,
    /// Make a backup, and read it back, when they fall due
    #[arg(long)]
    pub backup: bool,
}

/// Runs the benchmark of schedules.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let addresses = (0..args.schedules).map(|number| load::address(&format!("due-{number}"), 0));
    let (counter, sink) = Counter::start(Accepts::of(addresses), Accepts::record)?;
    let archive_after = (args.kept > 0).then_some(ARCHIVE_AFTER);
    let mut cluster =
        Cluster::start(start, NODES, Needs { archive_after, backups: args.backup, ..Needs::default() }).await?;
    cluster.admin().add_relay(sink.address(), SESSIONS).await?;
    let locks = LockWatch::start(&cluster);
    let first_epoch = cluster.admin().status().await?.epoch;

    let empty = idle_if(&cluster, args.kept > 0).await?;
    let syncs_before = sum_of_nodes(&cluster, SYNCS).await?;
    let now_ms = unix_us(SystemTime::now()) / 1_000;
    let body = move |number: u64| {
        let minutes = number as i64 % KEPT_MINUTES;
        load::daily(format!("kept-{number}"), now_ms + KEPT_FIRST_MS + minutes * 60_000)
    };
    let creates = CreateLoad { clients: CLIENTS, count: args.kept.max(KEPT_MIN), batch: args.batch };
    let kept = load::create(cluster.admin(), creates, "daily schedules", body).await?;
    let syncs = (sum_of_nodes(&cluster, SYNCS).await? - syncs_before) / u64::from(NODES);
    eprintln!("{} daily schedules, {:.0} a second", kept.count, kept.rate());
    let full = idle_if(&cluster, args.kept > 0).await?;

    let due = create_due(&cluster, args, &kept).await?;
    sleep_until(due - Duration::from_secs(1)).await;
    let before = cluster.cpu_seconds()?;
    let backup = args.backup.then(|| tokio::spawn(make_backup(cluster.admin().clone())));
    let wait = longest_wait(args.schedules);
    // The counts below show missing emails.
    let _ = sink.wait_for(args.schedules, wait).await;
    let cpu_seconds = cluster.cpu_seconds_since(&before)?;
    let backup = match backup {
        Some(backup) => Some(backup.await??),
        None => None,
    };
    tokio::time::sleep(QUIET_AFTER).await;
    if args.kept > 0 {
        archived_pages(&cluster, ARCHIVED_QUIET).await?;
    }
    let lock_ms = locks.longest_ms();
    drop(locks);
    let leader_changes = cluster.admin().status().await?.epoch - first_epoch;

    let restart = match args.kept {
        0 => None,
        _ => Some(restart::follower(&mut cluster).await?),
    };

    let accepts = counter.read();
    let late_us: Vec<i64> = accepts.instants_us(0).into_iter().map(|at_us| at_us - unix_us(due)).collect();
    let early = late_us.iter().filter(|late_us| **late_us < 0).count();
    let valid = accepts.is_exact() && early == 0;
    let mut bounds = Bounds::default();
    if args.kept >= bounds::MANY_CREATES && args.batch == 1 {
        bounds.add(bounds::CREATES, Some(rounded(kept.rate())));
    }
    if args.kept >= bounds::MANY_CREATES && args.batch >= bounds::LARGE_BATCH {
        bounds.add(bounds::CREATES_IN_BATCHES, Some(rounded(kept.rate())));
    }
    if let (bounds::MANY_SCHEDULES.., Some(full)) = (args.kept, &full) {
        bounds.add_all(bounds::RSS_MB, full.rss_mb.values());
        bounds.add_all(bounds::IDLE_PERCENT, full.cpu_percent.values());
        bounds.add(bounds::RESTART_SECONDS, restart.as_ref().and_then(|restart| restart["ready"].as_f64()));
        bounds.add_all(bounds::LOCK_MS, lock_ms.values());
        bounds.add(bounds::LEADER_CHANGES, Some(leader_changes as f64));
    }
    if args.schedules >= bounds::STORM {
        bounds.add(bounds::STORM_LAST_MS, late_us.last().map(|late_us| in_ms(*late_us)));
    }
    let figures = json!({
        "schedules": args.schedules,
        "kept": args.kept,
        "batch": args.batch,
        "create_per_second": rounded(kept.rate()),
        "create_ms": percentiles(&kept.latencies_us),
        // By the average of the nodes, since each node syncs each create.
        "creates_per_fsync": rounded(kept.count as f64 / syncs.max(1) as f64),
        // Without schedules, and with the further schedules; null without `--kept`.
        "idle": empty.zip(full).map(|(empty, full)| [empty.figures(), full.figures()]),
        "emails": accepts.figures(),
        "early": early,
        "lateness_ms": percentiles(&late_us),
        // Processor time from just before the due instant to the last email.
        "cpu_seconds": cpu_seconds,
        // The duration of the backup, and what it consists of; null without `--backup`.
        "backup": backup,
        // The longest time for which such work held the ledger's lock on any node, and leaders after the first one.
        // Without `--kept` nothing is archived.
        "lock_ms": lock_ms,
        "leader_changes": leader_changes,
        // Of a killed follower with the kept schedules; null without `--kept`.
        "restart_seconds": restart,
        "valid": valid,
    });
    bounds.report(figures, valid)
}

/// Makes a backup. Returns its duration and its size.
async fn make_backup(admin: AdminClient) -> Result<Value> {
    let begun = Instant::now();
    let Backup { bytes, copied_bytes, files, .. } = admin.back_up().await?;
    let seconds = rounded(begun.elapsed().as_secs_f64());
    Ok(json!({"seconds": seconds, "bytes": bytes, "copied_bytes": copied_bytes, "files": files}))
}

/// Returns some percentiles of sorted durations, in milliseconds.
pub fn percentiles(sorted_us: &[i64]) -> Value {
    let at = |percent| percentile(sorted_us, percent).map(in_ms);
    json!({"min": at(0.0), "p50": at(50.0), "p99": at(99.0), "max": at(100.0)})
}

/// Creates the schedules that are due together. Returns their instant, a whole second.
async fn create_due(cluster: &Cluster, args: &Args, kept: &LoadMeasurements) -> Result<SystemTime> {
    let ahead = Duration::from_secs_f64(2.0 * args.schedules as f64 / kept.rate()) + 2 * QUIET_BEFORE;
    let creates = CreateLoad { clients: CLIENTS, count: args.schedules, batch: args.batch };
    let due = next_whole(1, SystemTime::now() + ahead);
    let body = move |number| load::once_alike(format!("due-{number}"), due);
    load::create(cluster.admin(), creates, "schedules due together", body).await?;
    let left = due.duration_since(SystemTime::now()).unwrap_or_default();
    ensure!(left >= QUIET_BEFORE, "the creates slowed down too much; choose fewer --schedules or a quieter machine");
    Ok(due)
}

/// The cost of each node while nothing is due.
struct IdleCost {
    /// Processor time, in percent of a core.
    cpu_percent: BTreeMap<String, f64>,
    /// Resident memory.
    rss_mb: BTreeMap<String, f64>,
}

impl IdleCost {
    fn figures(&self) -> Value {
        json!({"cpu_percent_of_a_core": self.cpu_percent, "rss_mb": self.rss_mb})
    }
}

/// Measures the cost of each node while nothing is due.
async fn idle_if(cluster: &Cluster, wanted: bool) -> Result<Option<IdleCost>> {
    if !wanted {
        return Ok(None);
    }
    eprintln!("measuring the idle cluster for {} s", (SETTLE + IDLE_FOR).as_secs());
    tokio::time::sleep(SETTLE).await;
    let (before, start) = (cluster.of_each(cpu_seconds)?, Instant::now());
    tokio::time::sleep(IDLE_FOR).await;
    let (after, took) = (cluster.of_each(cpu_seconds)?, start.elapsed().as_secs_f64());
    let percent = after.into_iter().map(|(name, after)| {
        let used = after - before.get(&name).copied().unwrap_or(after);
        (name, rounded(100.0 * used / took))
    });
    Ok(Some(IdleCost { cpu_percent: percent.collect(), rss_mb: cluster.of_each(resident_mb)? }))
}
