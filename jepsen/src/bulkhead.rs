//! `bulkhead`: how late one tenant's mails are on an idle cluster, and beside another tenant's backlog (I12).
//!
//! The other tenant has a run of many to the same relay, and one to a relay that takes connections and never says a
//! word. The small tenant's mails are due in one second, first on the idle cluster, then in the middle of that.
//! Lateness is the sink's note of the accept minus the due instant. Valid when all of them came, the backlog was
//! there from the first to the last, and the loaded p99 is within twice the idle one and a floor.

use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use reveille_proto::admin::v1::{Audience, ScheduleBody};
use reveille_sink::{Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::load;
use crate::measure::{in_ms, percentile, unix_us};

/// From a create to its due instant.
const AHEAD: Duration = Duration::from_secs(3);
/// The backlog is under way for so long before the small tenant's mails are due.
const UNDER_WAY: Duration = Duration::from_secs(2);
/// How long the small tenant's mails are waited for.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const SEED: u64 = 1;
/// The tenant that sends a few mails; the backlog is the default one's.
const SMALL: &str = "small";

/// Options of `bulkhead`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Recipients of the other tenant's backlog; the sink keeps some 500 bytes of memory for each
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=20_000_000))]
    pub recipients: u32,
    /// Mails of the small tenant
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub mails: u32,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
    /// Sessions to the sink, on each node
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub sessions: u32,
    /// What is granted beyond twice the idle p99: what a busy machine takes for itself
    #[arg(long, default_value_t = 250, value_name = "MS")]
    pub floor_ms: u32,
}

#[derive(Serialize)]
struct Report {
    recipients: u32,
    mails: u32,
    nodes: u8,
    floor_ms: u32,
    idle_p99_ms: Option<f64>,
    loaded_p99_ms: Option<f64>,
    idle_arrived: usize,
    loaded_arrived: usize,
    /// Mails of the backlog between the loaded mails' instant and the last of them.
    backlog_meanwhile: u64,
    /// Mails of the backlog that were still to come after the last of them.
    backlog_left: u64,
    valid: bool,
}

/// Runs it.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let keep_records = args.recipients as usize + 2 * args.mails as usize + 1_024;
    let sink = Sink::start(SinkOptions { keep_records, keep_bodies: 0, ..SinkOptions::default() })?;
    // Its backlog of connections is answered by the kernel; nobody ever speaks.
    let dead = TcpListener::bind(("127.0.0.1", 0)).context("a port for the dead relay")?;
    let cluster = Cluster::start(start, args.nodes).await?;
    let admin = cluster.admin();
    admin.add_relay(sink.address(), args.sessions).await?;
    admin.add_relay_of("dead", "dead", dead.local_addr().context("its address")?, args.sessions).await?;

    let idle = small(&cluster, &sink, args, "idle").await?;
    eprintln!("idle: {} of {} came", idle.us.len(), args.mails);
    admin.generate_audience("backlog", args.recipients, SEED).await?;
    let due = SystemTime::now() + AHEAD;
    for (name, pool) in [("backlog", "default"), ("dead", "dead")] {
        admin.create(backlog(name, pool, due)).await?;
    }
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default() + UNDER_WAY).await;
    let loaded = small(&cluster, &sink, args, "loaded").await?;
    report(args, &sink, &idle, &loaded)
}

/// How late the small tenant's mails were, sorted, and between which instants they were waited for.
struct Lateness {
    us: Vec<i64>,
    due_us: i64,
    last_us: i64,
}

async fn small(cluster: &Cluster, sink: &Sink, args: &Args, name: &str) -> Result<Lateness> {
    let due = SystemTime::now() + AHEAD;
    let schedule = ScheduleBody { tenant: SMALL.to_owned(), ..load::once_to(name.to_owned(), due, args.mails) };
    cluster.admin().create(schedule).await?;
    let (due_us, until) = (unix_us(due), due + PATIENCE);
    let mut us: Vec<i64> = Vec::new();
    while us.len() < args.mails as usize && SystemTime::now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        let own = sink.find(|mail| mail.recipient.starts_with(&format!("{name}-")));
        us = own.iter().map(|mail| mail.accept_unix_us as i64 - due_us).collect();
    }
    us.sort_unstable();
    let last_us = due_us + us.last().copied().unwrap_or_default();
    Ok(Lateness { us, due_us, last_us })
}

fn report(args: &Args, sink: &Sink, idle: &Lateness, loaded: &Lateness) -> Result<Outcome> {
    let of_backlog = sink.find(|mail| mail.recipient.ends_with("@audience.invalid"));
    let by = |us: i64| of_backlog.iter().filter(|mail| (mail.accept_unix_us as i64) < us).count() as u64;
    let meanwhile = by(loaded.last_us).saturating_sub(by(loaded.due_us));
    let left = u64::from(args.recipients).saturating_sub(by(loaded.last_us));
    let p99 = |lateness: &Lateness| percentile(&lateness.us, 99.0).map(in_ms);
    let (idle_p99_ms, loaded_p99_ms) = (p99(idle), p99(loaded));
    let bound = idle_p99_ms.map(|idle| 2.0 * idle + f64::from(args.floor_ms));
    let within = loaded_p99_ms.zip(bound).is_some_and(|(loaded, bound)| loaded <= bound);
    let all = [idle, loaded].iter().all(|lateness| lateness.us.len() == args.mails as usize);
    let report = Report {
        recipients: args.recipients,
        mails: args.mails,
        nodes: args.nodes,
        floor_ms: args.floor_ms,
        idle_p99_ms,
        loaded_p99_ms,
        idle_arrived: idle.us.len(),
        loaded_arrived: loaded.us.len(),
        backlog_meanwhile: meanwhile,
        backlog_left: left,
        // Beside a backlog that was over nothing was measured.
        valid: all && within && left > 0,
    };
    Outcome::new(&report, report.valid)
}

/// A run of the other tenant to all of its audience, by that pool.
fn backlog(name: &str, pool: &str, due: SystemTime) -> ScheduleBody {
    ScheduleBody {
        pool: pool.to_owned(),
        audience: Some(Audience { sealed: "backlog".to_owned(), ..Audience::default() }),
        ..load::once(name.to_owned(), due, Vec::new())
    }
}
