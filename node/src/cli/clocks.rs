//! Finds nodes whose clock is wrong, from offsets that one node measured; for `cluster status` and `doctor`.
//!
//! Offsets are relative to the answering node's clock, which may be the wrong one. So each offset is compared with the
//! median. A node is blamed only if a majority is near the median: of two clocks that differ, either may be wrong.
//! Pure.

/// Two clocks agree if they differ by at most this (P18). Milliseconds.
pub const AGREE_WITHIN_MS: i64 = 2_000;

/// Result of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockComparison<'a> {
    /// All clocks agree.
    Agree,
    /// A majority agrees, and these nodes differ from the median by this many milliseconds. Positive means ahead.
    Off(Vec<(&'a str, i64)>),
    /// The clocks differ, and no node can be blamed. Holds the two nodes farthest apart, the slower one first, and
    /// their distance in milliseconds.
    Apart(&'a str, &'a str, i64),
}

/// Compares the named nodes' offsets in milliseconds, all relative to the same clock.
pub fn compare<'a>(offsets: impl Iterator<Item = (&'a str, i64)>) -> ClockComparison<'a> {
    let mut read: Vec<(i64, &str)> = offsets.map(|(name, offset)| (offset, name)).collect();
    read.sort_unstable();
    let (Some(first), Some(last)) = (read.first(), read.last()) else { return ClockComparison::Agree };
    let apart_ms = last.0.saturating_sub(first.0);
    if apart_ms <= AGREE_WITHIN_MS {
        return ClockComparison::Agree;
    }
    let median = read.get((read.len() - 1) / 2).map_or(0, |(offset, _)| *offset);
    let against = read.iter().map(|(offset, name)| (*name, offset.saturating_sub(median)));
    let off: Vec<_> = against.filter(|(_, offset)| offset.unsigned_abs() > AGREE_WITHIN_MS.unsigned_abs()).collect();
    if off.is_empty() || 2 * off.len() >= read.len() {
        return ClockComparison::Apart(first.1, last.1, apart_ms);
    }
    ClockComparison::Off(off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_differs_is_named_even_if_its_node_answered() {
        assert_eq!(compare([("a", 0), ("b", 2_000), ("c", 500)].into_iter()), ClockComparison::Agree);
        assert_eq!(
            compare([("a", 0), ("b", 60_000), ("c", 60_100)].into_iter()),
            ClockComparison::Off(vec![("a", -60_000)])
        );
        let four = [("a", 0), ("b", 9_000), ("c", 9_000), ("d", 9_000)];
        assert_eq!(compare(four.into_iter()), ClockComparison::Off(vec![("a", -9_000)]));
        let five = [("a", 0), ("b", 9_000), ("c", 10), ("d", -9_000), ("e", 20)];
        assert_eq!(compare(five.into_iter()), ClockComparison::Off(vec![("d", -9_010), ("b", 8_990)]));
    }

    #[test]
    fn without_a_majority_no_clock_is_blamed() {
        assert_eq!(compare([("a", 0), ("b", -9_000)].into_iter()), ClockComparison::Apart("b", "a", 9_000));
        assert_eq!(
            compare([("a", 0), ("b", 9_000), ("c", -9_000)].into_iter()),
            ClockComparison::Apart("c", "b", 18_000)
        );
        assert_eq!(
            compare([("a", 0), ("b", 1_500), ("c", -1_500)].into_iter()),
            ClockComparison::Apart("c", "b", 3_000)
        );
        let halves = [("a", 0), ("b", 0), ("c", 9_000), ("d", 9_000)];
        assert_eq!(compare(halves.into_iter()), ClockComparison::Apart("a", "d", 9_000));
        assert_eq!(compare([("a", i64::MIN), ("b", i64::MAX)].into_iter()), ClockComparison::Apart("a", "b", i64::MAX));
        assert_eq!(compare([].into_iter()), ClockComparison::Agree);
    }
}
