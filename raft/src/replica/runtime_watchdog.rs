//! Measures how late Raft's runtime runs its tasks.
//!
//! A starved runtime loses heartbeats and then its leadership. If elections occur without a network fault, check this
//! metric first.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Time between two measurements.
const SLEEP: Duration = Duration::from_millis(20);
/// A delay of this length is logged: about a tenth of the shortest election time-out.
const LATE: Duration = Duration::from_millis(50);
/// Minimum time between two log lines. The histogram records every value.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What a late runtime means, and what to do next.
const STARVED: &str = "Raft's tasks ran late, because this machine lacks CPU: the node may lose heartbeats, and then \
    the leader changes; give the machine more CPU, or raise raft.heartbeat_ms on all nodes";

/// Measures the runtime on which it runs, until `stop`.
pub(crate) async fn watch(stop: CancellationToken) {
    let mut logged: Option<Instant> = None;
    while !stop.is_cancelled() {
        let asleep = Instant::now();
        tokio::time::sleep(SLEEP).await;
        let late = asleep.elapsed().saturating_sub(SLEEP);
        metrics::histogram!("reveille_raft_loop_gap_seconds").record(late.as_secs_f64());
        if late >= LATE && logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
            logged = Some(Instant::now());
            tracing::warn!(late_ms = late.as_millis(), "{STARVED}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_runtime_warning_says_what_to_do() {
        let (meaning, next) = STARVED.split_once("; ").expect("what it means; what to do");
        assert!(meaning.contains("lacks CPU") && next.contains("raft.heartbeat_ms"), "{STARVED}");
        assert!(!STARVED.contains('\n') && !STARVED.contains("  "), "one line: {STARVED}");
    }
}
