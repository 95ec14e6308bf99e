//! `failover`: from `kill -9` of the leader to the first mail under the next epoch; and elections by own fault.
//!
//! The figure covers the whole way: the election, the next epoch in the ledger, the fires that were missed
//! meanwhile, a claim, a dialogue, and the accept that the sink notes. Mail flows all the time, and every kill is
//! judged: nobody twice, nobody lost.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use reveille_sink::{Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::busy::{Spin, Watch};
use crate::cluster::{Cluster, Start};
use crate::measure::{in_ms, monotonic_us, percentile};
use crate::stream::Stream;
use crate::tally::{Arrivals, Tally, epoch_of};

/// Sessions on each node: plenty for the stream.
const SESSIONS: u32 = 10;
/// Mail is created so far ahead of a kill.
const COVER: Duration = Duration::from_secs(20);
/// A thing that is to come is waited for this long.
const COMES_WITHIN: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Kills come at another place between two heartbeats and two renewals of leases each time.
const PHASE_STEP_MS: u64 = 137;
const PHASES_MS: u64 = 1_000;
/// At the end, doubts that stay the same so long are what is left of them.
const STAYS_FOR: Duration = Duration::from_secs(8);
/// Mails among which the first of a new epoch is looked for: far more than arrive between two looks.
const NEWEST: usize = 5_000;

/// Options of `failover`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Kills of the leader, one after the other; each time the cluster is whole again before the next
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub kills: u32,
    /// Afterwards keep all cores busy and count elections that nobody asked for
    #[arg(long)]
    pub busy: bool,
    /// For how long the cores are busy
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// Mails a second meanwhile
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub rate: u32,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    pub nodes: u8,
}

#[derive(Serialize)]
struct Report {
    kills: u32,
    failover_ms: Failover,
    elections: u64,
    /// Null unless `--busy`.
    elections_by_own_fault: Option<u64>,
    mails: u64,
    in_doubt: u64,
    arrived_of_in_doubt: u64,
    duplicates: u64,
    lost: u64,
    valid: bool,
}

#[derive(Serialize)]
struct Failover {
    p50: Option<f64>,
    max: Option<f64>,
}

/// Runs it; valid when nothing was lost and nothing came twice.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    if args.kills == 0 && !args.busy {
        bail!("--kills 0 without --busy leaves nothing to do");
    }
    let sink = Sink::start(SinkOptions { keep_bodies: 0, keep_records: 1_000_000, ..SinkOptions::default() })?;
    let mut cluster = Cluster::start(start, args.nodes).await?;
    cluster.admin().add_relay(sink.address(), SESSIONS).await?;
    let watch = Watch::start(&cluster);
    let mut stream = Stream::new(args.rate);
    let mut took_us = Vec::new();
    for number in 0..args.kills {
        took_us.push(kill_the_leader(&mut cluster, &sink, &mut stream, &watch, number).await?);
    }
    let elections = watch.epochs().saturating_sub(1);
    let elections_by_own_fault = match args.busy {
        true => Some(keep_busy(&cluster, &mut stream, &watch, Duration::from_secs(args.seconds)).await?),
        false => None,
    };
    let tally = judge(&cluster, &sink, &stream).await?;
    took_us.sort_unstable();
    let at = |per_cent| percentile(&took_us, per_cent).map(in_ms);
    let report = Report {
        kills: args.kills,
        failover_ms: Failover { p50: at(50.0), max: at(100.0) },
        elections,
        elections_by_own_fault,
        mails: tally.arrived,
        in_doubt: tally.in_doubt,
        arrived_of_in_doubt: tally.in_doubt_arrived,
        duplicates: tally.duplicates,
        lost: tally.lost,
        valid: tally.is_clean(),
    };
    Outcome::new(&report, report.valid)
}

/// One kill; from it to the first accept under a later epoch. Microseconds.
async fn kill_the_leader(
    cluster: &mut Cluster,
    sink: &Sink,
    stream: &mut Stream,
    watch: &Watch,
    number: u32,
) -> Result<i64> {
    stream.extend(cluster.admin(), SystemTime::now() + COVER).await?;
    let phase = u64::from(number) * PHASE_STEP_MS % PHASES_MS;
    let until = Instant::now() + COMES_WITHIN;
    let (leader, epoch) = loop {
        if let Some((leader, epoch)) = cluster.leader().await
            && first_since(sink, epoch).is_some()
        {
            break (leader, epoch);
        }
        if Instant::now() > until {
            bail!("no mail came under the leader's epoch within {} s", COMES_WITHIN.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    tokio::time::sleep(Duration::from_millis(phase)).await;

    let killed_us = monotonic_us();
    cluster.kill(&leader)?;
    let until = Instant::now() + COMES_WITHIN;
    let (accepted_us, next) = loop {
        if let Some(first) = first_since(sink, epoch + 1) {
            break first;
        }
        if Instant::now() > until {
            bail!("no mail came under a next epoch within {} s after the kill", COMES_WITHIN.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    watch.saw(next);
    let took_us = accepted_us - killed_us;
    eprintln!(
        "kill {}: {leader} led epoch {epoch}; first mail of epoch {next} after {} ms",
        number + 1,
        in_ms(took_us)
    );
    cluster.restart(&leader)?;
    cluster.wait_until_healthy().await?;
    Ok(took_us)
}

/// When the first mail of this epoch or a later one was accepted (CLOCK_BOOTTIME, microseconds), and its epoch.
fn first_since(sink: &Sink, epoch: u64) -> Option<(i64, u64)> {
    let mails = sink.mails();
    let newest = mails.iter().rev().take(NEWEST);
    let fenced =
        newest.filter_map(|(_, mail)| Some((mail.accept_monotonic_us as i64, epoch_of(mail.fence.as_deref()?)?)));
    fenced.filter(|(_, of)| *of >= epoch).min()
}

/// Elections while all cores are busy and nobody is killed.
async fn keep_busy(cluster: &Cluster, stream: &mut Stream, watch: &Watch, length: Duration) -> Result<u64> {
    stream.extend(cluster.admin(), SystemTime::now() + length + COVER).await?;
    let before = watch.epochs();
    let spin = Spin::start();
    eprintln!("{} threads keep all cores busy for {} s", spin.threads(), length.as_secs());
    tokio::time::sleep(length).await;
    drop(spin);
    // What began in the last moment shows a moment later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(watch.epochs() - before)
}

/// Judges once the stream has ended, everybody arrived or is in doubt, and doubts stay as they are.
async fn judge(cluster: &Cluster, sink: &Sink, stream: &Stream) -> Result<Tally> {
    let end = stream.end().unwrap_or(SystemTime::now());
    let left = end.duration_since(SystemTime::now()).unwrap_or_default();
    eprintln!("waiting for the last {:.0} s of the stream, and until nothing moves", left.as_secs_f64());
    tokio::time::sleep(left).await;
    let until = Instant::now() + COMES_WITHIN;
    let (mut former, mut since) = (Tally::default(), Instant::now());
    loop {
        let doubts = cluster.admin().doubts("").await?;
        let tally = Arrivals::of(&sink.mails()).judge(stream.expected(end), &doubts);
        if tally != former {
            (former, since) = (tally, Instant::now());
        } else if (tally.lost == 0 && since.elapsed() >= STAYS_FOR) || Instant::now() > until {
            return Ok(tally);
        }
        tokio::time::sleep(10 * LOOK_EVERY).await;
    }
}
