//! Logs once when a node gets no claims after three crashes in ten minutes (P12), and once when that ends.
//!
//! The dispatcher reports these nodes at each wake. If no node may claim anything, that is an alarm: nothing is sent
//! until the instant in the log line. `reveille_ledger::crash_backoff` decides; this file only reports.

use std::collections::BTreeMap;

use reveille_ledger::ids::{NodeId, Time};

use crate::process::conditions::{Change, Conditions};

/// A node that gets no claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrashBackoff {
    /// Name of the node, for log lines.
    pub name: String,
    /// End of the back-off in ledger time.
    pub until: Time,
}

/// The back-offs that were reported.
#[derive(Debug, Default)]
pub(crate) struct CrashBackoffAlarms {
    nodes: Conditions<NodeId, CrashBackoff>,
    /// Set while all nodes are in back-off: the end of the first back-off.
    all: Conditions<(), Time>,
}

/// The gauge returns to 0 when the leadership ends.
impl Drop for CrashBackoffAlarms {
    fn drop(&mut self) {
        metrics::gauge!("reveille_nodes_in_crash_backoff").set(0.0);
    }
}

impl CrashBackoffAlarms {
    /// Updates the nodes in back-off and reports the changes. `live` is the number of nodes with a lease.
    pub fn update(&mut self, in_backoff: BTreeMap<NodeId, CrashBackoff>, live: usize) {
        metrics::gauge!("reveille_nodes_in_crash_backoff").set(in_backoff.len() as f64);
        let all = no_node_claims(&in_backoff, live);
        for change in self.nodes.update(in_backoff) {
            match change {
                Change::Began(_, CrashBackoff { name, until }) => {
                    tracing::warn!(node = name, %until, "a node that died several times is given no claims");
                }
                Change::Ended(_, CrashBackoff { name, .. }) => {
                    tracing::info!(node = name, "the crash back-off of a node is over");
                }
            }
        }
        for change in self.all.update(all) {
            if let Change::Began((), until) = change {
                tracing::error!(%until, "no node may claim anything: nothing is sent until then");
                metrics::counter!("reveille_alarms_total").increment(1);
            }
        }
    }
}

/// Returns when the first node may claim again, if all live nodes are in back-off; otherwise an empty map.
fn no_node_claims(in_backoff: &BTreeMap<NodeId, CrashBackoff>, live: usize) -> BTreeMap<(), Time> {
    let soonest = in_backoff.values().map(|backoff| backoff.until).min().filter(|_| in_backoff.len() == live);
    soonest.map(|until| ((), until)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_of_all_live_nodes_ends_when_the_first_may_claim() {
        let backoff = |until| CrashBackoff { name: "n".to_owned(), until: Time(until) };
        let both = BTreeMap::from([(NodeId(1), backoff(600)), (NodeId(2), backoff(500))]);
        assert_eq!(no_node_claims(&both, 2), [((), Time(500))].into());
        assert_eq!(no_node_claims(&both, 3), BTreeMap::new(), "a third node claims");
        assert_eq!(no_node_claims(&BTreeMap::new(), 0), BTreeMap::new(), "no live node is no back-off");
    }
}
