//! `bulkhead`: how late one tenant's emails are on an idle cluster, and beside another tenant's backlog (I12).
//!
//! The other tenant has a large run to the same relay, and one to a relay that accepts connections and never answers.
//! The small tenant's emails are due in one second: several times on the idle cluster, then as often beside the
//! backlog. Lateness is the sink's accept minus the due instant. The median of the rounds' p99 must be at most twice
//! the idle one, plus a floor. The backlog must last until the end; it is not waited for.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use reveille_harness::load;
use reveille_harness::measure::{in_ms, percentile, rounded, unix_us};
use reveille_harness::{Cluster, Needs, Report, StartArgs};
use reveille_proto::admin::v1::ScheduleBody;
use serde::Serialize;

use crate::arrivals::Arrivals;
use crate::flow::Flow;
use crate::{Counter, SEED};

/// From a create to its due instant.
const AHEAD: Duration = Duration::from_secs(3);
/// How long the backlog is sent before the small tenant's emails are due.
const BACKLOG_BEFORE: Duration = Duration::from_secs(2);
/// How long the small tenant's emails are waited for.
const ROUND_WITHIN: Duration = Duration::from_secs(120);
/// A duplicate may come so long after the last email.
const QUIET_AFTER: Duration = Duration::from_secs(3);
const POLL_EVERY: Duration = Duration::from_millis(500);
/// The tenant with few emails; the backlog is the default tenant's.
const SMALL: &str = "small";
/// The domain of generated audiences.
const OF_BACKLOG: &str = "@audience.invalid";

/// Options of `bulkhead`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Recipients of the other tenant's backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=67_000_000))]
    pub recipients: u32,
    /// Emails of the small tenant
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub emails: u32,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
    /// Sessions to the sink, on each node
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub sessions: u32,
    /// Emails a second that the relay accepts; 0: as many as the machine can send, so that both tenants wait for its
    /// processors first
    #[arg(long, default_value_t = 8_000, value_name = "EMAILS")]
    pub rate: u32,
    /// How often the small tenant's emails are sent, idle and again beside the backlog
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub rounds: u8,
    /// What is allowed beyond twice the idle median, for the jitter of a busy machine
    #[arg(long, default_value_t = 10, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub floor_ms: u32,
}

#[derive(Serialize)]
struct Figures {
    recipients: u32,
    emails: u32,
    nodes: u8,
    rate: u32,
    rounds: u8,
    floor_ms: u32,
    /// Of each round.
    idle_p99_ms: Vec<f64>,
    loaded_p99_ms: Vec<f64>,
    /// Of those, the median.
    idle_median_ms: Option<f64>,
    loaded_median_ms: Option<f64>,
    /// Loaded divided by idle.
    ratio: Option<f64>,
    /// Whether it is at most twice, without the floor.
    within_twice: bool,
    arrived: u64,
    duplicates: u64,
    lost: u64,
    unexplained: u64,
    /// Emails of the backlog between the first loaded round's instant and the last one's end, and those left then.
    backlog_meanwhile: u64,
    backlog_left: u64,
    valid: bool,
}

/// What came: the small tenant's emails one by one, the backlog by the millisecond.
struct Counts {
    /// Instants of accepts by schedule; microseconds since 1970 UTC.
    small: BTreeMap<String, Vec<i64>>,
    arrivals: Arrivals,
    backlog: Flow,
}

impl Counts {
    fn new(args: &Args, now_us: u64) -> Counts {
        let names = ["idle", "loaded"].into_iter().flat_map(|phase| (1..=args.rounds).map(move |n| name_of(phase, n)));
        let emails = args.emails;
        let expected = names.flat_map(|name| (0..emails).map(move |mail| load::address(&name, mail)));
        Counts { small: BTreeMap::new(), arrivals: Arrivals::of(expected), backlog: Flow::new(now_us) }
    }

    fn note(&mut self, recipient: &str, at_us: u64) {
        if recipient.ends_with(OF_BACKLOG) {
            self.backlog.note(at_us);
        } else if self.arrivals.note(recipient)
            && let Some((schedule, _)) = recipient.split_once('-')
        {
            self.small.entry(schedule.to_owned()).or_default().push(at_us as i64);
        }
    }
}

/// The schedule of a round.
fn name_of(phase: &str, round: u8) -> String {
    format!("{phase}{round}")
}

/// The lateness of a round's emails, sorted; the due instant and the last accept. Microseconds.
struct Round {
    late_us: Vec<i64>,
    due_us: i64,
    last_us: i64,
}

/// Runs it.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let counts = Counts::new(args, unix_us(SystemTime::now()) as u64);
    let (counter, sink) =
        Counter::start(counts, |counts, accept| counts.note(&accept.recipient, accept.accept_unix_us))?;
    // The kernel accepts connections to it, and nothing answers them.
    let dead = TcpListener::bind(("127.0.0.1", 0)).context("a port for the dead relay")?;
    let cluster = Cluster::start(start, args.nodes, Needs::default()).await?;
    let admin = cluster.admin();
    admin.add_relay_of(("sink", "default"), sink.address(), (args.sessions, args.rate)).await?;
    let address = dead.local_addr().context("its address")?;
    admin.add_relay_of(("dead", "dead"), address, (args.sessions, 0)).await?;

    let idle = rounds(&cluster, &counter, args, "idle").await?;
    admin.generate_audience("backlog", args.recipients, SEED, &[]).await?;
    let due = SystemTime::now() + AHEAD;
    for (name, pool) in [("backlog", "default"), ("dead", "dead")] {
        let body = ScheduleBody { pool: pool.to_owned(), ..load::once(name.to_owned(), due, Vec::new()) };
        admin.create(load::to_sealed(body, "backlog")).await?;
    }
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default() + BACKLOG_BEFORE).await;
    let loaded = rounds(&cluster, &counter, args, "loaded").await?;
    tokio::time::sleep(QUIET_AFTER).await;
    report(args, &counter.read(), &idle, &loaded)
}

async fn rounds(cluster: &Cluster, counter: &Counter<Counts>, args: &Args, phase: &str) -> Result<Vec<Round>> {
    let mut all = Vec::new();
    for number in 1..=args.rounds {
        let round = round(cluster, counter, args, &name_of(phase, number)).await?;
        let at = |percent| percentile(&round.late_us, percent).map_or(0.0, in_ms);
        let (count, first, p50, p99) = (round.late_us.len(), at(0.0), at(50.0), at(99.0));
        eprintln!("{phase}, round {number}: {count} emails; first {first} ms late, p50 {p50}, p99 {p99}");
        all.push(round);
    }
    Ok(all)
}

async fn round(cluster: &Cluster, counter: &Counter<Counts>, args: &Args, name: &str) -> Result<Round> {
    let due = SystemTime::now() + AHEAD;
    let schedule = ScheduleBody { tenant: SMALL.to_owned(), ..load::once_to(name.to_owned(), due, args.emails) };
    cluster.admin().create(schedule).await?;
    let (due_us, until) = (unix_us(due), due + ROUND_WITHIN);
    let mut late_us: Vec<i64> = Vec::new();
    while late_us.len() < args.emails as usize && SystemTime::now() < until {
        tokio::time::sleep(POLL_EVERY).await;
        let accepts = counter.read().small.get(name).cloned().unwrap_or_default();
        late_us = accepts.into_iter().map(|at_us| at_us - due_us).collect();
    }
    late_us.sort_unstable();
    let last_us = due_us + late_us.last().copied().unwrap_or_default();
    Ok(Round { late_us, due_us, last_us })
}

fn p99_ms(rounds: &[Round]) -> Vec<f64> {
    rounds.iter().filter_map(|round| percentile(&round.late_us, 99.0).map(in_ms)).collect()
}

/// The lower one of an even number.
fn median(of: &[f64]) -> Option<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50.0)
}

fn report(args: &Args, counts: &Counts, idle: &[Round], loaded: &[Round]) -> Result<Report> {
    let due_us = loaded.first().map_or(0, |round| round.due_us) as u64;
    let last_us = loaded.iter().map(|round| round.last_us).max().unwrap_or_default() as u64;
    let (by_due, by_last) = (counts.backlog.before(due_us), counts.backlog.before(last_us));
    let (idle_p99_ms, loaded_p99_ms) = (p99_ms(idle), p99_ms(loaded));
    let (idle_median_ms, loaded_median_ms) = (median(&idle_p99_ms), median(&loaded_p99_ms));
    let medians = idle_median_ms.zip(loaded_median_ms);
    let within = |floor: f64| medians.is_some_and(|(idle, loaded)| loaded <= 2.0 * idle + floor);
    let backlog_left = u64::from(args.recipients).saturating_sub(by_last);
    let result = Figures {
        recipients: args.recipients,
        emails: args.emails,
        nodes: args.nodes,
        rate: args.rate,
        rounds: args.rounds,
        floor_ms: args.floor_ms,
        idle_p99_ms,
        loaded_p99_ms,
        idle_median_ms,
        loaded_median_ms,
        ratio: medians.map(|(idle, loaded)| rounded(loaded / idle)),
        within_twice: within(0.0),
        arrived: counts.arrivals.arrived(),
        duplicates: counts.arrivals.duplicates(),
        lost: counts.arrivals.missing(),
        unexplained: counts.arrivals.unexpected,
        backlog_meanwhile: by_last.saturating_sub(by_due),
        backlog_left,
        // Without a backlog nothing was measured.
        valid: counts.arrivals.is_exact() && within(f64::from(args.floor_ms)) && backlog_left > 0,
    };
    Report::new(&result, result.valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_middle_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 90.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0]), Some(1.0));
    }

    #[test]
    fn backlog_is_counted_apart_from_small_tenant() {
        let args = Args { recipients: 1_000, emails: 3, nodes: 3, sessions: 1, rate: 0, rounds: 1, floor_ms: 0 };
        let mut counts = Counts::new(&args, 1_000);
        for (recipient, at_us) in [
            ("r00000001.s1@audience.invalid", 2_000),
            ("idle1-1@example.net", 2_500),
            ("r00000002.s1@audience.invalid", 5_000),
            ("loaded1-2@example.net", 6_000),
            ("idle1-2@example.net", 7_000),
            ("idle1-2@example.net", 8_000),
        ] {
            counts.note(recipient, at_us);
        }
        assert_eq!([0, 2_000, 3_000, 9_000].map(|us| counts.backlog.before(us)), [0, 0, 1, 2]);
        assert_eq!(counts.small["idle1"], [2_500, 7_000], "a duplicate does not count");
        assert_eq!((counts.arrivals.duplicates(), counts.arrivals.missing()), (1, 3));
    }
}
