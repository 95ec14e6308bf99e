//! `bench campaign`: measures how many emails per second a cluster sends in one run with a sealed audience.
//!
//! The rate counts accepts by the sink's clock, from two seconds after the first to the last. The result is valid if
//! each recipient got exactly one email, or is in doubt after a kill, and no other address got an email.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use reveille_harness::load;
use reveille_harness::measure::{resident_mb, rounded, sleep_until, unix_us};
use reveille_harness::{Cluster, Needs, Report, StartArgs};
use reveille_proto::admin::v1::{RunCounts, ScheduleBody};
use reveille_sink::Sink;
use serde_json::{Value, json};

use crate::accepts::{self, Accepts};
use crate::bounds::{self, Bounds};
use crate::late_follower::{self, LateFollower};
use crate::lost_node::LostNode;
use crate::{ARCHIVE_AFTER, Counter, NODES, QUIET_AFTER, SEED, SESSIONS, longest_wait, smtp_source};

const SCHEDULE: &str = "bench";
/// The campaign before it, with its audience and its pool, and the seed of their addresses.
const WARM_UP: &str = "warm-up";
const WARM_UP_SEED: u64 = SEED + 1;
/// Size of each email's text in bytes.
const BODY_BYTES: u32 = 2_048;
/// Time from the create to the due instant.
const AHEAD: Duration = Duration::from_secs(3);
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Time for which a killed node is down.
const DOWN_FOR: Duration = Duration::from_secs(5);
/// Time without a changed count after which a run with a kill counts as finished.
const STABLE_FOR: Duration = Duration::from_secs(8);

/// Options of `bench campaign`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Recipients of the run; the sink keeps 17 bytes for each
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=67_000_000))]
    pub recipients: u32,
    /// `kill -9` the leader when a third is sent, start it again after 5 s, and report what that cost
    #[arg(long)]
    pub kill_leader: bool,
    /// Lose a follower for good when a third is sent, replace it by a new node, and report what that cost
    #[arg(long, conflicts_with_all = ["kill_leader", "late_follower"])]
    pub lose_node: bool,
    /// Stop a follower, send and archive this many schedules, start it again when a third is sent, and report what that
    /// cost
    #[arg(long, default_value_t = 0, value_name = "SCHEDULES", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub late_follower: u64,
    /// Also measure Postfix' `smtp-source` into its `smtp-sink`, before and after, with the sessions of one node
    #[arg(long)]
    pub compare: bool,
    /// Measure three times: with TLS between the nodes, in plaintext, and with TLS again. Needs nodes with injected
    /// bugs
    #[arg(long, conflicts_with_all = ["kill_leader", "lose_node", "late_follower", "compare"])]
    pub compare_tls: bool,
    /// Sessions of each node to the sink
    #[arg(long, default_value_t = SESSIONS, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub sessions: u32,
    /// The relay's rate in emails a second, over all nodes; 0: unlimited. A rate below what the machine can do shows
    /// what other work costs where the relay is the bottleneck
    #[arg(long, default_value_t = 0, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rate: u32,
    /// The sink delays its replies by this time, in milliseconds, as a remote relay does
    #[arg(long, default_value_t = 0, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub round_trip: u32,
}

impl Args {
    /// True if no node is lost or started meanwhile, and the relay has no rate.
    fn is_undisturbed(&self) -> bool {
        !self.kill_leader && !self.lose_node && self.late_follower == 0 && self.rate == 0
    }

    /// True if the memory of sessions is measured.
    fn measures_sessions(&self) -> bool {
        self.is_undisturbed() && self.round_trip > 0 && self.sessions >= bounds::MANY_SESSIONS
    }

    /// Emails a second that the sessions of all nodes could send, with one round trip for each; `None` without
    /// `--round-trip`.
    fn rate_max(&self) -> Option<f64> {
        let emails_of_session = 1_000.0 / f64::from(self.round_trip);
        (self.round_trip > 0).then(|| f64::from(NODES) * f64::from(self.sessions) * emails_of_session)
    }
}

/// Runs the benchmark of one campaign.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let (figures, bounds, valid) = measure(start, args, None).await?;
    bounds.report(figures, valid)
}

/// Measures one campaign, with this bug in the nodes. Returns the figures, their bounds, and true if they are valid.
pub(crate) async fn measure(
    start: &StartArgs,
    args: &Args,
    bug: Option<&'static str>,
) -> Result<(Value, Bounds, bool)> {
    let rate_before = postfix_rate(args).await?;
    let emails = u64::from(args.recipients);
    let warming = format!(".s{WARM_UP_SEED}@audience.invalid");
    let (counter, sink) = Counter::start_remote(
        Accepts::of_generated(args.recipients, SEED),
        move |accepts, recipient, at_us| {
            if late_follower::is_judged(recipient) && !recipient.ends_with(&warming) {
                accepts.record(recipient, at_us);
            }
        },
        Duration::from_millis(args.round_trip.into()),
    )?;
    let archive_after = (args.late_follower > 0).then_some(ARCHIVE_AFTER);
    let needs = Needs { archive_after, spares: args.lose_node.into(), ..Needs::default() };
    let mut cluster = Cluster::start(start, NODES, needs).await?;
    if args.compare_tls {
        // A cluster cannot be formed with the bug. Without it the nodes are restarted too, so that this makes no
        // difference.
        cluster.restart(bug).await?;
    }
    cluster.admin().add_relay_of(("sink", "default"), sink.address(), (args.sessions, args.rate.into())).await?;
    let mut late_follower = match args.late_follower {
        0 => None,
        schedules => Some(LateFollower::prepare(&mut cluster, &sink, schedules).await?),
    };
    if args.measures_sessions() {
        warm_up(&cluster, &sink, args).await?;
    }
    let begun = Instant::now();
    cluster.admin().generate_audience(SCHEDULE, args.recipients, SEED, &[]).await?;
    let generate_seconds = begun.elapsed().as_secs_f64();
    eprintln!("{emails} recipients are sealed, in {generate_seconds:.1} s");
    let due = SystemTime::now() + AHEAD;
    cluster.admin().create(body(SCHEDULE, due, BODY_BYTES)).await?;
    let (before, rss_before) = (cluster.cpu_seconds()?, cluster.of_each(resident_mb)?);
    let ended = wait_for_end(&mut cluster, args, due, late_follower.as_mut()).await?;
    let cpu_seconds = cluster.cpu_seconds_since(&before)?;
    let rss_mb = cluster.of_each(resident_mb)?;
    // All that grew meanwhile is counted as memory of sessions. What grows by sending has grown before, but for caches
    // and snapshots, by which single nodes grow and shrink: so this is the mean of all sessions of the cluster.
    let [after_mb, before_mb]: [f64; 2] = [&rss_mb, &rss_before].map(|nodes| nodes.values().sum());
    let session_kb = rounded((after_mb - before_mb) * 1_000.0 / f64::from(args.sessions * u32::from(NODES)));
    tokio::time::sleep(QUIET_AFTER).await;
    let doubts = match ended.last.in_doubt {
        0 => BTreeSet::new(),
        _ => cluster.admin().doubts(&ended.run).await?,
    };
    let instants_us = counter.read().instants_us(0);
    let late_follower = late_follower.map(|follower| follower.figures(&cluster, &instants_us)).transpose()?;
    let lost_node = ended.lost_node.map(|lost| lost.figures(&instants_us)).transpose()?;
    drop(cluster);
    let rate_after = postfix_rate(args).await?;
    let smtp_source_rate = rate_before.zip(rate_after).map(|(before, after)| rounded(f64::midpoint(before, after)));

    let accepts = counter.read();
    let rate = accepts::rate(&instants_us);
    let in_doubt_missing = doubts.iter().filter(|address| !accepts.has(address)).count() as u64;
    let valid = accepts.missing() <= in_doubt_missing && accepts.is_without_surplus();
    let ratio = rate.zip(smtp_source_rate).map(|(rate, postfix)| rounded(rate / postfix));
    let of_sessions = rate.zip(args.rate_max()).map(|(rate, most)| rounded(rate / most));
    let cpu_of_nodes: f64 = cpu_seconds.iter().filter(|(name, _)| *name != "sink").map(|(_, seconds)| seconds).sum();
    let cpu_us = rounded(cpu_of_nodes * 1e6 / emails as f64);
    let mut bounds = Bounds::default();
    let is_alone = args.is_undisturbed() && args.round_trip == 0;
    if is_alone && args.compare && args.recipients >= bounds::MANY_RECIPIENTS {
        bounds.add(bounds::CAMPAIGN_RATIO, ratio);
        bounds.add(bounds::EMAIL_CPU_US, Some(cpu_us));
    }
    if args.is_undisturbed() && args.round_trip > 0 && args.recipients >= bounds::DELAYED_RECIPIENTS {
        bounds.add(bounds::OF_SESSIONS, of_sessions);
    }
    if args.measures_sessions() {
        bounds.add(bounds::SESSION_KB, Some(session_kb));
    }
    if let Some(figures) =
        late_follower.as_ref().filter(|_| args.late_follower >= bounds::MANY_SCHEDULES && args.rate > 0)
    {
        bounds.add(bounds::LATE_FOLLOWER_RATIO, figures["rate"]["ratio"].as_f64());
        bounds.add(bounds::LEADER_CHANGES, figures["leader_changes"].as_f64());
    }
    let figures = json!({
        "recipients": args.recipients,
        // Time to write the audience on every node, and to seal it.
        "generate_seconds": rounded(generate_seconds),
        // Time from the due instant to the last accept.
        "seconds": instants_us.last().map(|last_us| rounded((last_us - unix_us(due)) as f64 / 1e6)),
        // Accepts per second after the first two seconds; null for a shorter run.
        "rate": rate.map(rounded),
        // The mean of the rates of `smtp-source` into `smtp-sink` before and after the run; `ratio` is `rate` divided
        // by it.
        "smtp_source_rate": smtp_source_rate,
        "ratio": ratio,
        // The rate relative to what the sessions allow; null without `--round-trip`.
        "of_sessions": of_sessions,
        "emails": accepts.figures(),
        "in_doubt": ended.last.in_doubt,
        "in_doubt_missing": in_doubt_missing,
        // With `--kill-leader`: the number of emails that are missing in the ten seconds after the kill, divided by the
        // rate before the kill.
        "lost_seconds": ended.killed_us.and_then(|killed_us| accepts::lost_seconds(&instants_us, killed_us)),
        // With `--late-follower`: the seconds from its start until it lacked fewer than 1,000 entries, and the rates
        // before and meanwhile.
        "late_follower": late_follower,
        // With `--lose-node`: the seconds from the loss of a follower until it was removed and until a new node voted,
        // and the rates before and meanwhile.
        "lost_node": lost_node,
        // Processor time from just before the due instant to the last email.
        "cpu_seconds": cpu_seconds,
        // That of the nodes, for each email.
        "cpu_us_an_email": cpu_us,
        // Resident memory of each node at the end.
        "rss_mb": rss_mb,
        // Their growth from just before the due instant, for each session of the cluster, in 1,000 bytes.
        "session_kb": session_kb,
        "valid": valid,
    });
    Ok((figures, bounds, valid))
}

/// Sends a campaign of the same size by a pool of its own with an eighth of the sessions. So the nodes' memory has grown
/// by all that sending takes but more sessions.
async fn warm_up(cluster: &Cluster, sink: &Sink, args: &Args) -> Result<()> {
    let admin = cluster.admin();
    admin.add_relay_of((WARM_UP, WARM_UP), sink.address(), (args.sessions / 8, 0.0)).await?;
    admin.generate_audience(WARM_UP, args.recipients, WARM_UP_SEED, &[]).await?;
    let schedule = ScheduleBody { pool: WARM_UP.to_owned(), ..body(WARM_UP, SystemTime::now() + AHEAD, BODY_BYTES) };
    admin.create(schedule).await?;
    eprintln!("warming up with {} sessions a node", args.sessions / 8);
    let emails = u64::from(args.recipients);
    Ok(sink.wait_for(emails, longest_wait(emails)).await?)
}

/// The end of a run.
struct Ended {
    run: String,
    last: RunCounts,
    /// Time of the kill in microseconds since 1970 UTC. `None`: there was no kill.
    killed_us: Option<i64>,
    /// The lost node. `None`: none was lost.
    lost_node: Option<LostNode>,
}

/// Waits until no recipient is pending or claimed. Kills the leader or loses a node meanwhile if the arguments say so.
async fn wait_for_end(
    cluster: &mut Cluster,
    args: &Args,
    due: SystemTime,
    mut late: Option<&mut LateFollower>,
) -> Result<Ended> {
    let wait = longest_wait(u64::from(args.recipients));
    let until = Instant::now() + wait;
    sleep_until(due).await;
    let run = loop {
        match cluster.admin().run_of(SCHEDULE).await? {
            Some(run) => break run.run,
            None if Instant::now() > until => bail!("the run did not open; --keep FOLDER keeps the logs"),
            None => tokio::time::sleep(POLL_EVERY).await,
        }
    };
    let mut ended = Ended { run, last: RunCounts::default(), killed_us: None, lost_node: None };
    let (mut down, mut unchanged_since) = (None, Instant::now());
    let mut reported = (Instant::now(), 0);
    loop {
        let counts = cluster.admin().counts(&ended.run).await?;
        if counts != ended.last {
            (ended.last, unchanged_since) = (counts, Instant::now());
        }
        if reported.0.elapsed() >= REPORT_EVERY {
            eprintln!("{}", progress(&ended.last, reported.1, reported.0.elapsed()));
            reported = (Instant::now(), ended.last.sent);
        }
        let is_over = ended.last.pending + ended.last.claimed == 0;
        if args.kill_leader && ended.killed_us.is_none() && ended.last.sent >= args.recipients / 3 {
            let leader = cluster.leader().await.context("no node leads")?;
            ended.killed_us = Some(unix_us(SystemTime::now()));
            cluster.node_mut(&leader)?.kill()?;
            eprintln!("killed the leader {leader} after {} emails", ended.last.sent);
            down = Some((leader, Instant::now()));
        }
        if let Some((name, _)) = down.take_if(|(_, since)| since.elapsed() >= DOWN_FOR) {
            cluster.node_mut(&name)?.start()?;
        }
        if let Some(late) = late.as_mut().filter(|late| !late.is_caught_up()) {
            match late.is_started() {
                true => late.poll(cluster).await?,
                false if ended.last.sent >= args.recipients / 3 => late.start(cluster)?,
                false => {}
            }
        }
        match &mut ended.lost_node {
            Some(lost) => lost.poll(cluster).await?,
            None if args.lose_node && ended.last.sent >= args.recipients / 3 => {
                ended.lost_node = Some(LostNode::lose(cluster).await?);
            }
            None => {}
        }
        let is_whole = ended.lost_node.as_ref().is_none_or(LostNode::is_replaced);
        let is_late = late.as_ref().is_some_and(|late| !late.is_caught_up());
        let stable_for = if args.kill_leader || args.lose_node { STABLE_FOR } else { Duration::ZERO };
        if is_over && down.is_none() && !is_late && is_whole && unchanged_since.elapsed() >= stable_for {
            return Ok(ended);
        }
        if Instant::now() > until {
            eprintln!("not finished after {} s: {:?}", wait.as_secs(), ended.last);
            return Ok(ended);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Returns a line with the counts of a run, and its rate since it had `sent_before` sent recipients.
fn progress(counts: &RunCounts, sent_before: u32, since: Duration) -> String {
    let RunCounts { sent, pending, claimed, in_doubt, .. } = *counts;
    let rate = f64::from(sent.saturating_sub(sent_before)) / since.as_secs_f64();
    format!("{sent} sent, {rate:.0} a second; {pending} pending, {claimed} claimed, {in_doubt} in doubt")
}

async fn postfix_rate(args: &Args) -> Result<Option<f64>> {
    if !args.compare {
        return Ok(None);
    }
    let sessions = args.sessions;
    let rate = tokio::task::spawn_blocking(move || smtp_source::measure(sessions, BODY_BYTES)).await??;
    eprintln!("smtp-source into smtp-sink: {rate:.0} emails a second");
    Ok(Some(rate))
}

/// Returns a schedule to the audience of its name, whose template has this number of bytes, in lines of 64 bytes.
fn body(name: &str, at: SystemTime, bytes: u32) -> ScheduleBody {
    let line = "This line is one of many, and each of them is just as long ....\n";
    let text: String = "Dear {{ recipient }}\n".chars().chain(line.chars().cycle()).take(bytes as usize).collect();
    let mut body = load::to_sealed(load::once(name.to_owned(), at, Vec::new()), name);
    if let Some(content) = &mut body.content {
        content.text = Some(text);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_requested_length() {
        let text = body(SCHEDULE, SystemTime::UNIX_EPOCH, 2_048).content.unwrap().text.unwrap();
        assert_eq!(text.len(), 2_048);
    }

    #[test]
    fn progress_names_counts_and_rate() {
        let counts = RunCounts { sent: 70_000, pending: 30_000, claimed: 12, ..RunCounts::default() };
        let line = progress(&counts, 20_000, Duration::from_secs(10));
        assert_eq!(line, "70000 sent, 5000 a second; 30000 pending, 12 claimed, 0 in doubt");
    }
}
