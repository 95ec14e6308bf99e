//! `bench tenants`: measures how late one tenant's emails are on an idle cluster, and beside another tenant's backlog
//! (I12).
//!
//! The other tenant has a large run to the same relay, and one to a relay that accepts connections and never answers.
//! In each round the small tenant's emails are due in one second. Several rounds run on the idle cluster, and then as
//! many beside the backlog. Lateness is the time from the due instant to the sink's accept. The median of the rounds'
//! p99 beside the backlog must be at most twice that of the idle cluster, plus a floor. The backlog must outlast the
//! rounds.

use std::net::TcpListener;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use reveille_harness::load;
use reveille_harness::measure::{in_ms, percentile, rounded, unix_us};
use reveille_harness::{Cluster, Needs, Report, StartArgs};
use reveille_proto::admin::v1::ScheduleBody;
use serde_json::json;

use crate::accepts::Accepts;
use crate::{Counter, NODES, QUIET_AFTER, SEED, SESSIONS};

/// Number of emails of the small tenant in each round.
const EMAILS: u32 = 100;
/// Number of rounds on the idle cluster, and beside the backlog.
const ROUNDS: u32 = 5;
const PHASES: [&str; 2] = ["idle", "loaded"];
/// Milliseconds that are allowed above twice the idle median, for the jitter of a busy machine.
const FLOOR_MS: f64 = 10.0;
/// Time from a create to the due instant.
const AHEAD: Duration = Duration::from_secs(3);
/// Time for which the backlog is sent before the small tenant's emails are due.
const BACKLOG_BEFORE: Duration = Duration::from_secs(2);
/// Maximum time of the wait for the small tenant's emails.
const ROUND_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Name of the small tenant. The backlog belongs to the default tenant.
const SMALL: &str = "small";
/// Domain of the addresses of generated audiences.
const OF_BACKLOG: &str = "@audience.invalid";

/// Options of `bench tenants`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Recipients of the other tenant's backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=67_000_000))]
    pub recipients: u32,
    /// Emails per second that the relay accepts; 0: as many as the machine can send, so that both tenants wait for its
    /// processors first
    #[arg(long, default_value_t = 8_000, value_name = "EMAILS")]
    pub rate: u32,
}

/// The accepts of both tenants.
struct TenantAccepts {
    small: Accepts,
    backlog: Accepts,
}

impl TenantAccepts {
    fn new(backlog: u32) -> TenantAccepts {
        let names = PHASES.into_iter().flat_map(|phase| (0..ROUNDS).map(move |round| name_of(phase, round)));
        let expected = names.flat_map(|name| (0..EMAILS).map(move |mail| load::address(&name, mail)));
        TenantAccepts { small: Accepts::of(expected), backlog: Accepts::of_generated(backlog, SEED) }
    }

    fn record(&mut self, recipient: &str, at_us: i64) {
        let of_tenant = if recipient.ends_with(OF_BACKLOG) { &mut self.backlog } else { &mut self.small };
        of_tenant.record(recipient, at_us);
    }
}

/// Returns the name of the schedule of a round.
fn name_of(phase: &str, round: u32) -> String {
    format!("{phase}{round}")
}

/// The sorted lateness of a round's emails, and the last accept, in microseconds.
struct Round {
    late_us: Vec<i64>,
    last_us: i64,
}

/// Runs the benchmark of tenants.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let (counter, sink) = Counter::start(TenantAccepts::new(args.recipients), TenantAccepts::record)?;
    // The kernel accepts connections to this listener, and nothing answers them.
    let dead = TcpListener::bind(("127.0.0.1", 0)).context("a port for the dead relay")?;
    let cluster = Cluster::start(start, NODES, Needs::default()).await?;
    let admin = cluster.admin();
    admin.add_relay_of(("sink", "default"), sink.address(), (SESSIONS, args.rate.into())).await?;
    let address = dead.local_addr().context("its address")?;
    admin.add_relay_of(("dead", "dead"), address, (SESSIONS, 0.0)).await?;

    let idle = rounds(&cluster, &counter, 0).await?;
    admin.generate_audience("backlog", args.recipients, SEED, &[]).await?;
    let due = SystemTime::now() + AHEAD;
    for (name, pool) in [("backlog", "default"), ("dead", "dead")] {
        let body = ScheduleBody { pool: pool.to_owned(), ..load::once(name.to_owned(), due, Vec::new()) };
        admin.create(load::to_sealed(body, "backlog")).await?;
    }
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default() + BACKLOG_BEFORE).await;
    let loaded = rounds(&cluster, &counter, 1).await?;
    tokio::time::sleep(QUIET_AFTER).await;
    report(args, &counter.read(), &idle, &loaded)
}

/// Runs the rounds of one of [`PHASES`].
async fn rounds(cluster: &Cluster, counter: &Counter<TenantAccepts>, phase: u32) -> Result<Vec<Round>> {
    let (name, mut all) = (PHASES[phase as usize], Vec::new());
    for number in 0..ROUNDS {
        let first = (phase * ROUNDS + number) * EMAILS;
        let round = round(cluster, counter, &name_of(name, number), first..first + EMAILS).await?;
        let at = |percent| percentile(&round.late_us, percent).map_or(0.0, in_ms);
        let (count, first, p50, p99) = (round.late_us.len(), at(0.0), at(50.0), at(99.0));
        eprintln!("{name}, round {number}: {count} emails; first {first} ms late, p50 {p50}, p99 {p99}");
        all.push(round);
    }
    Ok(all)
}

async fn round(cluster: &Cluster, counter: &Counter<TenantAccepts>, name: &str, numbers: Range<u32>) -> Result<Round> {
    let due = SystemTime::now() + AHEAD;
    let schedule = ScheduleBody { tenant: SMALL.to_owned(), ..load::once_to(name.to_owned(), due, EMAILS) };
    cluster.admin().create(schedule).await?;
    let (due_us, until) = (unix_us(due), due + ROUND_WITHIN);
    let mut late_us: Vec<i64> = Vec::new();
    while late_us.len() < EMAILS as usize && SystemTime::now() < until {
        tokio::time::sleep(POLL_EVERY).await;
        let accepts = counter.read().small.firsts_us(numbers.clone());
        late_us = accepts.into_iter().map(|at_us| at_us - due_us).collect();
    }
    let last_us = due_us + late_us.last().copied().unwrap_or_default();
    Ok(Round { late_us, last_us })
}

fn p99_ms(rounds: &[Round]) -> Vec<f64> {
    rounds.iter().filter_map(|round| percentile(&round.late_us, 99.0).map(in_ms)).collect()
}

/// Returns the median. For an even number of values it is the lower of the two middle values.
pub(crate) fn median(of: &[f64]) -> Option<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50.0)
}

fn report(args: &Args, counts: &TenantAccepts, idle: &[Round], loaded: &[Round]) -> Result<Report> {
    let last_us = loaded.iter().map(|round| round.last_us).max().unwrap_or_default();
    let (idle_p99_ms, loaded_p99_ms) = (p99_ms(idle), p99_ms(loaded));
    let (idle_median_ms, loaded_median_ms) = (median(&idle_p99_ms), median(&loaded_p99_ms));
    let medians = idle_median_ms.zip(loaded_median_ms);
    let is_within_bound = medians.is_some_and(|(idle, loaded)| loaded <= 2.0 * idle + FLOOR_MS);
    let sent_by_then = counts.backlog.instants_us(0).partition_point(|at_us| *at_us < last_us) as u64;
    let backlog_left = u64::from(args.recipients).saturating_sub(sent_by_then);
    // Without a backlog nothing was measured.
    let valid = counts.small.is_exact() && is_within_bound && backlog_left > 0;
    let figures = json!({
        "recipients": args.recipients,
        "rate": args.rate,
        // The value of each round, and the medians.
        "idle_p99_ms": idle_p99_ms,
        "loaded_p99_ms": loaded_p99_ms,
        "idle_median_ms": idle_median_ms,
        "loaded_median_ms": loaded_median_ms,
        "ratio": medians.map(|(idle, loaded)| rounded(loaded / idle)),
        "emails": counts.small.figures(),
        // Number of emails of the backlog that were left at the end of the last round.
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
        let mut counts = TenantAccepts::new(10);
        for (recipient, at_us) in [
            ("r00000001.s1@audience.invalid", 2_000),
            ("idle1-1@example.net", 2_500),
            ("r00000002.s1@audience.invalid", 5_000),
            ("loaded1-2@example.net", 6_000),
            ("idle1-2@example.net", 7_000),
            ("idle1-2@example.net", 8_000),
        ] {
            counts.record(recipient, at_us);
        }
        assert_eq!(counts.backlog.instants_us(0), [2_000, 5_000]);
        assert_eq!(counts.small.firsts_us(EMAILS..2 * EMAILS), [2_500, 7_000], "a duplicate does not count");
        assert_eq!(counts.small.arrived(), 3);
    }
}
