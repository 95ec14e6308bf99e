//! Back-off of a node after crashes (P12): a node that crashed with open claims gets a part of its claim cap for a
//! while. After three crashes in ten minutes it gets nothing for ten minutes.
//!
//! `apply` records crashes in the row of the node, in ledger time, so every leader computes the same allowance. The
//! dispatcher reads the [`Allowance`] before it proposes claims. A process that stops in order leaves nothing claimed,
//! so its stop is not a crash. A crash never revokes a claim; only the lease does (P9).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{LedgerLimits, Node, NodeId, Time};

/// Crashes within this span count together. Milliseconds.
pub const CRASHES_WITHIN_MS: i64 = 10 * 60_000;
/// Duration of the back-off, from the node's last crash. Milliseconds.
pub const BACKOFF_MS: i64 = 10 * 60_000;
/// Interval at which the allowance doubles after a crash, from an eighth to the whole. Milliseconds.
pub const DOUBLES_EVERY_MS: i64 = 10_000;

/// The last crashes of a node with open claims, oldest first; at most [`LedgerLimits::crashes_kept`]. Ledger time never
/// goes back, so they are in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashHistory(Vec<Time>);

impl CrashHistory {
    /// Adds a crash and removes the oldest ones above `kept`.
    pub(crate) fn record(&mut self, at: Time, kept: usize) {
        self.0.push(at);
        let too_many = self.0.len().saturating_sub(kept);
        self.0.drain(..too_many);
    }

    /// Times of the crashes, oldest first.
    pub fn times(&self) -> &[Time] {
        &self.0
    }

    /// Time of the last crash; `None` if there is none.
    pub fn last(&self) -> Option<Time> {
        self.0.last().copied()
    }

    /// Returns the end of the back-off; it may be in the past. `None` unless [`LedgerLimits::crashes_kept`] crashes are
    /// within [`CRASHES_WITHIN_MS`].
    pub fn backoff_until(&self, limits: &LedgerLimits) -> Option<Time> {
        let first = self.0.len().checked_sub(limits.crashes_kept).and_then(|first| self.0.get(first))?;
        let last = self.last()?;
        (last.since_ms(*first) <= CRASHES_WITHIN_MS).then(|| last.plus_ms(BACKOFF_MS))
    }

    /// Returns the node's allowance at ledger time `now`. A back-off ends as a crash does: with an eighth that doubles.
    pub fn allowance(&self, limits: &LedgerLimits, now: Time) -> Allowance {
        let Some(last) = self.last() else { return Allowance::WHOLE };
        let from = self.backoff_until(limits).unwrap_or(last);
        if now < from && from > last {
            return Allowance::NONE;
        }
        match now.since_ms(from) / DOUBLES_EVERY_MS {
            ..=0 => Allowance::EIGHTH,
            1 => Allowance(2),
            2 => Allowance(4),
            _ => Allowance::WHOLE,
        }
    }
}

/// The part of its cap that a node may hold, in eighths: 0 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allowance(u8);

impl Allowance {
    /// No claims.
    pub const NONE: Allowance = Allowance(0);
    /// An eighth: the smallest allowance above nothing.
    pub const EIGHTH: Allowance = Allowance(1);
    /// The whole cap.
    pub const WHOLE: Allowance = Allowance(8);

    /// Number of eighths, 0 to 8.
    pub fn eighths(self) -> u8 {
        self.0
    }

    /// This part of `cap`: at least 1, unless the allowance or the cap is 0.
    pub fn of(self, cap: u32) -> u32 {
        let part = u64::from(cap) * u64::from(self.0) / 8;
        let least = u64::from(cap.min(1)) * u64::from(self.0.min(1));
        u32::try_from(part.max(least)).unwrap_or(cap)
    }
}

/// Returns the allowances at `now` of nodes that may hold claims.
///
/// If `several` nodes vote and all live ones are in back-off, the node that crashed longest ago keeps an eighth. A
/// back-off leaves the work to other nodes, and there are none (I13). A single node of a cluster does back off: its
/// crashes may be caused by an email, and the back-off ends by itself.
pub fn allowances<'a>(
    nodes: impl IntoIterator<Item = (NodeId, &'a Node)>,
    limits: &LedgerLimits,
    several: bool,
    now: Time,
) -> BTreeMap<NodeId, Allowance> {
    let mut crashes = BTreeMap::new();
    let mut allowances = BTreeMap::new();
    for (id, node) in nodes {
        crashes.insert(id, node.crashes.last());
        allowances.insert(id, node.crashes.allowance(limits, now));
    }
    let longest_alive = crashes.into_iter().min_by_key(|(id, last)| (*last, *id)).map(|(id, _)| id);
    if several
        && allowances.values().all(|allowance| *allowance == Allowance::NONE)
        && let Some(allowance) = longest_alive.and_then(|id| allowances.get_mut(&id))
    {
        *allowance = Allowance::EIGHTH;
    }
    allowances
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Incarnation;
    use crate::model::limits;

    const LIMITS: LedgerLimits = *limits(1);

    fn crashed_at(seconds: &[i64]) -> CrashHistory {
        let mut crashes = CrashHistory::default();
        seconds.iter().for_each(|second| crashes.record(Time(second * 1_000), LIMITS.crashes_kept));
        crashes
    }

    fn eighths_at(crashes: &CrashHistory, second: i64) -> u8 {
        crashes.allowance(&LIMITS, Time(second * 1_000)).eighths()
    }

    fn node(seconds: &[i64]) -> Node {
        Node {
            name: "n".into(),
            incarnation: Incarnation(1),
            up_index: 1,
            level: 1,
            process_nonce: 1,
            revoked_index: 0,
            crashes: crashed_at(seconds),
            has_revoked_claims: false,
            drains: false,
            share: crate::model::RelayShare::Open,
            #[cfg(feature = "next-level")]
            up_at: None,
        }
    }

    #[test]
    fn node_without_crashes_has_full_cap() {
        assert_eq!(CrashHistory::default().allowance(&LIMITS, Time(0)), Allowance::WHOLE);
    }

    #[test]
    fn crash_leaves_an_eighth_that_doubles_every_ten_seconds() {
        let crashes = crashed_at(&[100]);
        let seconds = [100, 109, 110, 119, 120, 129, 130, 10_000];
        assert_eq!(seconds.map(|second| eighths_at(&crashes, second)), [1, 1, 2, 2, 4, 4, 8, 8]);
        assert_eq!(eighths_at(&crashes, 99), 1, "a leader's clock a little behind the entry");
    }

    #[test]
    fn three_crashes_in_ten_minutes_leave_nothing_and_later_an_eighth() {
        let crashes = crashed_at(&[0, 300, 600]);
        assert_eq!(crashes.backoff_until(&LIMITS), Some(Time(1_200_000)));
        let seconds = [600, 1_199, 1_200, 1_210, 1_220, 1_230];
        assert_eq!(seconds.map(|second| eighths_at(&crashes, second)), [0, 0, 1, 2, 4, 8]);
    }

    #[test]
    fn only_the_last_three_crashes_count_and_only_within_ten_minutes() {
        assert_eq!(crashed_at(&[0, 300, 601]).backoff_until(&LIMITS), None);
        let crashes = crashed_at(&[0, 300, 601, 602]);
        assert_eq!(crashes.times(), [Time(300_000), Time(601_000), Time(602_000)]);
        assert_eq!(crashes.backoff_until(&LIMITS), Some(Time(1_202_000)));
        assert_eq!(crashed_at(&[1, 2]).backoff_until(&LIMITS), None, "two are not three");
    }

    #[test]
    fn node_backs_off_after_as_many_crashes_as_its_level_keeps() {
        let limits = LedgerLimits { crashes_kept: 2, ..LIMITS };
        assert_eq!(crashed_at(&[1, 2]).backoff_until(&limits), Some(Time(602_000)));
        assert_eq!(crashed_at(&[1, 2]).allowance(&limits, Time(3_000)), Allowance::NONE);
        assert_eq!(crashed_at(&[0, 1, 602]).backoff_until(&limits), None, "kept by a level that kept three");
        let limits = LedgerLimits { crashes_kept: 4, ..LIMITS };
        assert_eq!(crashed_at(&[0, 300, 600]).backoff_until(&limits), None);
    }

    #[test]
    fn part_of_cap_is_zero_only_if_cap_or_part_is() {
        let parts = |cap| [0, 1, 2, 4, 8].map(|eighths| Allowance(eighths).of(cap));
        assert_eq!(parts(64), [0, 8, 16, 32, 64]);
        assert_eq!(parts(4), [0, 1, 1, 2, 4]);
        assert_eq!(parts(0), [0; 5]);
        assert_eq!(Allowance::WHOLE.of(u32::MAX), u32::MAX);
    }

    #[test]
    fn least_recently_dead_node_keeps_an_eighth_when_all_back_off() {
        let nodes = [node(&[1, 2, 30]), node(&[1, 2, 20]), node(&[1, 2, 40])];
        let named = || nodes.iter().enumerate().map(|(id, node)| (NodeId(id as u64), node));
        let parts: Vec<u8> =
            allowances(named(), &LIMITS, true, Time(50_000)).values().map(|part| part.eighths()).collect();
        assert_eq!(parts, [0, 1, 0]);
        let healthy = node(&[49]);
        let with_healthy = named().chain([(NodeId(9), &healthy)]);
        let parts: Vec<u8> =
            allowances(with_healthy, &LIMITS, true, Time(50_000)).values().map(|part| part.eighths()).collect();
        assert_eq!(parts, [0, 0, 0, 1], "while one may work, the others rest");
    }

    #[test]
    fn only_node_of_cluster_backs_off() {
        let node = node(&[1, 2, 3]);
        assert_eq!(allowances([(NodeId(1), &node)], &LIMITS, false, Time(4_000))[&NodeId(1)], Allowance::NONE);
    }
}
