//! `bench`: how many mails a second a healthy cluster hands off, of one run with a sealed audience.
//!
//! The rate counts accepts by the sink's clock, from two seconds after the first to the last. Valid when each
//! recipient got exactly one mail, and nobody else any.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use reveille_proto::admin::v1::{Audience, Content, ScheduleBody, When, when};
use reveille_sink::{Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::measure::{cpu_seconds, resident_mb, rounded};
use crate::tally::Numbers;

/// From the create to the due instant.
const AHEAD: Duration = Duration::from_secs(3);
/// The beginning that is left out of the rate.
const WARM_UP_US: u64 = 2_000_000;
/// Mails a second that are waited for, at the least; and what is added to it.
const SLOWEST_PER_SECOND: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(120);
/// After the last mail, so long for one that comes twice.
const QUIET_AFTER: Duration = Duration::from_secs(3);
const SEED: u64 = 1;

/// Options of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Recipients of the run; the sink keeps some 500 bytes of memory for each
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
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
    arrived: u64,
    duplicates: u64,
    missing: u64,
    unexplained: u64,
    /// From just before the due instant to the last mail.
    cpu_seconds: BTreeMap<String, f64>,
    /// At the end, of each node.
    rss_mb: BTreeMap<String, f64>,
    verified: bool,
}

/// Runs it.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let mails = u64::from(args.recipients);
    let keep_records = usize::try_from(mails + mails / 10 + 1_024).context("a count")?;
    let sink = Sink::start(SinkOptions { keep_records, keep_bodies: 0, ..SinkOptions::default() })?;
    let cluster = Cluster::start(start, args.nodes).await?;
    cluster.admin().add_relay(sink.address(), args.sessions).await?;
    let begun = std::time::Instant::now();
    cluster.admin().generate_audience("bench", args.recipients, SEED).await?;
    let generate_seconds = begun.elapsed().as_secs_f64();
    eprintln!("{mails} recipients are sealed, in {generate_seconds:.1} s");
    let due = SystemTime::now() + AHEAD;
    cluster.admin().create(body(due, args.body_bytes)).await?;
    let before = cpu(&cluster)?;
    if let Err(missing) = sink.wait_for(mails, PATIENCE + Duration::from_secs(mails / SLOWEST_PER_SECOND)).await {
        eprintln!("{missing}");
    }
    let used = cpu(&cluster)?.into_iter().map(|(name, after)| {
        let used = after - before.get(&name).copied().unwrap_or(0.0);
        (name, rounded(used))
    });
    let cpu_seconds = used.collect();
    let nodes = cluster.nodes().iter().filter_map(|node| Some((node.name.clone(), node.process_id()?)));
    let rss_mb = nodes.map(|(name, process)| Ok((name, resident_mb(process)?))).collect::<Result<_>>()?;
    tokio::time::sleep(QUIET_AFTER).await;
    let (mut accepts, mut numbers) = (Vec::with_capacity(keep_records), Numbers::new(args.recipients));
    for (_, mail) in sink.mails().iter() {
        accepts.push(mail.accept_unix_us);
        numbers.note(&mail.recipient, SEED);
    }
    accepts.sort_unstable();
    let due_us = due.duration_since(SystemTime::UNIX_EPOCH).context("a clock before 1970")?.as_micros() as u64;
    let seconds = accepts.last().map_or(0.0, |last| last.saturating_sub(due_us) as f64 / 1e6);
    let verified = numbers.is_clean();
    let report = Report {
        recipients: args.recipients,
        nodes: args.nodes,
        body_bytes: args.body_bytes,
        generate_seconds: rounded(generate_seconds),
        seconds: rounded(seconds),
        rate: rate(&accepts).map(rounded),
        arrived: numbers.arrived,
        duplicates: numbers.duplicates,
        missing: mails - numbers.arrived,
        unexplained: numbers.unexplained,
        cpu_seconds,
        rss_mb,
        verified,
    };
    Outcome::new(&report, verified)
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
        name: "bench".to_owned(),
        when: Some(When { pattern: Some(when::Pattern::At(prost_types::Timestamp::from(at))) }),
        zone: "UTC".to_owned(),
        content: Some(content),
        audience: Some(Audience { sealed: "bench".to_owned(), ..Audience::default() }),
        ..ScheduleBody::default()
    }
}

/// Accepts a second behind the warm-up, of sorted instants.
fn rate(accepts: &[u64]) -> Option<f64> {
    let (first, last) = (accepts.first()?, accepts.last()?);
    let from = first + WARM_UP_US;
    let counted = accepts.len() - accepts.partition_point(|at| *at <= from);
    (last > &from).then(|| counted as f64 * 1e6 / (last - from) as f64)
}

/// CPU of each node, and of this process as `sink`: while mails arrive it does nothing else.
fn cpu(cluster: &Cluster) -> Result<BTreeMap<String, f64>> {
    let mut used = BTreeMap::from([("sink".to_owned(), cpu_seconds(std::process::id())?)]);
    for node in cluster.nodes() {
        if let Some(process) = node.process_id() {
            used.insert(node.name.clone(), cpu_seconds(process)?);
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_leaves_the_beginning_out() {
        let accepts: Vec<u64> = (0..4_000).map(|number| 1_000 * number).collect();
        assert_eq!(rate(&accepts).map(f64::round), Some(1_000.0));
        assert_eq!(rate(&accepts[..2_000]), None, "shorter than that");
        assert_eq!(rate(&[]), None);
    }

    #[test]
    fn a_text_has_as_many_bytes_as_were_asked_for() {
        let text = body(SystemTime::UNIX_EPOCH, 2_048).content.unwrap().text.unwrap();
        assert_eq!(text.len(), 2_048);
    }
}
