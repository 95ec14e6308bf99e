//! The clocks of a node: virtual time with an error of its own.

use std::sync::Arc;

use parking_lot::Mutex;
use reveille_cluster::process::clock::Clock;
use reveille_ledger::ids::Time;
use tokio::time::{Duration, Instant};

/// The clocks of one machine. They outlive its processes. Clones share them.
#[derive(Clone)]
pub struct NodeClock {
    inner: Arc<Mutex<ClockState>>,
}

struct ClockState {
    /// Virtual time of the readings below.
    since: Instant,
    wall_ms: i64,
    /// Time since the machine was first switched on.
    up: Duration,
    /// The value of `up` at the last start of the machine.
    booted: Duration,
    /// Rate error of the wall clock in parts per million.
    wall_ppm: i64,
    /// Rate error of CLOCK_BOOTTIME in parts per million.
    boot_ppm: i64,
}

impl NodeClock {
    /// Returns clocks that show `wall` now, on a machine that has been up for `boot`.
    pub fn new(wall: Time, boot: Duration) -> NodeClock {
        let booted = Duration::ZERO;
        let inner = ClockState { since: Instant::now(), wall_ms: wall.0, up: boot, booted, wall_ppm: 0, boot_ppm: 0 };
        NodeClock { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Steps the wall clock, as an operator or a time daemon would.
    pub fn jump(&self, by_ms: i64) {
        self.inner.lock().wall_ms += by_ms;
    }

    /// Sets the rate error of both clocks from now on. Positive: they run fast.
    pub fn drift(&self, ppm: i64) {
        self.run_at(ppm, ppm);
    }

    /// Sets the rate error of CLOCK_BOOTTIME from now on, and corrects the rate of the wall clock. Positive: it runs
    /// fast.
    pub fn boot_rate(&self, ppm: i64) {
        self.run_at(0, ppm);
    }

    fn run_at(&self, wall_ppm: i64, boot_ppm: i64) {
        let mut inner = self.inner.lock();
        let (wall, up) = inner.read();
        *inner = ClockState { since: Instant::now(), wall_ms: wall.0, up, wall_ppm, boot_ppm, ..*inner };
    }

    /// Restarts the machine: CLOCK_BOOTTIME begins at zero.
    pub fn reboot(&self) {
        let mut inner = self.inner.lock();
        let (_, up) = inner.read();
        inner.booted = up;
    }

    /// Sets the wall clock. Both clocks run at the right rate from now on.
    pub fn set(&self, wall: Time) {
        let mut inner = self.inner.lock();
        let (_, up) = inner.read();
        *inner = ClockState { since: Instant::now(), wall_ms: wall.0, up, wall_ppm: 0, boot_ppm: 0, ..*inner };
    }

    /// Returns the clocks of a process that starts now. If its tasks still run after a restart of the machine, no clock
    /// runs backwards for them.
    pub fn of_process(&self) -> ProcessClock {
        ProcessClock { clock: self.clone(), booted: self.inner.lock().booted }
    }
}

/// The clocks of a machine as one process of it reads them.
pub struct ProcessClock {
    clock: NodeClock,
    booted: Duration,
}

impl ClockState {
    fn read(&self) -> (Time, Duration) {
        let nanos = self.since.elapsed().as_nanos() as i128;
        let seen = |ppm: i64| Duration::from_nanos((nanos + nanos * i128::from(ppm) / 1_000_000) as u64);
        (Time(self.wall_ms + seen(self.wall_ppm).as_millis() as i64), self.up + seen(self.boot_ppm))
    }
}

impl Clock for ProcessClock {
    fn wall(&self) -> Time {
        self.clock.inner.lock().read().0
    }

    fn boot(&self) -> Duration {
        self.clock.inner.lock().read().1.saturating_sub(self.booted)
    }

    fn monotonic(&self) -> Duration {
        self.boot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn boot_rate_leaves_wall_clock_right_until_it_is_set() {
        let clock = NodeClock::new(Time(0), Duration::ZERO);
        clock.boot_rate(-90_000);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let process = clock.of_process();
        assert_eq!((process.wall(), process.boot()), (Time(10_000), Duration::from_millis(9_100)));
        clock.set(Time(10_000));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((process.wall(), process.boot()), (Time(11_000), Duration::from_millis(10_100)));
    }

    #[tokio::test(start_paused = true)]
    async fn reboot_turns_no_clock_back_for_ended_process() {
        let clock = NodeClock::new(Time(0), Duration::from_secs(500));
        let former = clock.of_process();
        tokio::time::sleep(Duration::from_secs(7)).await;
        clock.reboot();
        let next = clock.of_process();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!((former.boot(), next.boot()), (Duration::from_secs(509), Duration::from_secs(2)));
        assert_eq!((former.wall(), next.wall()), (Time(9_000), Time(9_000)));
    }
}
