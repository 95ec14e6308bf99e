//! The bounds that the figures of benchmarks must hold, in one table, and their comparison with what was measured.
//!
//! A bound is compared only at the size that it is stated for. So a small run says nothing about it.

use anyhow::Result;
use reveille_harness::Report;
use serde_json::{Value, json};

/// A bound of a figure, by its name in the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The figure is at most this.
    AtMost(&'static str, f64),
    /// The figure is at least this.
    AtLeast(&'static str, f64),
}

/// Schedules for which the bounds of [`schedules`](crate::schedules) and of a late follower are stated.
pub const MANY_SCHEDULES: u64 = 1_000_000;
/// Resident memory of each node with [`MANY_SCHEDULES`], in megabytes.
pub const RSS_MB: Bound = Bound::AtMost("rss_mb", 1_000.0);
/// Processor time of each node while nothing is due, in percent of a core.
pub const IDLE_PERCENT: Bound = Bound::AtMost("idle_percent_of_a_core", 3.0);
/// From the start of a killed follower until it is ready.
pub const RESTART_SECONDS: Bound = Bound::AtMost("restart_seconds", 30.0);
/// The longest time for which the lock of the ledger is held, by any cause.
pub const LOCK_MS: Bound = Bound::AtMost("lock_ms", 20.0);
/// Leaders after the first one, while many rows are archived and hashed: no such work may cost a lease.
pub const LEADER_CHANGES: Bound = Bound::AtMost("leader_changes", 0.0);

/// Creates for which their rate is compared.
pub const MANY_CREATES: u64 = 10_000;
/// The least size of a batch.
pub const LARGE_BATCH: u64 = 500;
/// Durable creates a second, one a call.
pub const CREATES: Bound = Bound::AtLeast("create_per_second", 2_000.0);
/// Durable creates a second, in batches of [`LARGE_BATCH`] and more.
pub const CREATES_IN_BATCHES: Bound = Bound::AtLeast("create_per_second", 20_000.0);

/// Number of schedules, all due in one second, from which on the lateness of the last one is compared.
pub const STORM: u64 = 100_000;
/// Lateness of the last one, in milliseconds.
pub const STORM_LAST_MS: Bound = Bound::AtMost("lateness_ms_max", 6_000.0);

/// Days for which the figures of the last day are compared with day 3.
pub const MANY_DAYS: u8 = 90;
/// The least number of schedules for that.
pub const DAILY_SCHEDULES: u64 = 20_000;
/// Memory of each node.
pub const RSS_RATIO: Bound = Bound::AtMost("rss_ratio", 1.2);
/// Emails a second.
pub const RATE_RATIO: Bound = Bound::AtLeast("rate_ratio", 0.9);
/// Bytes on the disk of each node, for each archived run.
pub const RUN_BYTES: Bound = Bound::AtMost("snapshot_bytes_per_archived_run", 200.0);

/// Recipients of a campaign for which its figures are compared.
pub const MANY_RECIPIENTS: u32 = 1_000_000;
/// Emails a second, relative to `smtp-source`.
pub const CAMPAIGN_RATIO: Bound = Bound::AtLeast("ratio", 1.2);
/// Processor time of all nodes for an email, in microseconds.
pub const EMAIL_CPU_US: Bound = Bound::AtMost("cpu_us_an_email", 35.0);
/// Emails a second while an empty follower catches up, relative to those before.
pub const LATE_FOLLOWER_RATIO: Bound = Bound::AtLeast("late_follower_rate_ratio", 0.85);
/// Recipients for which the rate of delayed sessions is compared.
pub const DELAYED_RECIPIENTS: u32 = 300_000;
/// Emails a second, relative to what the sessions allow at one round trip an email.
pub const OF_SESSIONS: Bound = Bound::AtLeast("of_sessions", 0.8);
/// Sessions of a node for which the memory of each is compared.
pub const MANY_SESSIONS: u32 = 256;
/// Memory of the nodes for each of their sessions, in 1,000 bytes.
pub const SESSION_KB: Bound = Bound::AtMost("session_kb", 64.0);

/// Kills of the leader for which the times of fail-overs are compared.
pub const MANY_KILLS: usize = 20;
/// From the kill to the first email under a later epoch: the median.
pub const FAILOVER_P50_MS: Bound = Bound::AtMost("failover_ms_p50", 700.0);
/// The maximum of these times.
pub const FAILOVER_MAX_MS: Bound = Bound::AtMost("failover_ms_max", 1_500.0);

/// The comparisons of one result.
#[derive(Debug, Default)]
pub struct Bounds(Vec<(Bound, Option<f64>)>);

impl Bounds {
    /// Adds a figure. `None`: it was not measured, so its bound is not held.
    pub fn add(&mut self, bound: Bound, figure: Option<f64>) {
        self.0.push((bound, figure));
    }

    /// Adds the worst of some figures.
    pub fn add_all<'f>(&mut self, bound: Bound, figures: impl IntoIterator<Item = &'f f64>) {
        let worst = match bound {
            Bound::AtMost(..) => f64::max,
            Bound::AtLeast(..) => f64::min,
        };
        self.add(bound, figures.into_iter().copied().reduce(worst));
    }

    /// True if each bound that was compared is held.
    pub fn are_held(&self) -> bool {
        self.0.iter().all(|(bound, figure)| is_held(*bound, *figure))
    }

    /// Returns the report of these figures, with `bounds` and `held`. A broken bound fails the command, as a result
    /// does that is not valid.
    ///
    /// # Errors
    /// Fails if the figures cannot be written as JSON.
    pub fn report(&self, mut figures: Value, valid: bool) -> Result<Report> {
        figures["bounds"] = self.figures();
        figures["held"] = self.are_held().into();
        Report::new(&figures, valid && self.are_held())
    }

    /// Returns the comparisons for the result: each figure, its bound, and whether it is held. Also prints them.
    pub fn figures(&self) -> Value {
        let all = self.0.iter().map(|(bound, figure)| {
            let (name, sign, limit) = match bound {
                Bound::AtMost(name, limit) => (name, "<=", limit),
                Bound::AtLeast(name, limit) => (name, ">=", limit),
            };
            let (bound, held) = (format!("{sign} {limit}"), is_held(*bound, *figure));
            let measured = figure.map_or("not measured".to_owned(), |figure| figure.to_string());
            eprintln!("{}: {name} {measured}, bound {bound}", if held { "held" } else { "BROKEN" });
            json!({"figure": name, "measured": figure, "bound": bound, "held": held})
        });
        Value::Array(all.collect())
    }
}

fn is_held(bound: Bound, figure: Option<f64>) -> bool {
    figure.is_some_and(|figure| match bound {
        Bound::AtMost(_, limit) => figure <= limit,
        Bound::AtLeast(_, limit) => figure >= limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_bound_and_missing_figure_are_not_held() {
        let held = |bound, figure| {
            let mut bounds = Bounds::default();
            bounds.add(RSS_MB, Some(1.0));
            bounds.add(bound, figure);
            (bounds.are_held(), bounds.figures()[1]["held"] == true)
        };
        assert!(Bounds::default().are_held(), "a small run");
        assert_eq!(held(LOCK_MS, Some(20.0)), (true, true));
        assert_eq!(held(LOCK_MS, Some(20.01)), (false, false));
        assert_eq!(held(CAMPAIGN_RATIO, Some(1.2)), (true, true));
        assert_eq!(held(CAMPAIGN_RATIO, Some(1.19)), (false, false));
        assert_eq!(held(CAMPAIGN_RATIO, None), (false, false));
        assert_eq!(held(CAMPAIGN_RATIO, Some(f64::NAN)), (false, false));
    }

    #[test]
    fn worst_node_counts() {
        let mut bounds = Bounds::default();
        bounds.add_all(RSS_MB, &[900.0, 1_100.0, 950.0]);
        bounds.add_all(RATE_RATIO, &[0.95, 0.8]);
        bounds.add_all(LOCK_MS, &[]);
        let worst = json!([1_100.0, 0.8, null]);
        let measured: Vec<Value> = (0..3).map(|place| bounds.figures()[place]["measured"].clone()).collect();
        assert_eq!((Value::Array(measured), bounds.are_held()), (worst, false));
    }
}
