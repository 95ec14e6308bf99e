//! Limits how often one kind of event is logged. Any caller of a port can cause such events at any rate.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum time between two log lines.
const EVERY: Duration = Duration::from_secs(10);

/// Time of the last log line of one kind.
#[derive(Debug, Default)]
pub struct LogInterval(Mutex<Option<Instant>>);

impl LogInterval {
    /// No event was logged yet.
    pub const fn new() -> LogInterval {
        LogInterval(Mutex::new(None))
    }

    /// Returns true if the event may be logged now, and starts the interval anew.
    pub fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut logged = self.0.lock();
        let is_due = logged.is_none_or(|last| now.duration_since(last) >= EVERY);
        if is_due {
            *logged = Some(now);
        }
        is_due
    }
}
