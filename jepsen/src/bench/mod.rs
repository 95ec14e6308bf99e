//! `bench`: how many mails a second a healthy cluster hands off, of one run with a sealed audience.
//!
//! The rate counts accepts by the sink's clock, from two seconds after the first to the last. Valid when each
//! recipient got exactly one mail, or is in doubt after a kill, and nobody else got any. A sink of others keeps no
//! record: there the ledger's own count is all that is known, and nothing is verified.

mod weight;
mod yardstick;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use reveille_proto::admin::v1::{Audience, Content, RunCounts, ScheduleBody, When, when};
use reveille_sink::Accepted;
use serde::Serialize;

use crate::cluster::{Cluster, Start};
use crate::flow::{self, Flow};
use crate::measure::{resident_mb, rounded, unix_us};
use crate::tally::Numbers;
use crate::{Outcome, sink};

const SCHEDULE: &str = "bench";
/// From the create to the due instant.
const AHEAD: Duration = Duration::from_secs(3);
/// Mails a second that are waited for, at the least; and what is added to it.
const SLOWEST_PER_SECOND: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What is waited for, and how far it is, is said so often.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// After a kill the killed node is away for so long.
const AWAY: Duration = Duration::from_secs(5);
/// Where somebody was killed, what is left must stay as it is for so long.
const STAYS_FOR: Duration = Duration::from_secs(8);
/// After the last mail, so long for one that comes twice.
const QUIET_AFTER: Duration = Duration::from_secs(3);
const SEED: u64 = 1;

/// Options of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Recipients of the run; the sink keeps a byte for each
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=67_000_000))]
    pub recipients: u32,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
    /// Sessions to the sink, on each node
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub sessions: u32,
    /// Bytes of each mail's text
    #[arg(long, default_value_t = 2_048, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub body_bytes: u32,
    /// Send to this relay instead of a sink of our own; it keeps no record that could be verified
    #[arg(long, value_name = "ADDRESS")]
    pub sink: Option<SocketAddr>,
    /// `kill -9` the leader when a third is sent, start it again after 5 s, and tell what that cost
    #[arg(long, conflicts_with = "sink")]
    pub kill_leader: bool,
    /// Also measure `smtp-source` straight into `smtp-sink` (of Postfix), before and after, with as many sessions as
    /// one node has
    #[arg(long)]
    pub compare: bool,
}

#[derive(Serialize)]
struct Report {
    recipients: u32,
    nodes: u8,
    body_bytes: u32,
    /// How long it took to write the audience on every node, and to seal it.
    generate_seconds: f64,
    /// From the due instant to the last accept.
    seconds: f64,
    /// Accepts a second, without the first two; none of a run that is shorter.
    rate: Option<f64>,
    /// By `smtp-source` into `smtp-sink`: the mean of before and after, and the rate as a part of it.
    smtp_source_rate: Option<f64>,
    ratio: Option<f64>,
    arrived: u64,
    duplicates: u64,
    missing: u64,
    unexplained: u64,
    in_doubt: u64,
    /// Of `--kill-leader`.
    kill: Option<Kill>,
    /// From just before the due instant to the last mail.
    cpu_seconds: BTreeMap<String, f64>,
    /// At the end, of each node.
    rss_mb: BTreeMap<String, f64>,
    /// What the ledger holds more than before the run: in memory or on disk, whichever is more, on the node where it
    /// is most.
    ledger_bytes_per_recipient: f64,
    verified: bool,
}

#[derive(Serialize)]
struct Kill {
    /// Seconds of sending that are missing from the ten behind the kill, by the rate of the five before it.
    lost_seconds: Option<f64>,
    /// The longest time in these ten without an accept.
    silent_seconds: Option<f64>,
}

/// Runs it.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let before_it = yardstick_of(args).await?;
    let mails = u64::from(args.recipients);
    let (flow, numbers) = (Flow::new(unix_us(SystemTime::now()) as u64), Numbers::new(args.recipients));
    let record = Arc::new(Mutex::new(Record { flow, numbers }));
    let own = if args.sink.is_none() { Some(sink::counting(&record, Record::note)?) } else { None };
    let relay = own.as_ref().map(|sink| sink.address()).or(args.sink).context("a relay")?;
    let mut cluster = Cluster::start(start, args.nodes).await?;
    cluster.admin().add_relay(relay, args.sessions).await?;
    let begun = Instant::now();
    let made = cluster.admin().generate_audience(SCHEDULE, args.recipients, SEED, &[]);
    telling(&format!("the audience of {mails} recipients"), made).await?;
    let generate_seconds = begun.elapsed().as_secs_f64();
    eprintln!("{mails} recipients are sealed, in {generate_seconds:.1} s");
    let empty = weight::ledgers(&cluster).await?;
    let due = SystemTime::now() + AHEAD;
    cluster.admin().create(body(due, args.body_bytes)).await?;
    let before = cluster.cpu_seconds()?;
    let seen = watch(&mut cluster, args, due).await?;
    let used = cluster.cpu_seconds()?.into_iter().map(|(name, after)| {
        // A node that was started again counts from there on.
        let used = after - before.get(&name).filter(|before| **before <= after).unwrap_or(&0.0);
        (name, rounded(used))
    });
    let cpu_seconds = used.collect();
    let rss_mb = cluster.of_each(resident_mb)?;
    tokio::time::sleep(QUIET_AFTER).await;
    let full = weight::ledgers(&cluster).await?;
    let doubts = match seen.last.in_doubt {
        0 => BTreeSet::new(),
        _ => cluster.admin().doubts(&seen.run).await?,
    };
    drop(cluster);
    let after_it = yardstick_of(args).await?;
    let smtp_source_rate = before_it.zip(after_it).map(|(before, after)| rounded(f64::midpoint(before, after)));

    let record = record.lock().map_err(|_| anyhow!("counting the accepts panicked"))?;
    let rate = if own.is_some() { record.flow.rate() } else { flow::rate_of_counts(&seen.counts) };
    let arrived = if own.is_some() { record.numbers.arrived } else { seen.last.sent.into() };
    // Who is in doubt is counted as such, with a mail or without.
    let excused = doubts.iter().filter(|address| !record.numbers.has(address, SEED)).count() as u64;
    let missing = mails.saturating_sub(arrived + excused);
    let (duplicates, unexplained) = (record.numbers.duplicates, record.numbers.unexplained);
    let valid = missing == 0 && duplicates == 0 && unexplained == 0;
    let last_us = record.flow.last_us().unwrap_or_else(|| seen.stopped_us());
    let report = Report {
        recipients: args.recipients,
        nodes: args.nodes,
        body_bytes: args.body_bytes,
        generate_seconds: rounded(generate_seconds),
        seconds: rounded(last_us.saturating_sub(unix_us(due) as u64) as f64 / 1e6),
        rate: rate.map(rounded),
        smtp_source_rate,
        ratio: rate.zip(smtp_source_rate).map(|(rate, yardstick)| rounded(rate / yardstick)),
        arrived,
        duplicates,
        missing,
        unexplained,
        in_doubt: seen.last.in_doubt.into(),
        kill: seen.killed_us.map(|killed| Kill::of(record.flow.cost_of_a_kill(killed))),
        cpu_seconds,
        rss_mb,
        ledger_bytes_per_recipient: rounded(weight::most_grown(&empty, &full) as f64 / f64::from(args.recipients)),
        verified: own.is_some() && valid,
    };
    Outcome::new(&report, valid)
}

impl Kill {
    fn of(cost: Option<flow::Cost>) -> Kill {
        Kill {
            lost_seconds: cost.map(|cost| rounded(cost.lost_seconds)),
            silent_seconds: cost.map(|cost| rounded(cost.silent_seconds)),
        }
    }
}

/// What a sink of our own accepted; of another one, nothing.
struct Record {
    flow: Flow,
    numbers: Numbers,
}

impl Record {
    fn note(&mut self, accept: &Accepted) {
        self.flow.note(accept.accept_unix_us);
        self.numbers.note(&accept.recipient, SEED);
    }
}

/// What the ledger said while it went on.
struct Seen {
    run: String,
    /// Microseconds since 1970 UTC, and how many were sent by then.
    counts: Vec<(u64, u64)>,
    last: RunCounts,
    killed_us: Option<u64>,
}

impl Seen {
    /// When the count of those who were sent first stood where it stands at the end.
    fn stopped_us(&self) -> u64 {
        let sent = u64::from(self.last.sent);
        self.counts.iter().find(|(_, count)| *count == sent).map_or(0, |(at, _)| *at)
    }
}

/// Looks until nobody is pending or claimed any more; kills the leader on the way, where that is asked for.
async fn watch(cluster: &mut Cluster, args: &Args, due: SystemTime) -> Result<Seen> {
    let patience = PATIENCE + Duration::from_secs(u64::from(args.recipients) / SLOWEST_PER_SECOND);
    let until = Instant::now() + patience;
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let run = loop {
        match cluster.admin().run_of(SCHEDULE).await? {
            Some(run) => break run.run,
            None if Instant::now() > until => bail!("the run did not open; --keep FOLDER keeps the logs"),
            None => tokio::time::sleep(LOOK_EVERY).await,
        }
    };
    let mut seen = Seen { run, counts: Vec::new(), last: RunCounts::default(), killed_us: None };
    let (mut down, mut unchanged_since) = (None, Instant::now());
    let mut said = (Instant::now(), 0);
    loop {
        let counts = cluster.admin().counts(&seen.run).await?;
        if counts != seen.last {
            (seen.last, unchanged_since) = (counts, Instant::now());
        }
        seen.counts.push((unix_us(SystemTime::now()) as u64, seen.last.sent.into()));
        if said.0.elapsed() >= SAY_EVERY {
            eprintln!("{}", how_far(&seen.last, said.1, said.0.elapsed()));
            said = (Instant::now(), seen.last.sent);
        }
        let is_over = seen.last.pending + seen.last.claimed == 0;
        if args.kill_leader && seen.killed_us.is_none() && seen.last.sent >= args.recipients / 3 {
            let (leader, _) = cluster.leader().await.context("nobody leads")?;
            seen.killed_us = Some(unix_us(SystemTime::now()) as u64);
            cluster.kill(&leader)?;
            eprintln!("{leader} led, and is killed at {} mails", seen.last.sent);
            down = Some((leader, Instant::now()));
        }
        if let Some((name, _)) = down.take_if(|(_, since)| since.elapsed() >= AWAY) {
            cluster.restart(&name)?;
        }
        let stays = if args.kill_leader { STAYS_FOR } else { Duration::ZERO };
        if is_over && down.is_none() && unchanged_since.elapsed() >= stays {
            return Ok(seen);
        }
        if Instant::now() > until {
            eprintln!("not over after {} s: {:?}", patience.as_secs(), seen.last);
            return Ok(seen);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How far a run is, and how fast it went since so many were sent.
fn how_far(counts: &RunCounts, sent_before: u32, since: Duration) -> String {
    let RunCounts { sent, pending, claimed, in_doubt, .. } = *counts;
    let rate = f64::from(sent.saturating_sub(sent_before)) / since.as_secs_f64();
    format!("{sent} are sent, {rate:.0} a second; {pending} are pending, {claimed} claimed, {in_doubt} in doubt")
}

/// Says now and then that it waits, until it is done.
async fn telling<T>(what: &str, work: impl Future<Output = T>) -> T {
    let (begun, mut work) = (Instant::now(), std::pin::pin!(work));
    loop {
        match tokio::time::timeout(SAY_EVERY, &mut work).await {
            Ok(done) => return done,
            Err(_) => eprintln!("waiting for {what}, for {} s", begun.elapsed().as_secs()),
        }
    }
}

async fn yardstick_of(args: &Args) -> Result<Option<f64>> {
    if !args.compare {
        return Ok(None);
    }
    let (sessions, bytes) = (args.sessions, args.body_bytes);
    let measured = tokio::task::spawn_blocking(move || yardstick::measure(sessions, bytes));
    let rate = telling("smtp-source into smtp-sink", measured).await??;
    eprintln!("smtp-source into smtp-sink: {rate:.0} mails a second");
    Ok(Some(rate))
}

/// One run to the audience, with a template of that many bytes in lines of 64.
fn body(at: SystemTime, bytes: u32) -> ScheduleBody {
    let line = "This line is one of many, and each of them is just as long ....\n";
    let text: String = "Dear {{ recipient }}\n".chars().chain(line.chars().cycle()).take(bytes as usize).collect();
    let content = Content {
        sender: "Jepsen <jepsen@example.org>".to_owned(),
        subject: "A trial".to_owned(),
        text: Some(text),
        ..Content::default()
    };
    ScheduleBody {
        name: SCHEDULE.to_owned(),
        when: Some(When { pattern: Some(when::Pattern::At(prost_types::Timestamp::from(at))) }),
        zone: "UTC".to_owned(),
        content: Some(content),
        audience: Some(Audience { sealed: SCHEDULE.to_owned(), ..Audience::default() }),
        ..ScheduleBody::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_as_many_bytes_as_were_asked_for() {
        let text = body(SystemTime::UNIX_EPOCH, 2_048).content.unwrap().text.unwrap();
        assert_eq!(text.len(), 2_048);
    }

    #[test]
    fn it_is_said_how_far_and_how_fast() {
        let counts = RunCounts { sent: 70_000, pending: 30_000, claimed: 12, ..RunCounts::default() };
        let told = how_far(&counts, 20_000, Duration::from_secs(10));
        assert_eq!(told, "70000 are sent, 5000 a second; 30000 are pending, 12 claimed, 0 in doubt");
    }

    #[test]
    fn a_count_stopped_where_it_first_stood_at_its_end() {
        let last = RunCounts { sent: 7, ..RunCounts::default() };
        let seen = Seen { run: String::new(), counts: vec![(1, 0), (2, 5), (3, 7), (4, 7)], last, killed_us: None };
        assert_eq!(seen.stopped_us(), 3);
    }
}
