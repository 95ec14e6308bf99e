//! Benchmarks of a cluster of real nodes: commands of `reveille-jepsen`. Each measures, and checks that every email came
//! exactly once. The fault runs judge; a benchmark keeps no history, since its volume does not fit into one.
//!
//! `campaign` measures the throughput of one large run, `tenants` how late a small tenant is beside a large one,
//! `schedules` the lateness, the cost and the creation of many schedules, and `days` what months of daily schedules leave.

mod accepts;
pub mod campaign;
pub mod days;
pub mod schedules;
pub mod tenants;
mod yardstick;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use reveille_harness::{Cluster, http};
use reveille_sink::{DotAnswer, DotWatcher, Sink, SinkOptions};

/// Sessions to the sink, on each node.
const SESSIONS: u32 = 32;
/// The seed of generated audiences.
const SEED: u64 = 1;

/// What the sink's accepts are counted in.
struct Counter<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> Counter<T> {
    /// A sink that reports recipient and instant of each accept to `note` and keeps no email.
    fn start(counts: T, note: impl Fn(&mut T, &str, i64) + Send + Sync + 'static) -> Result<(Counter<T>, Sink)> {
        let counts = Arc::new(Mutex::new(counts));
        let counter = Counter(Arc::clone(&counts));
        let dots = DotWatcher::new(move |accept, answer| {
            // The answer of a killed node's email may be lost; the email counts.
            if matches!(answer, DotAnswer::Accepted | DotAnswer::AcceptedUnanswered) {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                note(&mut counts, &accept.recipient, accept.accept_unix_us as i64);
            }
        });
        let options = SinkOptions { dots: Some(dots), keep_records: 0, keep_bodies: 0, ..SinkOptions::default() };
        Ok((counter, Sink::start(options)?))
    }

    fn read(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sum of a counter of all nodes.
async fn sum_of_nodes(cluster: &Cluster, counter: &str) -> Result<u64> {
    let mut sum = 0;
    for node in cluster.nodes() {
        let value = http::counter(node.http, counter).await;
        sum += value.with_context(|| format!("{} shows no metrics", node.name))?;
    }
    Ok(sum)
}
