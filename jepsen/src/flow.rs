//! How fast it flowed, by the instants of accepts. Pure; four bytes a millisecond, however many mails there are.

/// The beginning that is left out of a rate.
const WARM_UP_MS: usize = 2_000;
/// What is looked at before and behind a kill.
const BEFORE_MS: usize = 5_000;
const BEHIND_MS: usize = 10_000;

/// Accepts by the millisecond.
#[derive(Debug)]
pub struct Flow {
    start_us: u64,
    per_ms: Vec<u32>,
}

/// What a kill cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Seconds of sending that are missing from the ten behind the kill, by the rate of the five before it.
    pub lost_seconds: f64,
    /// The longest time in these ten seconds without an accept. Seconds.
    pub silent_seconds: f64,
}

impl Flow {
    /// From this instant on; microseconds.
    pub fn new(start_us: u64) -> Flow {
        Flow { start_us, per_ms: Vec::new() }
    }

    /// An accept. What was before the start counts as at the start.
    pub fn note(&mut self, at_us: u64) {
        let at = self.at(at_us);
        if self.per_ms.len() <= at {
            self.per_ms.resize(at + 1, 0);
        }
        self.per_ms[at] += 1;
    }

    /// The end of the millisecond of the last accept. Microseconds; none without any.
    pub fn last_us(&self) -> Option<u64> {
        (!self.per_ms.is_empty()).then(|| self.start_us + self.per_ms.len() as u64 * 1_000)
    }

    /// Accepts a second behind the warm-up; none of what is shorter.
    pub fn rate(&self) -> Option<f64> {
        let from = self.per_ms.iter().position(|accepts| *accepts > 0)? + WARM_UP_MS;
        let counted = self.per_ms.get(from..).filter(|counted| !counted.is_empty())?;
        Some(sum(counted) as f64 * 1e3 / counted.len() as f64)
    }

    /// What a kill cost. None where nothing had been accepted until five seconds before it, or where the run was
    /// over within ten seconds behind it.
    pub fn cost_of_a_kill(&self, killed_us: u64) -> Option<Cost> {
        let killed = self.at(killed_us);
        let from = killed.checked_sub(BEFORE_MS)?;
        let before = self.per_ms.get(from..killed)?;
        let behind = self.per_ms.get(killed..killed + BEHIND_MS)?;
        let rate = sum(before) as f64 / BEFORE_MS as f64;
        // Looked for in all that came until then: a single millisecond without an accept says nothing.
        let begun = self.per_ms[..=from].iter().any(|accepts| *accepts > 0);
        if !begun || rate == 0.0 {
            return None;
        }
        let missing = rate * BEHIND_MS as f64 - sum(behind) as f64;
        let silent = behind.split(|accepts| *accepts > 0).map(<[u32]>::len).max().unwrap_or(0);
        Some(Cost { lost_seconds: (missing / rate / 1e3).max(0.0), silent_seconds: silent as f64 / 1e3 })
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

/// The rate of a count that was read now and then: (microseconds, accepts so far).
pub fn rate_of_counts(counts: &[(u64, u64)]) -> Option<f64> {
    let begun = counts.iter().find(|(_, count)| *count > 0)?.0;
    let first = counts.iter().find(|(at, _)| *at > begun + WARM_UP_MS as u64 * 1_000)?;
    let last = counts.iter().find(|(_, count)| Some(count) == counts.last().map(|(_, count)| count))?;
    (last.0 > first.0).then(|| (last.1 - first.1) as f64 * 1e6 / (last.0 - first.0) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One accept a millisecond, but for some.
    fn flow(until_ms: u64, quiet: std::ops::Range<u64>) -> Flow {
        let mut flow = Flow::new(7_000);
        (0..until_ms).filter(|ms| !quiet.contains(ms)).for_each(|ms| flow.note(7_000 + 1_000 * ms + ms % 1_000));
        flow
    }

    #[test]
    fn the_rate_leaves_the_beginning_out() {
        assert_eq!(flow(4_000, 0..0).rate(), Some(1_000.0));
        assert_eq!(flow(4_000, 2_100..2_200).rate(), Some(950.0));
        assert_eq!(flow(4_000, 0..2_000).rate(), None, "two seconds behind the first, not behind the start");
        assert_eq!((flow(2_000, 0..0).rate(), Flow::new(0).rate()), (None, None), "shorter than that");
        assert_eq!((flow(4_000, 0..0).last_us(), Flow::new(0).last_us()), (Some(4_007_000), None));
    }

    #[test]
    fn what_came_before_an_instant_is_counted() {
        let flow = flow(4_000, 100..200);
        let before = |ms: u64| flow.before(7_000 + 1_000 * ms);
        assert_eq!([0, 1, 100, 150, 4_000, 9_000].map(before), [0, 1, 100, 100, 3_900, 3_900]);
        assert_eq!(flow.before(0), 0, "before the start");
    }

    #[test]
    fn the_rate_of_counts_ends_where_they_stop_to_grow() {
        let growing = (0..=10).map(|second| (second * 1_000_000, second * 500));
        let counts: Vec<(u64, u64)> = growing.chain((11..20).map(|second| (second * 1_000_000, 5_000))).collect();
        assert_eq!(rate_of_counts(&counts).map(f64::round), Some(500.0));
        assert_eq!(rate_of_counts(&counts[..3]), None);
        assert_eq!(rate_of_counts(&[]), None);
    }

    #[test]
    fn a_kill_costs_what_was_not_sent_meanwhile() {
        let kill = 7_000 + 10_000_000;
        let cost = flow(30_000, 10_001..12_001).cost_of_a_kill(kill);
        assert_eq!(cost, Some(Cost { lost_seconds: 2.0, silent_seconds: 2.0 }));
        let steady = flow(30_000, 0..0);
        assert_eq!(steady.cost_of_a_kill(kill), Some(Cost { lost_seconds: 0.0, silent_seconds: 0.0 }));
        assert_eq!(steady.cost_of_a_kill(25_000_000), None, "over too early to tell");
        assert_eq!(steady.cost_of_a_kill(1_000_000), None, "begun too late to tell");
        // The very millisecond five seconds before the kill is empty: at 10,000 mails a second many are.
        let told = flow(30_000, 5_000..5_001).cost_of_a_kill(kill).map(|cost| cost.silent_seconds);
        assert_eq!(told, Some(0.0), "a flow with holes is told too");
    }
}
