//! The rate at which one node may use one relay: a token bucket whose rate is halved when the relay answers "too fast"
//! and grows back slowly (additive increase, multiplicative decrease).
//!
//! Called by a relay's sessions, once before each email and once for each throttle answer. The leader's dispatcher uses
//! it for late email (`leader/claims/limits.rs`). Guarantees: over any span of `t` seconds it gives at most `budget * t
//! + burst` tokens, and a throttle answer halves the rate at once. It is a value: no runtime, no clock, no lock. Time
//! is a `Duration` since a fixed origin of the caller; a time that goes back counts as no time.
//!
//! It does not decide whose email is next (`worker/pool_queue/mod.rs` does) and does not know other nodes: its budget
//! is already this node's share (P25).

use std::time::Duration;

/// The rate never falls below this part of the budget. A relay that always throttles is still tried from time to time,
/// which is the only way to learn that it has recovered.
const FLOOR: f64 = 1.0 / 1024.0;

/// Seconds in which the rate grows from zero to the whole budget. From one half it takes half as long.
const GROW_BACK_SECONDS: f64 = 300.0;

/// Throttle answers within this time after a halving are ignored. Many sessions get the same answer at once, and it is
/// about the rate before the halving.
const ECHO: Duration = Duration::from_secs(1);

/// Longest wait that [`RateLimiter::take`] returns. With a budget of zero the caller asks again after this time.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Maximum rate in emails per second. Larger numbers are reduced to it.
const FASTEST: f64 = 1e9;

/// Tolerance for rounding errors. Without it `take` could return a wait of a nanosecond again and again.
const ROUNDING: f64 = 1e-6;

/// A token bucket whose rate is halved and recovers. Invariants:
///
/// - `budget * FLOOR <= rate <= budget`
/// - `0 <= tokens <= burst`, and `burst >= 1`, since less than one email cannot be sent
#[derive(Debug, Clone)]
pub struct RateLimiter {
    budget: f64,
    burst: f64,
    rate: f64,
    tokens: f64,
    refilled_at: Option<Duration>,
    halved_at: Option<Duration>,
}

impl RateLimiter {
    /// Creates a bucket for `budget` emails per second (fractions are allowed; zero means none now) and at most `burst`
    /// tokens (at least one). It starts empty: after a restart or a fail-over no node knows what was spent just before
    /// (P25).
    pub fn new(budget: f64, burst: f64) -> RateLimiter {
        let budget = sane(budget);
        RateLimiter {
            budget,
            burst: sane(burst).max(1.0),
            rate: budget,
            tokens: 0.0,
            refilled_at: None,
            halved_at: None,
        }
    }

    /// Takes the token for one email at `now`.
    ///
    /// # Errors
    /// Returns the time after which to ask again, never zero, at most [`LONGEST_WAIT`]. No token was taken.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        self.refill(now);
        if self.tokens + ROUNDING >= 1.0 {
            self.tokens = (self.tokens - 1.0).max(0.0);
            return Ok(());
        }
        let seconds = (1.0 - self.tokens) / self.rate;
        Err(if seconds < LONGEST_WAIT.as_secs_f64() {
            Duration::from_secs_f64(seconds) + Duration::from_nanos(1)
        } else {
            LONGEST_WAIT
        })
    }

    /// Returns the number of tokens at `now`.
    pub fn saved(&mut self, now: Duration) -> u32 {
        self.refill(now);
        // The cast of a float saturates at the bounds of the integer.
        (self.tokens + ROUNDING) as u32
    }

    /// Returns the time from the last refill until the bucket has `count` tokens, at most [`LONGEST_WAIT`].
    pub fn until_saved(&self, count: u32) -> Duration {
        let seconds = ((f64::from(count) - self.tokens) / self.rate).clamp(0.0, LONGEST_WAIT.as_secs_f64());
        // Zero missing tokens at a rate of zero give NaN, which counts as never.
        Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_WAIT)
    }

    /// Returns the budget in emails per second.
    pub fn budget(&self) -> f64 {
        self.budget
    }

    /// Takes `count` tokens at once. The caller knows from `saved` that the bucket has them.
    pub fn take_saved(&mut self, count: u32) {
        self.tokens = (self.tokens - f64::from(count)).max(0.0);
    }

    /// Halves the rate and removes all tokens, since the relay answered "too fast". A second call within a second of
    /// the last halving changes nothing.
    pub fn halve(&mut self, now: Duration) {
        self.refill(now);
        if self.halved_at.is_some_and(|at| now.saturating_sub(at) < ECHO) {
            return;
        }
        self.halved_at = Some(now);
        self.rate = (self.rate / 2.0).max(self.budget * FLOOR);
        self.tokens = 0.0;
    }

    /// Sets another share of the relay's budget. A rate that throttling has reduced stays reduced in proportion.
    pub fn set_budget(&mut self, now: Duration, budget: f64, burst: f64) {
        self.refill(now);
        let share = if self.budget > 0.0 { self.rate / self.budget } else { 1.0 };
        self.budget = sane(budget);
        self.burst = sane(burst).max(1.0);
        self.rate = self.budget * share;
        self.tokens = self.tokens.min(self.burst);
    }

    /// Returns the rate in emails per second at `now`.
    pub fn rate_per_second(&self, now: Duration) -> f64 {
        self.rate_after(self.since_refill(now))
    }

    fn since_refill(&self, now: Duration) -> f64 {
        let elapsed = self.refilled_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        elapsed.as_secs_f64()
    }

    fn rate_after(&self, seconds: f64) -> f64 {
        (self.rate + self.budget / GROW_BACK_SECONDS * seconds).min(self.budget)
    }

    /// Fills the bucket at the rate before the growth, which is the lower one. So growth never gives a token early.
    fn refill(&mut self, now: Duration) {
        let seconds = self.since_refill(now);
        self.tokens = (self.tokens + self.rate * seconds).min(self.burst);
        self.rate = self.rate_after(seconds);
        self.refilled_at = Some(self.refilled_at.map_or(now, |at| at.max(now)));
    }
}

fn sane(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, FASTEST) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    fn taken_in(limiter: &mut RateLimiter, from: f64, to: f64) -> u32 {
        let (mut now, mut taken) = (seconds(from), 0);
        while now < seconds(to) {
            match limiter.take(now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait,
            }
        }
        taken
    }

    #[test]
    fn bucket_starts_empty_and_fills_at_its_rate() {
        let mut limiter = RateLimiter::new(10.0, 5.0);
        let wait = limiter.take(seconds(100.0)).unwrap_err();
        assert!((0.099..0.101).contains(&wait.as_secs_f64()), "{wait:?}");
        assert_eq!(limiter.take(seconds(100.0) + wait), Ok(()));
        assert_eq!(taken_in(&mut RateLimiter::new(10.0, 5.0), 0.0, 10.0), 99);
    }

    #[test]
    fn rate_may_be_below_one_per_second() {
        assert_eq!(taken_in(&mut RateLimiter::new(0.05, 1.0), 0.0, 201.0), 10);
    }

    #[test]
    fn saved_tokens_never_exceed_burst() {
        let mut limiter = RateLimiter::new(100.0, 3.0);
        assert!(limiter.take(seconds(0.0)).is_err());
        let at = seconds(3600.0);
        assert_eq!((0..10).filter(|_| limiter.take(at).is_ok()).count(), 3);
    }

    #[test]
    fn throttle_answer_halves_rate_at_once() {
        let mut limiter = RateLimiter::new(100.0, 10.0);
        assert!(limiter.take(seconds(0.0)).is_err());
        limiter.halve(seconds(1.0));
        assert_eq!(limiter.rate_per_second(seconds(1.0)), 50.0);
        assert!(limiter.take(seconds(1.0)).is_err(), "the saved burst went with it");
    }

    #[test]
    fn many_sessions_that_hear_one_throttle_halve_once() {
        let mut limiter = RateLimiter::new(100.0, 10.0);
        for echo in 0..20 {
            limiter.halve(seconds(1.0 + f64::from(echo) / 100.0));
        }
        assert!(limiter.rate_per_second(seconds(1.2)) >= 50.0);
        limiter.halve(seconds(2.5));
        assert!(limiter.rate_per_second(seconds(2.5)) < 26.0, "a later one is another one");
    }

    #[test]
    fn throttled_rate_grows_back_slowly_up_to_budget() {
        let mut limiter = RateLimiter::new(100.0, 10.0);
        limiter.halve(seconds(0.0));
        assert!(limiter.rate_per_second(seconds(1.0)) < 51.0);
        assert!((74.0..76.0).contains(&limiter.rate_per_second(seconds(75.0))));
        assert_eq!(limiter.rate_per_second(seconds(10_000.0)), 100.0);
    }

    #[test]
    fn relay_that_always_throttles_is_still_asked() {
        let mut limiter = RateLimiter::new(1000.0, 10.0);
        for second in 0..200 {
            limiter.halve(seconds(f64::from(second)));
        }
        assert!(limiter.rate_per_second(seconds(200.0)) > 0.9);
    }

    #[test]
    fn new_budget_keeps_throttling_in_proportion() {
        let mut limiter = RateLimiter::new(100.0, 10.0);
        limiter.halve(seconds(0.0));
        limiter.set_budget(seconds(0.0), 20.0, 2.0);
        assert_eq!(limiter.rate_per_second(seconds(0.0)), 10.0);
        limiter.set_budget(seconds(0.0), 0.0, 0.0);
        assert_eq!(limiter.take(seconds(1.0)), Err(LONGEST_WAIT));
        limiter.set_budget(seconds(1.0), 8.0, 1.0);
        assert_eq!(limiter.rate_per_second(seconds(1.0)), 8.0);
    }

    #[test]
    fn nan_and_infinite_rates_send_nothing() {
        assert_eq!(RateLimiter::new(f64::NAN, f64::NAN).take(seconds(1.0)), Err(LONGEST_WAIT));
        assert_eq!(RateLimiter::new(-3.0, 1.0).take(seconds(1.0)), Err(LONGEST_WAIT));
        assert!(RateLimiter::new(f64::INFINITY, f64::INFINITY).take(seconds(1.0)).is_err());
    }

    #[test]
    fn time_that_goes_back_is_no_time() {
        let mut limiter = RateLimiter::new(1.0, 5.0);
        assert!(limiter.take(seconds(10.0)).is_err());
        assert!(limiter.take(seconds(4.0)).is_err());
        assert!(limiter.take(seconds(10.0)).is_err());
        assert_eq!(limiter.take(seconds(11.0)), Ok(()));
    }

    proptest! {
        #[test]
        fn no_span_hands_out_more_than_budget_and_burst(
            budget in 0.01f64..500.0,
            burst in 1.0f64..50.0,
            steps in prop::collection::vec((0.0f64..0.5, 0u8..20), 1..200),
        ) {
            let mut limiter = RateLimiter::new(budget, burst);
            let (mut now, mut taken) = (0.0, 0.0);
            for (step, what) in steps {
                now += step;
                if what == 0 {
                    limiter.halve(seconds(now));
                }
                while limiter.take(seconds(now)).is_ok() {
                    taken += 1.0;
                }
                prop_assert!(taken <= budget * now + burst + 0.001);
            }
        }

        #[test]
        fn no_second_hands_out_more_than_budget_and_burst(
            budget in 0.01f64..500.0,
            burst in 1.0f64..50.0,
            steps in prop::collection::vec((0.0f64..0.5, 0u8..20), 1..200),
        ) {
            let mut limiter = RateLimiter::new(budget, burst);
            let (mut now, mut taken) = (0.0, Vec::new());
            for (step, what) in steps {
                now += step;
                match what {
                    0 => limiter.halve(seconds(now)),
                    1 => limiter.set_budget(seconds(now), budget, burst),
                    _ => {}
                }
                while limiter.take(seconds(now)).is_ok() {
                    taken.push(now);
                }
                let in_last_second = taken.iter().rev().take_while(|at| now - **at < 1.0).count();
                prop_assert!(in_last_second as f64 <= budget + burst + 0.001, "{in_last_second}");
            }
        }
    }
}
