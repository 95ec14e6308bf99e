//! The token bucket of a sink that plays a throttling relay. Asked once for each MAIL command.

use std::time::Instant;

use parking_lot::Mutex;

use crate::options::Throttle;

/// One bucket for all connections of a sink.
pub(crate) struct Bucket {
    throttle: Throttle,
    level: Mutex<Level>,
}

struct Level {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(throttle: Throttle, now: Instant) -> Self {
        let tokens = f64::from(throttle.burst.max(1));
        Self { throttle, level: Mutex::new(Level { tokens, filled: now }) }
    }

    /// Takes a token; without one, the code to answer with.
    pub(crate) fn admit(&self, now: Instant) -> Result<(), u16> {
        let mut level = self.level.lock();
        let gained = now.saturating_duration_since(level.filled).as_secs_f64() * self.throttle.rate_per_second;
        let full = f64::from(self.throttle.burst.max(1));
        level.tokens = (level.tokens + gained.max(0.0)).min(full);
        level.filled = level.filled.max(now);
        if level.tokens < 1.0 {
            return Err(self.throttle.code);
        }
        level.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_decides() {
        let start = Instant::now();
        let bucket = Bucket::new(Throttle { rate_per_second: 10.0, burst: 3, code: 454 }, start);
        let at = |ms: u64| bucket.admit(start + Duration::from_millis(ms));
        assert_eq!([at(0), at(0), at(0), at(0)], [Ok(()), Ok(()), Ok(()), Err(454)]);
        assert_eq!([at(50), at(110), at(110)], [Err(454), Ok(()), Err(454)]);
        assert_eq!([at(9_000), at(9_000), at(9_000), at(9_000)], [Ok(()), Ok(()), Ok(()), Err(454)]);
    }
}
