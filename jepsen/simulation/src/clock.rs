//! The clocks of a node: virtual time, seen through an error of its own.

use std::sync::Arc;

use parking_lot::Mutex;
use reveille_cluster::clock::Clock;
use reveille_ledger::ids::Time;
use tokio::time::{Duration, Instant};

/// The clocks of one machine. Clones are the same clocks; they outlive the process.
#[derive(Clone)]
pub struct NodeClock {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    /// The virtual moment at which the readings below were right.
    since: Instant,
    wall_ms: i64,
    boot: Duration,
    /// Goes faster by this much, in parts of a million.
    drift_ppm: i64,
}

impl NodeClock {
    /// Shows `wall` now, on a machine that has been up for `boot`.
    pub fn new(wall: Time, boot: Duration) -> NodeClock {
        let inner = Inner { since: Instant::now(), wall_ms: wall.0, boot, drift_ppm: 0 };
        NodeClock { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Steps the wall clock, as an operator or a time daemon would.
    pub fn jump(&self, by_ms: i64) {
        self.inner.lock().wall_ms += by_ms;
    }

    /// From now on it goes so much faster (negative: slower).
    pub fn drift(&self, ppm: i64) {
        let mut inner = self.inner.lock();
        let (wall, boot) = inner.read();
        *inner = Inner { since: Instant::now(), wall_ms: wall.0, boot, drift_ppm: ppm };
    }

    /// The machine starts anew: it has been up for nothing.
    pub fn reboot(&self) {
        let mut inner = self.inner.lock();
        let (wall, _) = inner.read();
        *inner = Inner { since: Instant::now(), wall_ms: wall.0, boot: Duration::ZERO, drift_ppm: inner.drift_ppm };
    }

    /// The wall clock shows this from now on, and goes right.
    pub fn set(&self, wall: Time) {
        let mut inner = self.inner.lock();
        let (_, boot) = inner.read();
        *inner = Inner { since: Instant::now(), wall_ms: wall.0, boot, drift_ppm: 0 };
    }
}

impl Inner {
    fn read(&self) -> (Time, Duration) {
        let passed = self.since.elapsed();
        let nanos = passed.as_nanos() as i128;
        let seen = Duration::from_nanos((nanos + nanos * i128::from(self.drift_ppm) / 1_000_000) as u64);
        (Time(self.wall_ms + seen.as_millis() as i64), self.boot + seen)
    }
}

impl Clock for NodeClock {
    fn wall(&self) -> Time {
        self.inner.lock().read().0
    }

    fn boot(&self) -> Duration {
        self.inner.lock().read().1
    }

    fn monotonic(&self) -> Duration {
        self.boot()
    }
}
