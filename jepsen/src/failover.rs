//! `failover`: from `kill -9` of the leader to the first mail under the next epoch; and elections by own fault.
//!
//! The figure covers the whole way: the election, the next epoch in the ledger, the fires that were missed
//! meanwhile, a claim, a dialogue, and the accept that the sink notes. Mail flows all the time, and every kill is
//! judged: nobody twice, nobody lost, and no more in doubt than the killed nodes had sessions (I5).

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use reveille_sink::{Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::busy::Spin;
use crate::cluster::{Cluster, Start};
use crate::measure::{in_ms, monotonic_us, percentile};
use crate::stream::Stream;
use crate::tally::{Arrivals, Tally, epoch_of};
use crate::watch::Watch;

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
/// Where to look when it does not come.
const LOGS: &str = "--keep FOLDER keeps the logs of the nodes";

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
    /// Epochs after the first, until the last mail.
    elections: u64,
    /// Those after the last kill; null unless `--busy`.
    elections_by_own_fault: Option<u64>,
    mails: u64,
    in_doubt: u64,
    arrived_of_in_doubt: u64,
    duplicates: u64,
    lost: u64,
    unexplained: u64,
    valid: bool,
}

#[derive(Serialize)]
struct Failover {
    p50: Option<f64>,
    max: Option<f64>,
}

/// Runs it; valid when nothing was lost, nothing came twice, and doubt kept its bound.
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
    note_epochs(&sink, &watch);
    // Where nobody was killed the watch may not have looked yet; the first epoch is nobody's fault.
    let before = watch.epochs().max(1);
    if args.busy {
        keep_busy(&cluster, &mut stream, Duration::from_secs(args.seconds)).await?;
        note_epochs(&sink, &watch);
    }
    let tally = judge(&cluster, &sink, &stream, &watch).await?;
    took_us.sort_unstable();
    let at = |per_cent| percentile(&took_us, per_cent).map(in_ms);
    let report = Report {
        kills: args.kills,
        failover_ms: Failover { p50: at(50.0), max: at(100.0) },
        elections: watch.epochs().saturating_sub(1),
        elections_by_own_fault: args.busy.then(|| watch.epochs().saturating_sub(before)),
        mails: tally.arrived,
        in_doubt: tally.in_doubt,
        arrived_of_in_doubt: tally.in_doubt_arrived,
        duplicates: tally.duplicates,
        lost: tally.lost,
        unexplained: tally.unexplained,
        valid: tally.is_clean() && keeps_its_bound(args.kills, &tally),
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
    let phase = Duration::from_millis(u64::from(number) * PHASE_STEP_MS % PHASES_MS);
    let (leader, epoch) = leader_at(cluster, sink, phase).await?;
    let killed_us = monotonic_us();
    cluster.kill(&leader)?;
    let until = Instant::now() + COMES_WITHIN;
    let (accepted_us, next) = loop {
        if let Some(first) = first_since(sink, epoch + 1, killed_us) {
            break first;
        }
        if Instant::now() > until {
            bail!("no mail came under a next epoch within {} s after the kill; {LOGS}", COMES_WITHIN.as_secs());
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

/// The leader and its epoch, so long after a mail of that epoch came, and still leading then.
async fn leader_at(cluster: &Cluster, sink: &Sink, phase: Duration) -> Result<(String, u64)> {
    let until = Instant::now() + COMES_WITHIN;
    loop {
        if let Some((leader, epoch)) = cluster.leader().await
            && first_since(sink, epoch, 0).is_some()
        {
            tokio::time::sleep(phase).await;
            if cluster.leader().await.is_some_and(|(_, now)| now == epoch) {
                return Ok((leader, epoch));
            }
        }
        if Instant::now() > until {
            bail!("no mail came under the leader's epoch within {} s; {LOGS}", COMES_WITHIN.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// When the first mail of this epoch or a later one was accepted (CLOCK_BOOTTIME, microseconds), and its epoch;
/// of mails that were accepted at this instant or later.
fn first_since(sink: &Sink, epoch: u64, since_us: i64) -> Option<(i64, u64)> {
    let mails = sink.mails();
    let newest = mails.iter().rev().take(NEWEST);
    let fenced =
        newest.filter_map(|(_, mail)| Some((mail.accept_monotonic_us as i64, epoch_of(mail.fence.as_deref()?)?)));
    fenced.filter(|(at_us, of)| *of >= epoch && *at_us >= since_us).min()
}

/// An epoch may be over before its leader is asked; its mails name it all the same.
fn note_epochs(sink: &Sink, watch: &Watch) {
    let mails = sink.mails();
    mails.iter().filter_map(|(_, mail)| epoch_of(mail.fence.as_deref()?)).for_each(|epoch| watch.saw(epoch));
}

/// I5: a kill leaves in doubt at most what was past the gate, and that is one mail a session.
fn keeps_its_bound(kills: u32, tally: &Tally) -> bool {
    tally.in_doubt <= u64::from(kills) * u64::from(SESSIONS)
}

/// Keeps all cores busy; nobody is killed.
async fn keep_busy(cluster: &Cluster, stream: &mut Stream, length: Duration) -> Result<()> {
    stream.extend(cluster.admin(), SystemTime::now() + length + COVER).await?;
    let spin = Spin::start();
    eprintln!("{} threads keep all cores busy for {} s", spin.threads(), length.as_secs());
    tokio::time::sleep(length).await;
    drop(spin);
    // What began in the last moment shows a moment later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

/// Judges once the stream has ended, everybody arrived or is in doubt, and doubts stay as they are.
async fn judge(cluster: &Cluster, sink: &Sink, stream: &Stream, watch: &Watch) -> Result<Tally> {
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
            note_epochs(sink, watch);
            return Ok(tally);
        }
        tokio::time::sleep(10 * LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_is_bounded_by_the_sessions_of_those_who_were_killed() {
        let tally = |in_doubt| Tally { in_doubt, ..Tally::default() };
        assert!(keeps_its_bound(2, &tally(20)) && !keeps_its_bound(2, &tally(21)));
        assert!(keeps_its_bound(0, &tally(0)) && !keeps_its_bound(0, &tally(1)), "nobody was killed");
    }
}
