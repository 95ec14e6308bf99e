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
use serde_json::json;

use crate::arrivals::Arrivals;
use crate::flow::Flow;
use crate::{Counter, SEED, SESSIONS};

/// Emails of the small tenant in each round.
const EMAILS: u32 = 100;
/// How often they are sent, idle and again beside the backlog.
const ROUNDS: u8 = 5;
/// What is allowed beyond twice the idle median, for the jitter of a busy machine. Milliseconds.
const FLOOR_MS: f64 = 10.0;
/// From a create to its due instant.
const AHEAD: Duration = Duration::from_secs(3);
/// How long the backlog is sent before the small tenant's emails are due.
const BACKLOG_BEFORE: Duration = Duration::from_secs(2);
/// How long the small tenant's emails are waited for.
const ROUND_WITHIN: Duration = Duration::from_secs(120);
/// A duplicate may come this long after the last email.
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
    /// Emails a second that the relay accepts; 0: as many as the machine can send, so that both tenants wait for its
    /// processors first
    #[arg(long, default_value_t = 8_000, value_name = "EMAILS")]
    pub rate: u32,
}

/// What came: the small tenant's emails one by one, the backlog by the millisecond.
struct TenantCounts {
    /// Instants of accepts by schedule; microseconds since 1970 UTC.
    small: BTreeMap<String, Vec<i64>>,
    arrivals: Arrivals,
    backlog: Flow,
}

impl TenantCounts {
    fn new(now_us: u64) -> TenantCounts {
        let names = ["idle", "loaded"].into_iter().flat_map(|phase| (1..=ROUNDS).map(move |n| name_of(phase, n)));
        let expected = names.flat_map(|name| (0..EMAILS).map(move |mail| load::address(&name, mail)));
        TenantCounts { small: BTreeMap::new(), arrivals: Arrivals::of(expected), backlog: Flow::new(now_us) }
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

/// The lateness of a round's emails, sorted, and the last accept. Microseconds.
struct Round {
    late_us: Vec<i64>,
    last_us: i64,
}

/// Runs the benchmark of tenants.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let counts = TenantCounts::new(unix_us(SystemTime::now()) as u64);
    let (counter, sink) =
        Counter::start(counts, |counts, accept| counts.note(&accept.recipient, accept.accept_unix_us))?;
    // The kernel accepts connections to it, and nothing answers them.
    let dead = TcpListener::bind(("127.0.0.1", 0)).context("a port for the dead relay")?;
    let cluster = Cluster::start(start, 3, Needs::default()).await?;
    let admin = cluster.admin();
    admin.add_relay_of(("sink", "default"), sink.address(), (SESSIONS, args.rate.into())).await?;
    let address = dead.local_addr().context("its address")?;
    admin.add_relay_of(("dead", "dead"), address, (SESSIONS, 0.0)).await?;

    let idle = rounds(&cluster, &counter, "idle").await?;
    admin.generate_audience("backlog", args.recipients, SEED, &[]).await?;
    let due = SystemTime::now() + AHEAD;
    for (name, pool) in [("backlog", "default"), ("dead", "dead")] {
        let body = ScheduleBody { pool: pool.to_owned(), ..load::once(name.to_owned(), due, Vec::new()) };
        admin.create(load::to_sealed(body, "backlog")).await?;
    }
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default() + BACKLOG_BEFORE).await;
    let loaded = rounds(&cluster, &counter, "loaded").await?;
    tokio::time::sleep(QUIET_AFTER).await;
    report(args, &counter.read(), &idle, &loaded)
}

async fn rounds(cluster: &Cluster, counter: &Counter<TenantCounts>, phase: &str) -> Result<Vec<Round>> {
    let mut all = Vec::new();
    for number in 1..=ROUNDS {
        let round = round(cluster, counter, &name_of(phase, number)).await?;
        let at = |percent| percentile(&round.late_us, percent).map_or(0.0, in_ms);
        let (count, first, p50, p99) = (round.late_us.len(), at(0.0), at(50.0), at(99.0));
        eprintln!("{phase}, round {number}: {count} emails; first {first} ms late, p50 {p50}, p99 {p99}");
        all.push(round);
    }
    Ok(all)
}

async fn round(cluster: &Cluster, counter: &Counter<TenantCounts>, name: &str) -> Result<Round> {
    let due = SystemTime::now() + AHEAD;
    let schedule = ScheduleBody { tenant: SMALL.to_owned(), ..load::once_to(name.to_owned(), due, EMAILS) };
    cluster.admin().create(schedule).await?;
    let (due_us, until) = (unix_us(due), due + ROUND_WITHIN);
    let mut late_us: Vec<i64> = Vec::new();
    while late_us.len() < EMAILS as usize && SystemTime::now() < until {
        tokio::time::sleep(POLL_EVERY).await;
        let accepts = counter.read().small.get(name).cloned().unwrap_or_default();
        late_us = accepts.into_iter().map(|at_us| at_us - due_us).collect();
    }
    late_us.sort_unstable();
    let last_us = due_us + late_us.last().copied().unwrap_or_default();
    Ok(Round { late_us, last_us })
}

fn p99_ms(rounds: &[Round]) -> Vec<f64> {
    rounds.iter().filter_map(|round| percentile(&round.late_us, 99.0).map(in_ms)).collect()
}

/// The median; of an even number of values the lower one.
pub(crate) fn median(of: &[f64]) -> Option<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50.0)
}

fn report(args: &Args, counts: &TenantCounts, idle: &[Round], loaded: &[Round]) -> Result<Report> {
    let last_us = loaded.iter().map(|round| round.last_us).max().unwrap_or_default() as u64;
    let (idle_p99_ms, loaded_p99_ms) = (p99_ms(idle), p99_ms(loaded));
    let (idle_median_ms, loaded_median_ms) = (median(&idle_p99_ms), median(&loaded_p99_ms));
    let medians = idle_median_ms.zip(loaded_median_ms);
    let is_within_bound = medians.is_some_and(|(idle, loaded)| loaded <= 2.0 * idle + FLOOR_MS);
    let backlog_left = u64::from(args.recipients).saturating_sub(counts.backlog.before(last_us));
    // Without a backlog nothing was measured.
    let valid = counts.arrivals.is_exact() && is_within_bound && backlog_left > 0;
    let figures = json!({
        "recipients": args.recipients,
        "rate": args.rate,
        // Of each round, and the medians.
        "idle_p99_ms": idle_p99_ms,
        "loaded_p99_ms": loaded_p99_ms,
        "idle_median_ms": idle_median_ms,
        "loaded_median_ms": loaded_median_ms,
        "ratio": medians.map(|(idle, loaded)| rounded(loaded / idle)),
        "arrived": counts.arrivals.arrived(),
        "duplicates": counts.arrivals.duplicates(),
        "lost": counts.arrivals.missing(),
        "unexplained": counts.arrivals.unexpected,
        // Emails of the backlog that were left at the end of the last loaded round.
        "backlog_left": backlog_left,
        "valid": valid,
    });
    Report::new(&figures, valid)
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
        let mut counts = TenantCounts::new(1_000);
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
        assert_eq!((counts.arrivals.duplicates(), counts.arrivals.arrived()), (1, 3));
    }
}
