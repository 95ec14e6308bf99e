//! Clocks: the machine's clocks behind a trait, and a leader's ledger clock.
//!
//! Code that decides by time gets the time as an argument, or holds an `Arc<dyn Clock>`. Only time-outs, sessions with
//! relays and the ages of files use `Instant` or `SystemTime` directly. Three clocks, three uses:
//! - **wall** is for operators and other nodes. It may jump. It is evidence for an `EpochStart` (P18) and a label in
//!   logs, and is never used to measure.
//! - **boot** measures durations that must include the machine's sleep: leases (P9) and ledger time (P18).
//! - **monotonic** measures work and waiting, where the machine's sleep should not count.
//!
//! [`LedgerClock`] makes ledger time for the leader of one epoch. The ledger decides if the voters' clocks agree, and
//! on which base; this module only applies its decision.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reveille_ledger::ids::Time;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A process's source of time. `boot` and `monotonic` never go back.
pub trait Clock: Send + Sync + 'static {
    /// Returns the machine's wall clock (CLOCK_REALTIME). It may jump in either direction.
    fn wall(&self) -> Time;
    /// Returns the time since the machine started, including sleep (CLOCK_BOOTTIME).
    fn boot(&self) -> Duration;
    /// Returns the time since some fixed moment, without sleep (CLOCK_MONOTONIC).
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// Uses the standard library, so that tests can shift the clock of a node from outside (libfaketime).
    fn wall(&self) -> Time {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Time(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => ms(since),
            Err(before) => -ms(before.duration()),
        })
    }

    fn boot(&self) -> Duration {
        since_zero(clock_gettime(ClockId::Boottime))
    }

    fn monotonic(&self) -> Duration {
        since_zero(clock_gettime(ClockId::Monotonic))
    }
}

/// Converts a reading. The kernel counts both clocks up from zero, so a negative reading would be a bug; it becomes
/// zero.
fn since_zero(reading: Timespec) -> Duration {
    let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(reading.tv_nsec).unwrap_or_default())
}

/// The slew is at most one part in this many (P18: 0.1 %).
const SLEW_ONE_IN: i128 = 1_000;
const NANOS_PER_MS: i128 = 1_000_000;

/// Ledger time within one epoch, on its leader (P18). It is the base plus CLOCK_BOOTTIME since the epoch began, slewed
/// by at most 0.1 % toward the wall clock that the voters last agreed on, and never stepped.
///
/// - It never goes back: it runs at 99.9 % to 100.1 % of the speed of CLOCK_BOOTTIME, whatever the target is.
/// - It is kept in nanoseconds, so that many small readings slew as much as one large one.
#[derive(Clone, Debug)]
pub struct LedgerClock {
    now_nanos: i128,
    read_at: Duration,
    behind_nanos: i128,
}

impl LedgerClock {
    /// Starts at the epoch's `base`. `boot` is the reading of CLOCK_BOOTTIME at that moment.
    pub fn new(base: Time, boot: Duration) -> LedgerClock {
        LedgerClock { now_nanos: i128::from(base.0) * NANOS_PER_MS, read_at: boot, behind_nanos: 0 }
    }

    /// Returns the ledger time at a reading of CLOCK_BOOTTIME.
    pub fn now(&mut self, boot: Duration) -> Time {
        let passed = i128::try_from(boot.saturating_sub(self.read_at).as_nanos()).unwrap_or(i128::MAX / 4);
        let most = passed / SLEW_ONE_IN;
        let slew = self.behind_nanos.clamp(-most, most);
        self.behind_nanos -= slew;
        self.now_nanos = self.now_nanos.saturating_add(passed + slew);
        self.read_at = self.read_at.max(boot);
        Time(i64::try_from(self.now_nanos.div_euclid(NANOS_PER_MS)).unwrap_or(i64::MAX))
    }

    /// Slews toward `wall`, the time on which the voters' clocks agree at this reading of CLOCK_BOOTTIME. Replaces the
    /// former target. Ledger time itself does not jump.
    pub fn steer(&mut self, wall: Time, boot: Duration) {
        self.now(boot);
        self.behind_nanos = i128::from(wall.0) * NANOS_PER_MS - self.now_nanos;
    }

    /// Removes the target at this reading of CLOCK_BOOTTIME. From now on ledger time follows CLOCK_BOOTTIME only.
    pub fn stop_steering(&mut self, boot: Duration) {
        self.now(boot);
        self.behind_nanos = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn machine_clocks_are_read_and_never_go_back() {
        let clock = SystemClock;
        assert!(clock.wall() > Time(1_700_000_000_000), "after November 2023");
        let (boot, monotonic) = (clock.boot(), clock.monotonic());
        assert!(boot > Duration::ZERO && boot >= monotonic.saturating_sub(SECOND));
        assert!(clock.boot() >= boot && clock.monotonic() >= monotonic);
    }

    #[test]
    fn ledger_time_is_base_plus_elapsed_time() {
        let mut clock = LedgerClock::new(Time(1_000), Duration::from_secs(77));
        assert_eq!(clock.now(Duration::from_secs(77)), Time(1_000));
        assert_eq!(clock.now(Duration::from_millis(78_500)), Time(2_500));
        assert_eq!(clock.now(Duration::from_secs(70)), Time(2_500), "an older reading changes nothing");
        assert_eq!(clock.now(Duration::from_secs(79)), Time(3_000));
    }

    #[test]
    fn wall_clock_ahead_is_approached_slowly_without_step() {
        let mut clock = LedgerClock::new(Time(0), Duration::ZERO);
        clock.steer(Time(500), Duration::ZERO);
        assert_eq!(clock.now(Duration::ZERO), Time(0));
        assert_eq!(clock.now(100 * SECOND), Time(100_100));
        assert_eq!(clock.now(500 * SECOND), Time(500_500));
        assert_eq!(clock.now(900 * SECOND), Time(900_500), "reached, and not passed");
        clock.steer(Time(0), 900 * SECOND);
        assert_eq!(clock.now(1_000 * SECOND), Time(1_000_400), "slower, but onward");
    }

    #[test]
    fn ledger_time_without_agreement_follows_no_clock() {
        let mut clock = LedgerClock::new(Time(0), Duration::ZERO);
        clock.steer(Time(500), Duration::ZERO);
        clock.stop_steering(100 * SECOND);
        assert_eq!(clock.now(900 * SECOND), Time(900_100), "what was made up stays, and nothing is added");
    }

    #[test]
    fn many_small_readings_slew_as_much_as_one_large_one() {
        let mut clock = LedgerClock::new(Time(0), Duration::ZERO);
        clock.steer(Time(1_000_000), Duration::ZERO);
        for millisecond in 1..=100_000 {
            clock.now(Duration::from_millis(millisecond));
        }
        assert_eq!(clock.now(100 * SECOND), Time(100_100));
    }

    proptest! {
        #[test]
        fn ledger_time_never_goes_back_and_keeps_within_a_thousandth(
            steps in prop::collection::vec((0_u64..100_000, prop::option::of(any::<i64>())), 1..60),
        ) {
            let mut clock = LedgerClock::new(Time(0), Duration::ZERO);
            let (mut boot, mut last) = (0_u64, Time(0));
            for (passed, wall) in steps {
                boot += passed;
                let now = clock.now(Duration::from_millis(boot));
                prop_assert!(now >= last, "{} after {}", now.0, last.0);
                let (boot_ms, bound) = (boot as i64, boot as i64 / 1_000 + 1);
                prop_assert!((now.0 - boot_ms).abs() <= bound, "{} after {} ms", now.0, boot);
                last = now;
                if let Some(wall) = wall {
                    clock.steer(Time(wall), Duration::from_millis(boot));
                }
            }
        }
    }
}
