//! A clock whose wall clock can be wrong. Tests of the API use it too.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_ledger::ids::Time;

/// The clocks of the machine, but the wall clock can be wrong.
#[derive(Default)]
pub struct WrongClock {
    ahead_ms: AtomicI64,
}

impl WrongClock {
    /// Sets how far the wall clock is ahead of the right time in milliseconds, also of a running node. The monotonic
    /// clock does not change.
    pub fn set_ahead(&self, by_ms: i64) {
        self.ahead_ms.store(by_ms, Ordering::Relaxed);
    }
}

impl Clock for WrongClock {
    fn wall(&self) -> Time {
        SystemClock.wall().plus_ms(self.ahead_ms.load(Ordering::Relaxed))
    }

    fn boot(&self) -> Duration {
        SystemClock.boot()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}
