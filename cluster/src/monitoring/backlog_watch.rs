//! Measures the backlog of this node's applied state every few seconds, for operators and for metrics (P16).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::backlog::{BacklogReading, BacklogWatch, add_waiting};
use crate::process::context::NodeContext;

/// Interval of the measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Measures the backlog until `stop`.
pub(crate) async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    let mut watch = BacklogWatch::default();
    let mut gauges = BTreeMap::new();
    let mut every = tokio::time::interval(MEASURE_EVERY);
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        let (now, own) = (context.clock.boot(), Arc::clone(&context));
        // Not on the threads that send emails: the calendars are computed one after the other, outside the state's
        // lock.
        let reading = tokio::task::spawn_blocking(move || {
            let mut reading = own.replica.read(BacklogReading::of);
            add_waiting(&mut reading.late, &reading.missed, &own.zones, reading.now);
            reading
        });
        let reading = match reading.await {
            Ok(reading) => reading,
            Err(error) => {
                tracing::error!(%error, "the backlog was not measured");
                continue;
            }
        };
        let backlogs = watch.update(reading.late, |pool| reading.bounds.get(pool).copied(), now);
        for (pool, _) in std::mem::take(&mut gauges) {
            gauges.insert(pool, (0.0, 0.0));
        }
        for backlog in &backlogs {
            let age = reading.now.since_ms(backlog.oldest).max(0) as f64 / 1_000.0;
            gauges.insert(backlog.pool.clone(), (backlog.recipients as f64, age));
        }
        for (pool, (recipients, age)) in &gauges {
            metrics::gauge!("reveille_backlog_recipients", "pool" => pool.clone()).set(*recipients);
            metrics::gauge!("reveille_backlog_age_seconds", "pool" => pool.clone()).set(*age);
        }
        *context.backlogs.write() = backlogs;
    }
}
