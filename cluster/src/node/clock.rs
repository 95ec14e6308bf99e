//! The only home of `now`: the machine's clocks, a clock set by hand for tests, and a leader's ledger clock.
//!
//! Everything else in this crate gets the time as an argument, or holds an `Arc<dyn Clock>`. Three clocks, three uses:
//! - **wall** tells people and other nodes what time it is here. It may jump. It is evidence for an
//!   `EpochStart` (P18) and a label in logs, and measures nothing.
//! - **boot** measures what must go on while the machine sleeps: leases (P9) and ledger time (P18).
//! - **monotonic** measures work and waiting, where a suspended machine should not count.
//!
//! [`LedgerClock`] makes ledger time for the leader of one epoch. Whether the voters' clocks agree, and on
//! what base, is the ledger's to decide; this module only applies its decision.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reveille_ledger::ids::Time;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Where a process learns the time. Readings of `boot` and `monotonic` never go back.
pub trait Clock: Send + Sync + 'static {
    /// The machine's wall clock (CLOCK_REALTIME). May jump either way.
    fn wall(&self) -> Time;
    /// Time since the machine started, sleep included (CLOCK_BOOTTIME).
    fn boot(&self) -> Duration;
    /// Time since some fixed moment, sleep not included (CLOCK_MONOTONIC).
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// Through the standard library, so that a shifted clock (libfaketime) can be put under a node from outside.
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

/// The kernel counts both clocks up from zero; a negative reading would be a defect, and reads as zero.
fn since_zero(reading: Timespec) -> Duration {
    let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(reading.tv_nsec).unwrap_or_default())
}

/// The slew is at most one in this many (P18: 0.1 %).
const SLEW_ONE_IN: i128 = 1_000;
const NANOS_PER_MS: i128 = 1_000_000;

/// Ledger time within one epoch, on its leader (P18): the base plus CLOCK_BOOTTIME since the epoch began,
/// slewed by at most 0.1 % toward the wall clock that was last agreed on, never stepped.
///
/// - It never goes back, whatever it is steered to: it runs between 99.9 % and 100.1 % of CLOCK_BOOTTIME.
/// - It is kept in nanoseconds, so that many small readings slew as much as one large one.
#[derive(Clone, Debug)]
pub struct LedgerClock {
    now_nanos: i128,
    read_at: Duration,
    behind_nanos: i128,
}

impl LedgerClock {
    /// Begins at the epoch's `base`, with the reading of CLOCK_BOOTTIME at that moment.
    pub fn new(base: Time, boot: Duration) -> LedgerClock {
        LedgerClock { now_nanos: i128::from(base.0) * NANOS_PER_MS, read_at: boot, behind_nanos: 0 }
    }

    /// Ledger time at a reading of CLOCK_BOOTTIME.
    pub fn now(&mut self, boot: Duration) -> Time {
        let passed = i128::try_from(boot.saturating_sub(self.read_at).as_nanos()).unwrap_or(i128::MAX / 4);
        let most = passed / SLEW_ONE_IN;
        let slew = self.behind_nanos.clamp(-most, most);
        self.behind_nanos -= slew;
        self.now_nanos = self.now_nanos.saturating_add(passed + slew);
        self.read_at = self.read_at.max(boot);
        Time(i64::try_from(self.now_nanos.div_euclid(NANOS_PER_MS)).unwrap_or(i64::MAX))
    }

    /// Steers toward `wall`, what the voters' clocks agree on at this reading of CLOCK_BOOTTIME. Takes the
    /// place of what was agreed before; ledger time itself does not move by it.
    pub fn steer(&mut self, wall: Time, boot: Duration) {
        self.now(boot);
        self.behind_nanos = i128::from(wall.0) * NANOS_PER_MS - self.now_nanos;
    }

    /// Forgets what was agreed before, at this reading of CLOCK_BOOTTIME: from here on it counts and follows
    /// no clock.
    pub fn steer_nowhere(&mut self, boot: Duration) {
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
    fn the_machines_clocks_are_read_and_do_not_go_back() {
        let clock = SystemClock;
        assert!(clock.wall() > Time(1_700_000_000_000), "after November 2023");
        let (boot, monotonic) = (clock.boot(), clock.monotonic());
        assert!(boot > Duration::ZERO && boot >= monotonic.saturating_sub(SECOND));
        assert!(clock.boot() >= boot && clock.monotonic() >= monotonic);
    }

    #[test]
    fn ledger_time_is_the_base_plus_what_has_passed() {
        let mut clock = LedgerClock::new(Time(1_000), Duration::from_secs(77));
        assert_eq!(clock.now(Duration::from_secs(77)), Time(1_000));
        assert_eq!(clock.now(Duration::from_millis(78_500)), Time(2_500));
        assert_eq!(clock.now(Duration::from_secs(70)), Time(2_500), "an older reading changes nothing");
        assert_eq!(clock.now(Duration::from_secs(79)), Time(3_000));
    }

    #[test]
    fn a_wall_clock_that_is_ahead_is_reached_at_a_thousandth_and_never_stepped_to() {
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
    fn without_an_agreement_it_counts_and_follows_nobody() {
        let mut clock = LedgerClock::new(Time(0), Duration::ZERO);
        clock.steer(Time(500), Duration::ZERO);
        clock.steer_nowhere(100 * SECOND);
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
        fn it_never_goes_back_and_keeps_within_a_thousandth(
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
