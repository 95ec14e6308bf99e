//! `bulkhead`: how late one tenant's mails are on an idle cluster, and beside another tenant's backlog (I12).
//!
//! The other tenant has a run of many to the same relay, and one to a relay that takes connections and never says a
//! word. The small tenant's mails are due in one second, several times on the idle cluster, then as often in the middle
//! of that. Lateness is the sink's note of the accept minus the due instant; of each time its p99 counts, and of those
//! the median. The bound is twice the idle median. Valid when each of them came once, the backlog was there from the
//! first to the last, and the loaded median is within the bound and a floor; whether it is within the bound itself
//! stands beside that. The backlog's own end is not waited for: `bench` judges one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use reveille_proto::admin::v1::{Audience, ScheduleBody};
use serde::Serialize;

use crate::cluster::{Cluster, Start};
use crate::flow::Flow;
use crate::measure::{in_ms, percentile, rounded, unix_us};
use crate::tally::{Arrivals, Tally};
use crate::{Outcome, load, sink};

/// From a create to its due instant.
const AHEAD: Duration = Duration::from_secs(3);
/// The backlog is under way for so long before the small tenant's mails are due.
const UNDER_WAY: Duration = Duration::from_secs(2);
/// How long the small tenant's mails are waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// After the last mail, so long for one that comes twice.
const QUIET_AFTER: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const SEED: u64 = 1;
/// The tenant that sends a few mails; the backlog is the default one's.
const SMALL: &str = "small";
/// The domain of an audience that was made of a number.
const OF_BACKLOG: &str = "@audience.invalid";

/// Options of `bulkhead`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Recipients of the other tenant's backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=67_000_000))]
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
    /// Mails a second that the relay may be given; 0: as many as the machine can send, and then both tenants wait for
    /// its processors first
    #[arg(long, default_value_t = 8_000, value_name = "MAILS")]
    pub rate: u32,
    /// How often the small tenant's mails are sent, idle and again beside the backlog
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub rounds: u8,
    /// What is granted beyond twice the idle median: what a busy machine takes for itself
    #[arg(long, default_value_t = 10, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub floor_ms: u32,
}

#[derive(Serialize)]
struct Report {
    recipients: u32,
    mails: u32,
    nodes: u8,
    rate: u32,
    rounds: u8,
    floor_ms: u32,
    /// Of each round.
    idle_p99_ms: Vec<f64>,
    loaded_p99_ms: Vec<f64>,
    /// Of those, the middle one.
    idle_median_ms: Option<f64>,
    loaded_median_ms: Option<f64>,
    /// Loaded by idle.
    ratio: Option<f64>,
    /// Is it twice at most, with no floor?
    within_twice: bool,
    /// Addresses of all rounds that have a mail at the end, mails beyond the first of one, and those without any.
    arrived: u64,
    duplicates: u64,
    lost: u64,
    /// Mails to addresses of no round.
    unexplained: u64,
    /// Mails of the backlog between the first loaded mails' instant and the last of them.
    backlog_meanwhile: u64,
    /// Mails of the backlog that were still to come after the last of them.
    backlog_left: u64,
    valid: bool,
}

/// Runs it.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let backlog = Flow::new(unix_us(SystemTime::now()) as u64);
    let record = Arc::new(Mutex::new(Record::new(backlog)));
    let sink = sink::counting(&record, |record, accept| record.note(&accept.recipient, accept.accept_unix_us))?;
    // Its backlog of connections is answered by the kernel; nobody ever speaks.
    let dead = TcpListener::bind(("127.0.0.1", 0)).context("a port for the dead relay")?;
    let cluster = Cluster::start(start, args.nodes).await?;
    let admin = cluster.admin();
    admin.add_relay_of(("sink", "default"), sink.address(), (args.sessions, args.rate)).await?;
    let address = dead.local_addr().context("its address")?;
    admin.add_relay_of(("dead", "dead"), address, (args.sessions, 0)).await?;

    let idle = rounds(&cluster, &record, args, "idle").await?;
    admin.generate_audience("backlog", args.recipients, SEED, &[]).await?;
    let due = SystemTime::now() + AHEAD;
    for (name, pool) in [("backlog", "default"), ("dead", "dead")] {
        admin.create(run_to_all(name, pool, due)).await?;
    }
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default() + UNDER_WAY).await;
    let loaded = rounds(&cluster, &record, args, "loaded").await?;
    tokio::time::sleep(QUIET_AFTER).await;
    report(args, &record, &idle, &loaded)
}

/// What came, however many they are: the small tenant's mails one by one, and the backlog by the millisecond.
struct Record {
    /// Instants at which an address had its first mail, by the name of the schedule that it begins with. Microseconds
    /// since 1970 UTC.
    small: BTreeMap<String, Vec<i64>>,
    /// All that came to anybody beside the backlog.
    arrivals: Arrivals,
    backlog: Flow,
}

impl Record {
    fn new(backlog: Flow) -> Record {
        Record { small: BTreeMap::new(), arrivals: Arrivals::default(), backlog }
    }

    fn note(&mut self, recipient: &str, at_us: u64) {
        if recipient.ends_with(OF_BACKLOG) {
            self.backlog.note(at_us);
            return;
        }
        let is_first = self.arrivals.note(recipient) == 1;
        if let Some((name, _)) = recipient.split_once('-').filter(|_| is_first) {
            self.small.entry(name.to_owned()).or_default().push(at_us as i64);
        }
    }

    /// Each address of each round by itself: somebody else's second mail makes up for nobody's first (I1, I4).
    fn judge(&self, rounds: u8, mails: u32) -> Tally {
        let names = ["idle", "loaded"].into_iter().flat_map(|word| (1..=rounds).map(move |round| name_of(word, round)));
        let expected = names.flat_map(|name| (0..mails).map(move |mail| load::address(&name, mail)));
        self.arrivals.judge(expected, &BTreeSet::new())
    }
}

/// The schedule of a round.
fn name_of(word: &str, round: u8) -> String {
    format!("{word}{round}")
}

type Shared = Arc<Mutex<Record>>;

fn read<T>(record: &Shared, look: impl Fn(&Record) -> T) -> Result<T> {
    Ok(look(&*record.lock().map_err(|_| anyhow!("counting the accepts panicked"))?))
}

/// How late the small tenant's mails were, sorted, and between which instants they were waited for.
struct Lateness {
    us: Vec<i64>,
    due_us: i64,
    last_us: i64,
}

async fn rounds(cluster: &Cluster, record: &Shared, args: &Args, word: &str) -> Result<Vec<Lateness>> {
    let mut all = Vec::new();
    for round in 1..=args.rounds {
        let lateness = small(cluster, record, args, &name_of(word, round)).await?;
        let at = |percent| percentile(&lateness.us, percent).map_or(0.0, in_ms);
        eprintln!(
            "{word}, round {round}: {} of {} came; first after {} ms, half by {}, p99 {}",
            lateness.us.len(),
            args.mails,
            at(0.0),
            at(50.0),
            at(99.0)
        );
        all.push(lateness);
    }
    Ok(all)
}

async fn small(cluster: &Cluster, record: &Shared, args: &Args, name: &str) -> Result<Lateness> {
    let due = SystemTime::now() + AHEAD;
    let schedule = ScheduleBody { tenant: SMALL.to_owned(), ..load::once_to(name.to_owned(), due, args.mails) };
    cluster.admin().create(schedule).await?;
    let (due_us, until) = (unix_us(due), due + PATIENCE);
    let mut us: Vec<i64> = Vec::new();
    while us.len() < args.mails as usize && SystemTime::now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        let late = |at: &Vec<i64>| at.iter().map(|at| at - due_us).collect();
        us = read(record, |record| record.small.get(name).map(late))?.unwrap_or_default();
    }
    us.sort_unstable();
    let last_us = due_us + us.last().copied().unwrap_or_default();
    Ok(Lateness { us, due_us, last_us })
}

/// The p99 of each round. Milliseconds.
fn p99s(rounds: &[Lateness]) -> Vec<f64> {
    rounds.iter().filter_map(|round| percentile(&round.us, 99.0).map(in_ms)).collect()
}

/// The middle one; of an even number the lower of the two.
fn median(of: &[f64]) -> Option<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 50.0)
}

fn report(args: &Args, record: &Shared, idle: &[Lateness], loaded: &[Lateness]) -> Result<Outcome> {
    let first_us = loaded.first().map_or(0, |round| round.due_us);
    let last_us = loaded.iter().map(|round| round.last_us).max().unwrap_or_default();
    let (by_due, by_last) =
        read(record, |record| (record.backlog.before(first_us as u64), record.backlog.before(last_us as u64)))?;
    let (meanwhile, left) = (by_last.saturating_sub(by_due), u64::from(args.recipients).saturating_sub(by_last));
    let (idle_p99_ms, loaded_p99_ms) = (p99s(idle), p99s(loaded));
    let (idle_median_ms, loaded_median_ms) = (median(&idle_p99_ms), median(&loaded_p99_ms));
    let medians = idle_median_ms.zip(loaded_median_ms);
    let within = |floor: f64| medians.is_some_and(|(idle, loaded)| loaded <= 2.0 * idle + floor);
    let tally = read(record, |record| record.judge(args.rounds, args.mails))?;
    let report = Report {
        recipients: args.recipients,
        mails: args.mails,
        nodes: args.nodes,
        rate: args.rate,
        rounds: args.rounds,
        floor_ms: args.floor_ms,
        ratio: medians.map(|(idle, loaded)| rounded(loaded / idle)),
        within_twice: within(0.0),
        arrived: tally.arrived,
        duplicates: tally.duplicates,
        lost: tally.lost,
        unexplained: tally.unexplained,
        idle_p99_ms,
        loaded_p99_ms,
        idle_median_ms,
        loaded_median_ms,
        backlog_meanwhile: meanwhile,
        backlog_left: left,
        // Beside a backlog that was over nothing was measured.
        valid: tally.is_clean() && within(f64::from(args.floor_ms)) && left > 0,
    };
    Outcome::new(&report, report.valid)
}

/// A run of the other tenant to all of its audience, by that pool.
fn run_to_all(name: &str, pool: &str, due: SystemTime) -> ScheduleBody {
    ScheduleBody {
        pool: pool.to_owned(),
        audience: Some(Audience { sealed: "backlog".to_owned(), ..Audience::default() }),
        ..load::once(name.to_owned(), due, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_rounds_the_middle_one_counts() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 90.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0]), Some(1.0));
    }

    #[test]
    fn mails_of_the_backlog_are_counted_and_those_of_the_small_tenant_known_one_by_one() {
        let mut record = Record::new(Flow::new(1_000));
        for (recipient, at_us) in [
            ("r00000001.s1@audience.invalid", 2_000),
            ("idle-1@example.net", 2_500),
            ("r00000002.s1@audience.invalid", 5_000),
            ("loaded-7@example.net", 6_000),
            ("idle-2@example.net", 7_000),
        ] {
            record.note(recipient, at_us);
        }
        assert_eq!([0, 2_000, 3_000, 9_000].map(|us| record.backlog.before(us)), [0, 0, 1, 2]);
        assert_eq!(record.small["idle"], [2_500, 7_000]);
        assert_eq!(record.small["loaded"], [6_000]);
    }

    #[test]
    fn a_mail_that_came_twice_makes_up_for_none_that_is_missing() {
        let come = |addresses: &[&str]| {
            let mut record = Record::new(Flow::new(0));
            addresses.iter().for_each(|address| record.note(address, 1_000));
            record
        };
        let all = ["idle1-0@example.net", "idle1-1@example.net", "loaded1-0@example.net", "loaded1-1@example.net"];
        assert!(come(&all).judge(1, 2).is_clean());
        let swapped = come(&[all[0], all[0], all[2], all[3]]);
        let found = swapped.judge(1, 2);
        assert_eq!((found.arrived, found.duplicates, found.lost, found.unexplained), (3, 1, 1, 0));
        assert!(!found.is_clean());
        assert_eq!(swapped.small["idle1"].len(), 1, "nor does the round end by it");
        assert!(!come(&[&all[..], &["stranger-0@example.net"]].concat()).judge(1, 2).is_clean());
    }
}
