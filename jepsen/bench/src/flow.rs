//! Rates of emails, by the instants of their accepts. It takes four bytes a millisecond, whatever the number of emails.

use reveille_harness::measure::rounded;

/// The start of a run that a rate excludes.
const WARM_UP_MS: usize = 2_000;
/// Windows before and after a kill.
const BEFORE_MS: usize = 5_000;
const AFTER_MS: usize = 10_000;

/// Accepts by the millisecond.
#[derive(Debug)]
pub struct Flow {
    start_us: u64,
    per_ms: Vec<u32>,
}

impl Flow {
    /// Begins at this instant; microseconds.
    pub fn new(start_us: u64) -> Flow {
        Flow { start_us, per_ms: Vec::new() }
    }

    /// Counts an accept. One before the start counts at the start.
    pub fn note(&mut self, at_us: u64) {
        let at = self.at(at_us);
        if self.per_ms.len() <= at {
            self.per_ms.resize(at + 1, 0);
        }
        self.per_ms[at] += 1;
    }

    /// The end of the millisecond of the last accept; microseconds.
    pub fn last_us(&self) -> Option<u64> {
        (!self.per_ms.is_empty()).then(|| self.start_us + self.per_ms.len() as u64 * 1_000)
    }

    /// Accepts a second after the first two seconds; `None` for a shorter run.
    pub fn rate(&self) -> Option<f64> {
        let from = self.per_ms.iter().position(|accepts| *accepts > 0)? + WARM_UP_MS;
        let counted = self.per_ms.get(from..).filter(|counted| !counted.is_empty())?;
        Some(sum(counted) as f64 * 1e3 / counted.len() as f64)
    }

    /// How many seconds of sending a kill cost: the emails that are missing in the ten seconds after it, divided by the rate
    /// of the five seconds before it. `None` if the run began or ended within these.
    pub fn lost_seconds(&self, killed_us: u64) -> Option<f64> {
        let killed = self.at(killed_us);
        let from = killed.checked_sub(BEFORE_MS)?;
        let (before, after) = (self.per_ms.get(from..killed)?, self.per_ms.get(killed..killed + AFTER_MS)?);
        let rate = sum(before) as f64 / BEFORE_MS as f64;
        // Any accept until then counts: a single millisecond without an accept proves nothing.
        let has_begun = self.per_ms[..=from].iter().any(|accepts| *accepts > 0);
        let missing = rate * AFTER_MS as f64 - sum(after) as f64;
        (has_begun && rate > 0.0).then(|| rounded((missing / rate / 1e3).max(0.0)))
    }

    /// Accepts before the millisecond of this instant; microseconds.
    pub fn before(&self, instant_us: u64) -> u64 {
        self.per_ms.get(..self.at(instant_us)).map_or_else(|| sum(&self.per_ms), sum)
    }

    fn at(&self, instant_us: u64) -> usize {
        (instant_us.saturating_sub(self.start_us) / 1_000) as usize
    }
}

fn sum(accepts: &[u32]) -> u64 {
    accepts.iter().copied().map(u64::from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One accept a millisecond, except in `quiet`.
    fn flow(until_ms: u64, quiet: std::ops::Range<u64>) -> Flow {
        let mut flow = Flow::new(7_000);
        (0..until_ms).filter(|ms| !quiet.contains(ms)).for_each(|ms| flow.note(7_000 + 1_000 * ms + ms % 1_000));
        flow
    }

    #[test]
    fn rate_excludes_first_two_seconds() {
        assert_eq!(flow(4_000, 0..0).rate(), Some(1_000.0));
        assert_eq!(flow(4_000, 2_100..2_200).rate(), Some(950.0));
        assert_eq!(flow(4_000, 0..2_000).rate(), None, "two seconds after the first accept, not after the start");
        assert_eq!((flow(2_000, 0..0).rate(), Flow::new(0).rate()), (None, None), "too short");
        assert_eq!((flow(4_000, 0..0).last_us(), Flow::new(0).last_us()), (Some(4_007_000), None));
    }

    #[test]
    fn accepts_before_instant_are_counted() {
        let flow = flow(4_000, 100..200);
        let before = |ms: u64| flow.before(7_000 + 1_000 * ms);
        assert_eq!([0, 1, 100, 150, 4_000, 9_000].map(before), [0, 1, 100, 100, 3_900, 3_900]);
        assert_eq!(flow.before(0), 0, "before the start");
    }

    #[test]
    fn kill_costs_emails_that_were_not_sent() {
        let kill = 7_000 + 10_000_000;
        assert_eq!(flow(30_000, 10_001..12_001).lost_seconds(kill), Some(2.0));
        let steady = flow(30_000, 0..0);
        assert_eq!(steady.lost_seconds(kill), Some(0.0));
        assert_eq!(steady.lost_seconds(25_000_000), None, "ended too early");
        assert_eq!(steady.lost_seconds(1_000_000), None, "began too late");
        // The millisecond five seconds before the kill is empty, as many are at 10,000 emails a second.
        assert_eq!(flow(30_000, 5_000..5_001).lost_seconds(kill), Some(0.0));
    }
}
