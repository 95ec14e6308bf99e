//! Measures how late Raft's runtime runs its tasks.
//!
//! A runtime that is starved loses heartbeats, and then its leadership: a wound of our own making. Whoever
//! sees elections without a fault of the network looks at this number first.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// How long the watchdog sleeps.
const NAP: Duration = Duration::from_millis(20);
/// From here on a late wake is worth a line: a tenth of the shortest election time-out would pass in it.
const LATE: Duration = Duration::from_millis(50);
/// One line in this time at most; the histogram has the rest.
const QUIET: Duration = Duration::from_secs(10);

/// Runs until `stop` on the runtime that it watches.
pub(crate) async fn watch(stop: CancellationToken) {
    let mut said: Option<Instant> = None;
    while !stop.is_cancelled() {
        let asleep = Instant::now();
        tokio::time::sleep(NAP).await;
        let late = asleep.elapsed().saturating_sub(NAP);
        metrics::histogram!("reveille_raft_loop_gap_seconds").record(late.as_secs_f64());
        if late >= LATE && said.is_none_or(|said| said.elapsed() >= QUIET) {
            said = Some(Instant::now());
            tracing::warn!(late_ms = late.as_millis(), "Raft's runtime is starved: elections may follow");
        }
    }
}
