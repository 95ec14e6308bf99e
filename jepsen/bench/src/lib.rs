//! Benchmarks of a cluster of real nodes: `reveille-jepsen bench`. Each benchmark measures, and checks that every
//! email arrived exactly once. It records no history, because its volume is too large for the judge of the fault runs.
//!
//! `campaign` measures the throughput of one large run, `tenants` the lateness of a small tenant beside a large one,
//! `schedules` the lateness, the cost and the creation of many schedules, `messages` the rate of messages with a key,
//! and `days` memory and rate over months of daily schedules.

mod accepts;
pub mod bounds;
mod campaign;
mod compare_tls;
mod days;
mod late_follower;
mod locks;
mod lost_node;
mod messages;
mod restart;
mod schedules;
mod smtp_source;
mod tenants;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use reveille_harness::measure::unix_us;
use reveille_harness::{Cluster, Report, StartArgs, http};
use reveille_sink::{DotAnswer, DotWatcher, Sink, SinkOptions};

/// Number of nodes of a cluster.
const NODES: u8 = 3;
/// Minimum rate for which a benchmark waits, and a time that is added to the wait.
const SLOWEST_PER_SECOND: u64 = 500;
const WAIT_AT_LEAST: Duration = Duration::from_secs(120);
/// Time after the last email within which a duplicate may arrive.
const QUIET_AFTER: Duration = Duration::from_secs(3);
/// Number of sessions of each node with the sink.
const SESSIONS: u32 = 32;
/// Seconds from the end of a run to its archiving: the minimum that a node accepts.
const ARCHIVE_AFTER: u64 = 10;
/// Time without an archived page after which all runs are archived, with [`ARCHIVE_AFTER`].
const ARCHIVED_QUIET: Duration = Duration::from_secs(ARCHIVE_AFTER + 5);
/// The leader's counter of pages with runs that it archived.
const ARCHIVED_PAGES: &str = "reveille_archived_pages_total";
/// Maximum time for which runs are archived.
const ARCHIVED_WITHIN: Duration = Duration::from_secs(600);
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Seed of generated audiences.
const SEED: u64 = 1;

/// The benchmarks.
#[derive(Debug, clap::Subcommand)]
pub enum Benchmark {
    /// Emails per second of one run to a sealed audience
    Campaign(campaign::Args),
    /// Lateness of one tenant's emails beside another tenant's backlog and dead relay
    Tenants(tenants::Args),
    /// Creation, idle cost and lateness of many schedules that are due in the same second
    Schedules(schedules::Args),
    /// Messages with a key a second, sent by JSON over HTTP, and the time until each is answered
    Messages(messages::Args),
    /// Memory, rate, disk and answers after months of daily schedules on the test clock
    Days(days::Args),
}

impl Benchmark {
    /// Runs the benchmark. The result is valid if no email is missing, doubled or early, and no bound is broken.
    ///
    /// # Errors
    /// Fails if the cluster cannot be started, or does not answer.
    pub async fn run(&self, start: &StartArgs) -> Result<Report> {
        match self {
            Benchmark::Campaign(args) if args.compare_tls => Box::pin(compare_tls::run(start, args)).await,
            Benchmark::Campaign(args) => Box::pin(campaign::run(start, args)).await,
            Benchmark::Tenants(args) => Box::pin(tenants::run(start, args)).await,
            Benchmark::Schedules(args) => Box::pin(schedules::run(start, args)).await,
            Benchmark::Messages(args) => Box::pin(messages::run(start, args)).await,
            Benchmark::Days(args) => Box::pin(days::run(start, args)).await,
        }
    }
}

/// Counts of the sink's accepts.
struct Counter<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> Counter<T> {
    /// Starts a sink that keeps no email, and reports recipient and instant of each accept to `record`.
    fn start(counts: T, record: impl Fn(&mut T, &str, i64) + Send + Sync + 'static) -> Result<(Counter<T>, Sink)> {
        Counter::start_remote(counts, record, Duration::ZERO)
    }

    /// Starts a sink that delays each write of replies by this time.
    fn start_remote(
        counts: T,
        record: impl Fn(&mut T, &str, i64) + Send + Sync + 'static,
        round_trip: Duration,
    ) -> Result<(Counter<T>, Sink)> {
        let counts = Arc::new(Mutex::new(counts));
        let counter = Counter(Arc::clone(&counts));
        let dots = DotWatcher::new(move |accept, answer| {
            // The answer to an email of a killed node may be lost, but the email counts.
            if matches!(answer, DotAnswer::Accepted | DotAnswer::AcceptedUnanswered) {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                record(&mut counts, &accept.recipient, accept.accept_unix_us as i64);
            }
        });
        let options =
            SinkOptions { dots: Some(dots), keep_records: 0, keep_bodies: 0, round_trip, ..SinkOptions::default() };
        Ok((counter, Sink::start(options)?))
    }

    fn read(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the maximum time for which a benchmark waits for this number of emails.
fn longest_wait(emails: u64) -> Duration {
    WAIT_AT_LEAST + Duration::from_secs(emails / SLOWEST_PER_SECOND)
}

/// Returns the sum of a counter over all running nodes.
async fn sum_of_nodes(cluster: &Cluster, counter: &str) -> Result<u64> {
    let mut sum = 0;
    for node in cluster.nodes().iter().filter(|node| node.process_id().is_some()) {
        let value = http::counter(&node.http, counter).await;
        sum += value.with_context(|| format!("{} shows no metrics", node.name))?;
    }
    Ok(sum)
}

/// Waits until no page was archived for this time. Returns the number of archived pages. The leader archives one batch
/// at each sweep of half a second.
async fn archived_pages(cluster: &Cluster, quiet: Duration) -> Result<u64> {
    let mut pages = sum_of_nodes(cluster, ARCHIVED_PAGES).await?;
    let (begun, mut unchanged_since) = (Instant::now(), Instant::now());
    while unchanged_since.elapsed() < quiet {
        let seconds = begun.elapsed().as_secs();
        ensure!(begun.elapsed() < ARCHIVED_WITHIN, "runs are still being archived after {seconds} s");
        tokio::time::sleep(POLL_EVERY).await;
        let now = sum_of_nodes(cluster, ARCHIVED_PAGES).await?;
        if now != pages {
            (pages, unchanged_since) = (now, Instant::now());
        }
    }
    Ok(pages)
}

/// Returns the next instant after this one that is a whole multiple of so many seconds since 1970 UTC.
fn next_whole(seconds: u64, at: SystemTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((unix_us(at) as u64 / 1_000_000 / seconds + 1) * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_instant_is_next_whole_second_or_minute() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        assert_eq!(next_whole(1, at), SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_001));
        assert_eq!(next_whole(60, at), SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_040));
    }
}
