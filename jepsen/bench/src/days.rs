//! `bench days`: sends daily schedules for months of virtual days on the test clock (P19), and compares day 3 with the
//! last day. Memory and rate must stay equal, because finished runs move from the state to the archive (P24).
//!
//! Each day the clock moves to two seconds before the instant, and the instant itself is reached in real time. When all
//! emails have arrived, the clock moves on by some hours. The runs of the day before are then over 24 h old, and the
//! leader archives them while nothing is sent.
//!
//! The result is valid if each address got one more email on each day, no email before its instant, and no other
//! address got an email.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reveille_harness::load::{self, CreateLoad};
use reveille_harness::measure::{FolderSize, folder_size, in_ms, now_ms, resident_mb, rounded};
use reveille_harness::{AdminClient, Cluster, Needs, Report, StartArgs};
use serde_json::{Value, json};

use crate::accepts::Accepts;
use crate::bounds::{self, Bounds};
use crate::tenants::median;
use crate::{
    ARCHIVED_PAGES, Counter, NODES, POLL_EVERY, SESSIONS, archived_pages, longest_wait, restart, sum_of_nodes,
};

/// Number of clients that create schedules at the same time.
const CLIENTS: u32 = 64;
/// Number of schedules in each call that creates schedules.
const BATCH: u64 = 500;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Minimum time from the start to the first instant, by the test clock. The creates end before that instant.
const FIRST_AFTER_MS: i64 = 6 * HOUR_MS;
/// Time before an instant to which the clock moves.
const AHEAD_MS: i64 = 2_000;
/// Step by which the clock moves when all emails have arrived, until runs are archived. The leader pauses for an hour
/// after each complete scan for finished runs. All steps together are less than a day.
const ARCHIVE_STEP_MS: i64 = 2 * HOUR_MS;
const ARCHIVE_STEPS_MAX: i64 = 10;
/// The day with which the last day is compared. The caches of a new cluster are full on that day.
const EARLY_DAY: u8 = 3;
/// Time without an archived batch after which all runs are archived. A duplicate may also arrive within this time.
const QUIET: Duration = Duration::from_millis(1_500);
/// Interval of progress reports within a day.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Number of entries in a page of a schedule's history, so that months have several pages.
const HISTORY_A_PAGE: i32 = 20;

/// Options of `bench days`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Daily schedules of one recipient each, all at the same time of day
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub schedules: u64,
    /// Virtual days
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u8).range(6..=250))]
    pub days: u8,
}

/// Runs the benchmark of days.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let addresses = (0..args.schedules).map(|number| load::address(&name_of(number), 0));
    let (counter, sink) = Counter::start(Accepts::of(addresses), Accepts::record)?;
    let needs = Needs { test_clock: true, ..Needs::default() };
    let mut cluster = Cluster::start(start, NODES, needs).await?;
    cluster.admin().add_relay(sink.address(), SESSIONS).await?;
    let first_due_ms = first_due_ms(now_ms() as i64);
    let body = move |number| load::daily(name_of(number), first_due_ms);
    let creates = CreateLoad { clients: CLIENTS, count: args.schedules, batch: BATCH };
    let created = load::create(cluster.admin(), creates, "daily schedules", body).await?;
    eprintln!("{} daily schedules, created at {:.0} a second", created.count, created.rate());

    let days = Days { cluster: &cluster, counter: &counter, args, first_due_ms }.run().await?;
    let answers = answers(cluster.admin(), &days.first_run).await?;
    let restart = restart::follower(&mut cluster).await?;

    let accepts = counter.read();
    let valid = days.is_exact && accepts.is_exact() && days.early_emails == 0;
    // The runs of the last day finished less than 24 hours before its end, so they are not archived.
    let archived_runs = args.schedules * u64::from(args.days - 1);
    let bytes_per_run = days.last.snapshots.iter().map(|(name, size)| {
        let bytes_per_run = rounded(size.bytes as f64 / archived_runs as f64);
        (name.clone(), bytes_per_run)
    });
    let bytes_per_run: BTreeMap<String, f64> = bytes_per_run.collect();
    let rss_ratio = days.last.rss_ratio(&days.early);
    let rates = compared_rates(&days.rates);
    let mut bounds = Bounds::default();
    if args.days >= bounds::MANY_DAYS && args.schedules >= bounds::DAILY_SCHEDULES {
        bounds.add_all(bounds::RSS_RATIO, rss_ratio.values());
        bounds.add(bounds::RATE_RATIO, rates.map(|(early, last)| rounded(last / early)));
        bounds.add_all(bounds::RUN_BYTES, bytes_per_run.values());
    }
    let figures = json!({
        "schedules": args.schedules,
        "days": args.days,
        "create_per_second": rounded(created.rate()),
        // For each node: resident memory, and the folder `snapshots` with the state and the archive.
        "after_day_3": days.early.figures(),
        "after_last_day": days.last.figures(),
        "rss_ratio": rss_ratio,
        // Emails per second from the instant to the last arrival: medians of days 2 to 4 and of the last three days.
        "rate_day_3": rates.map(|(early, _)| rounded(early)),
        "rate_last_day": rates.map(|(_, last)| rounded(last)),
        "rate_ratio": rates.map(|(early, last)| rounded(last / early)),
        // The runs of all days except the last day.
        "archived_runs": archived_runs,
        "archived_pages": days.archived_pages,
        // All bytes of `snapshots` at the end, divided by the archived runs. The bytes of the state are included. The
        // newest parts, at most 32 MiB, are in memory until the next snapshot.
        "snapshot_bytes_per_archived_run": bytes_per_run,
        // For a follower, from its start after a `kill -9` at the end.
        "restart_seconds": restart,
        // For the first node: the duration of a call, and of the same call again.
        "answer_ms": answers,
        "emails": accepts.figures(),
        "early": days.early_emails,
        "valid": valid,
    });
    bounds.report(figures, valid)
}

/// Sends the emails of one day after the other.
struct Days<'a> {
    cluster: &'a Cluster,
    counter: &'a Counter<Accepts>,
    args: &'a Args,
    first_due_ms: i64,
}

/// The measurements of all days.
struct DayMeasurements {
    /// Emails per second of each day.
    rates: Vec<f64>,
    /// True if each address had one more email after each day.
    is_exact: bool,
    /// Number of emails that arrived before their instant.
    early_emails: usize,
    early: NodeSizes,
    last: NodeSizes,
    archived_pages: u64,
    /// The run of the first schedule on day 1.
    first_run: String,
}

impl Days<'_> {
    async fn run(&self) -> Result<DayMeasurements> {
        let (mut rates, mut is_exact, mut archived_pages) = (Vec::new(), true, 0);
        let (mut first_run, mut early, mut early_emails) = (None, None, 0);
        for day in 1..=self.args.days {
            let (rate, early_today) = self.send(day).await?;
            early_emails += early_today;
            rates.push(rate);
            if first_run.is_none() {
                first_run = self.cluster.admin().run_of(&name_of(0)).await?.map(|run| run.run);
            }
            archived_pages = self.archive(day).await?;
            let is_exact_today = self.counter.read().is_exact();
            is_exact &= is_exact_today;
            let rss_mb = self.cluster.of_each(resident_mb)?;
            let days = self.args.days;
            eprintln!("day {day} of {days}: {rate:.0} emails a second, RSS in MB {rss_mb:?}, exact: {is_exact_today}");
            if day == EARLY_DAY {
                early = Some(NodeSizes::of(self.cluster)?);
            }
        }
        Ok(DayMeasurements {
            rates,
            is_exact,
            early_emails,
            early: early.context("too few days")?,
            last: NodeSizes::of(self.cluster)?,
            archived_pages,
            first_run: first_run.context("no run of the first schedule was found on day 1")?,
        })
    }

    fn due_ms(&self, day: u8) -> i64 {
        self.first_due_ms + i64::from(day - 1) * DAY_MS
    }

    /// Waits until all emails of a day have arrived. Returns their rate from the instant to the last arrival, and the
    /// number of emails that arrived before the instant.
    async fn send(&self, day: u8) -> Result<(f64, usize)> {
        let (admin, due_ms, emails) = (self.cluster.admin(), self.due_ms(day), self.args.schedules);
        let before = {
            let mut accepts = self.counter.read();
            accepts.set_expected(day);
            accepts.len()
        };
        admin.advance_clock(due_ms - AHEAD_MS).await?;
        let offset = admin.clock().await?.offset.context("a test clock without an offset")?;
        let offset = Duration::try_from(offset).context("the offset of the test clock")?;
        let due_us = due_ms * 1_000 - offset.as_micros() as i64;
        let wait = longest_wait(emails);
        let (until, mut reported) = (Instant::now() + wait, Instant::now());
        loop {
            let missing = self.counter.read().missing();
            if missing == 0 {
                let instants_us = self.counter.read().instants_us(before);
                let seconds = instants_us.last().map_or(0.0, |last_us| (last_us - due_us) as f64 / 1e6);
                let early = instants_us.partition_point(|at_us| *at_us < due_us);
                return Ok((emails as f64 / seconds.max(1e-3), early));
            }
            ensure!(
                Instant::now() < until,
                "day {day}: {missing} of {emails} emails did not arrive within {} s; --keep FOLDER keeps the logs",
                wait.as_secs()
            );
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                eprintln!("day {day}: {missing} of {emails} emails have not arrived yet");
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Lets the leader archive the runs of the day before. Returns the number of pages that were archived so far.
    ///
    /// A running scan for finished runs may have passed the pages of these runs, so the clock moves on until runs are
    /// archived. On day 1 there are no such runs. On later days a few may have been archived during the sending.
    async fn archive(&self, day: u8) -> Result<u64> {
        let before = sum_of_nodes(self.cluster, ARCHIVED_PAGES).await?;
        let mut pages = before;
        for step in 1..=ARCHIVE_STEPS_MAX {
            self.cluster.admin().advance_clock(self.due_ms(day) + step * ARCHIVE_STEP_MS).await?;
            pages = archived_pages(self.cluster, QUIET).await?;
            if pages > before || day == 1 {
                return Ok(pages);
            }
        }
        eprintln!("day {day}: no run was archived after the emails had arrived");
        Ok(pages)
    }
}

/// Use of memory and disk by each node.
struct NodeSizes {
    rss_mb: BTreeMap<String, f64>,
    snapshots: BTreeMap<String, FolderSize>,
}

impl NodeSizes {
    fn of(cluster: &Cluster) -> Result<NodeSizes> {
        let mut snapshots = BTreeMap::new();
        for node in cluster.nodes() {
            snapshots.insert(node.name.clone(), folder_size(&node.folder().join("snapshots"))?);
        }
        Ok(NodeSizes { rss_mb: cluster.of_each(resident_mb)?, snapshots })
    }

    /// Returns the memory of each node relative to `before`.
    fn rss_ratio(&self, before: &NodeSizes) -> BTreeMap<String, f64> {
        let ratio = |(name, mb): (&String, &f64)| Some((name.clone(), rounded(mb / before.rss_mb.get(name)?)));
        self.rss_mb.iter().filter_map(ratio).collect()
    }

    fn figures(&self) -> Value {
        let size = |size: &FolderSize| json!({"mb": rounded(size.bytes as f64 / 1e6), "files": size.files});
        let snapshots = self.snapshots.iter().map(|(name, folder)| (name.clone(), size(folder)));
        json!({"rss_mb": self.rss_mb, "snapshots": snapshots.collect::<BTreeMap<String, Value>>()})
    }
}

/// Measures how fast the admin API answers requests about archived runs.
async fn answers(admin: &AdminClient, first_run: &str) -> Result<Value> {
    let schedule = name_of(0);
    // This call comes first, so that the archive part with this run is not open yet.
    let (run_show, _) = twice(|| admin.counts(first_run)).await?;
    let (mut pages, mut entries, mut token) = (Vec::new(), 0, String::new());
    loop {
        let (took, (page, next)) = twice(|| admin.history_page(&schedule, HISTORY_A_PAGE, token.clone())).await?;
        pages.push(took);
        entries += page.len();
        if next.is_empty() {
            break;
        }
        token = next;
    }
    Ok(json!({
        "run_show_of_day_1": run_show,
        "history_first_page": pages.first(),
        "history_oldest_page": pages.last(),
        // Number of pages and entries of the history, which has one entry for each day.
        "history_pages": pages.len(),
        "history_entries": entries,
    }))
}

/// Makes a call twice. Returns the milliseconds of both calls, and the last answer.
async fn twice<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> Result<([f64; 2], T)> {
    let begun = Instant::now();
    call().await?;
    let first = begun.elapsed();
    let begun = Instant::now();
    let answer = call().await?;
    Ok(([first, begun.elapsed()].map(|took| in_ms(took.as_micros() as i64)), answer))
}

fn name_of(number: u64) -> String {
    format!("day-{number}")
}

/// Returns the first instant, a whole minute.
fn first_due_ms(now_ms: i64) -> i64 {
    (now_ms / MINUTE_MS + 1) * MINUTE_MS + FIRST_AFTER_MS
}

/// Returns the median rates of the three days around day 3, and of the last three days.
fn compared_rates(rates: &[f64]) -> Option<(f64, f64)> {
    let around = usize::from(EARLY_DAY);
    let (early, last) = (rates.get(around - 2..=around)?, rates.get(rates.len().checked_sub(3)?..)?);
    median(early).zip(median(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_instant_is_whole_minute_after_creates() {
        let now_ms = 1_700_000_012_345;
        let due_ms = first_due_ms(now_ms);
        assert_eq!(due_ms % MINUTE_MS, 0);
        assert!((FIRST_AFTER_MS..=FIRST_AFTER_MS + MINUTE_MS).contains(&(due_ms - now_ms)));
    }

    #[test]
    fn rates_are_medians_of_three_days() {
        let rates = [1.0, 20.0, 900.0, 30.0, 5.0, 7.0, 6.0];
        assert_eq!(compared_rates(&rates), Some((30.0, 6.0)));
        assert_eq!(compared_rates(&rates[..3]), None);
    }
}
