//! How fast it flowed, by the instants of accepts. Pure.

/// The beginning that is left out of a rate. Microseconds.
const WARM_UP_US: u64 = 2_000_000;
/// What is looked at before and behind a kill. Microseconds.
const BEFORE_US: u64 = 5_000_000;
const BEHIND_US: u64 = 10_000_000;

/// Accepts a second behind the warm-up, of sorted instants (microseconds); none of what is shorter.
pub fn rate(accepts: &[u64]) -> Option<f64> {
    let (first, last) = (accepts.first()?, accepts.last()?);
    let from = first + WARM_UP_US;
    let counted = accepts.len() - accepts.partition_point(|at| *at <= from);
    (last > &from).then(|| counted as f64 * 1e6 / (last - from) as f64)
}

/// The same of a count that was read now and then: (microseconds, accepts so far).
pub fn rate_of_counts(counts: &[(u64, u64)]) -> Option<f64> {
    let begun = counts.iter().find(|(_, count)| *count > 0)?.0;
    let first = counts.iter().find(|(at, _)| *at > begun + WARM_UP_US)?;
    let last = counts.iter().find(|(_, count)| Some(count) == counts.last().map(|(_, count)| count))?;
    (last.0 > first.0).then(|| (last.1 - first.1) as f64 * 1e6 / (last.0 - first.0) as f64)
}

/// What a kill cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Seconds of sending that are missing from the ten behind the kill, by the rate of the five before it.
    pub lost_seconds: f64,
    /// The longest time in these ten seconds without an accept. Seconds.
    pub silent_seconds: f64,
}

/// What a kill cost, by sorted instants (microseconds). None where nothing was accepted before it, or where the
/// run was over within ten seconds behind it.
pub fn cost_of_a_kill(accepts: &[u64], killed_us: u64) -> Option<Cost> {
    let at = |instant: u64| accepts.partition_point(|accept| *accept <= instant);
    let (from, until) = (killed_us.checked_sub(BEFORE_US)?, killed_us + BEHIND_US);
    if accepts.first()? > &from || accepts.last()? < &until {
        return None;
    }
    let before = (at(killed_us) - at(from)) as f64 / BEFORE_US as f64;
    let behind = &accepts[at(killed_us)..at(until)];
    let missing = before * BEHIND_US as f64 - behind.len() as f64;
    let instants: Vec<u64> = [killed_us].into_iter().chain(behind.iter().copied()).chain([until]).collect();
    let silent = instants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(BEHIND_US);
    (before > 0.0)
        .then(|| Cost { lost_seconds: (missing / before / 1e6).max(0.0), silent_seconds: silent as f64 / 1e6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_leaves_the_beginning_out() {
        let accepts: Vec<u64> = (0..4_000).map(|number| 1_000 * number).collect();
        assert_eq!(rate(&accepts).map(f64::round), Some(1_000.0));
        assert_eq!(rate(&accepts[..2_000]), None, "shorter than that");
        assert_eq!(rate(&[]), None);
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
        let kill = 10_000_000;
        let quiet = kill + 1_000..kill + 2_000_000;
        let accepts: Vec<u64> = (0..30_000).map(|number| 1_000 * number).filter(|at| !quiet.contains(at)).collect();
        let cost = cost_of_a_kill(&accepts, kill).unwrap();
        assert!((cost.lost_seconds - 2.0).abs() < 0.01 && (cost.silent_seconds - 2.0).abs() < 0.01, "{cost:?}");
        let steady: Vec<u64> = (0..30_000).map(|number| 1_000 * number).collect();
        assert_eq!(cost_of_a_kill(&steady, kill), Some(Cost { lost_seconds: 0.0, silent_seconds: 0.001 }));
        assert_eq!(cost_of_a_kill(&steady, 25_000_000), None, "over too early to tell");
        assert_eq!(cost_of_a_kill(&steady, 1_000_000), None, "begun too late to tell");
    }
}
