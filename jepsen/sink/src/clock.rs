//! The two clocks of an accept: the wall clock for people, and CLOCK_BOOTTIME. CLOCK_BOOTTIME never steps and is the
//! same for all processes of a machine, so a judge can put a sink's accepts and its own records in one order.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// One reading of both clocks, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SinkInstant {
    pub(crate) unix_us: u64,
    pub(crate) monotonic_us: u64,
}

impl SinkInstant {
    pub(crate) fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let boot = clock_gettime(ClockId::Boottime);
        Self {
            unix_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
            monotonic_us: u64::try_from(boot.tv_sec).unwrap_or(0) * 1_000_000
                + u64::try_from(boot.tv_nsec).unwrap_or(0) / 1_000,
        }
    }
}
