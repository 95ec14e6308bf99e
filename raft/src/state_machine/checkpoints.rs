//! Hashes of the applied state at indexes that all nodes have in common, so that replicas can be compared (I11).
//!
//! The apply thread freezes the state at such an index, even on a busy node, and another thread hashes it. A quiet
//! cluster is quiet at the same index on all nodes, so the state is hashed there too. Only changed pages cost time; the
//! larger the state, the rarer are the indexes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use reveille_ledger::Ledger;
use reveille_ledger::ids::Hash;
use reveille_ledger::storage::FrozenState;

use crate::execution::Execution;

/// Number of entries between two hashes of a small state.
const EVERY: u64 = 4_096;
/// Rows of a state that is hashed that often. With more rows the distance grows in proportion, in powers of two.
const SMALL_ROWS: u64 = 10_000;
/// Number of hashes that are kept. A lagging node must have some in common with the others.
const KEPT: usize = 8;

/// The newest hashes, by index.
#[derive(Default)]
pub(crate) struct Checkpoints {
    kept: Mutex<BTreeMap<u64, Hash>>,
    /// True while a state is hashed.
    busy: AtomicBool,
}

impl Checkpoints {
    /// Returns the kept hashes, by index.
    pub fn all(&self) -> BTreeMap<u64, Hash> {
        self.kept.lock().clone()
    }

    /// True if the hash at this index is kept.
    pub fn contains(&self, index: u64) -> bool {
        self.kept.lock().contains_key(&index)
    }

    /// True if the state is to be hashed at its index. Depends on the state only, so that replicas agree.
    pub fn is_due(ledger: &Ledger) -> bool {
        // Asked after each entry, so rows are counted at few indexes only.
        let applied = ledger.head().applied;
        let every = || EVERY * (ledger.row_count() as u64 / SMALL_ROWS + 1).next_power_of_two();
        applied.is_multiple_of(EVERY) && applied.is_multiple_of(every())
    }

    /// Hashes a state on another thread, unless one is hashed already. Must be called on a runtime.
    pub fn hash_later(checkpoints: &Arc<Checkpoints>, execution: Execution, index: u64, state: FrozenState) {
        if checkpoints.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let checkpoints = Arc::clone(checkpoints);
        tokio::spawn(async move {
            let hash_and_report = move || {
                let hash = state.hash();
                report_sizes(&state);
                hash
            };
            let hash = execution.blocking(hash_and_report).await;
            if let Ok(hash) = hash {
                checkpoints.keep(index, hash);
            }
            checkpoints.busy.store(false, Ordering::Release);
        });
    }

    fn keep(&self, index: u64, hash: Hash) {
        let mut kept = self.kept.lock();
        kept.insert(index, hash);
        while kept.len() > KEPT {
            kept.pop_first();
        }
    }
}

/// Sets the gauges of the tables' sizes. The hash has encoded the state, so this costs no more than to add up.
fn report_sizes(state: &FrozenState) {
    for (table, size) in state.table_sizes() {
        metrics::gauge!("reveille_ledger_rows", "table" => table).set(size.rows as f64);
        metrics::gauge!("reveille_ledger_bytes", "table" => table).set(size.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::command::{Actor, Command, Entry, EpochStart, OptOut, VoterClock};
    use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, Time};

    use super::*;

    #[tokio::test]
    async fn newest_hashes_are_kept() {
        let (checkpoints, mut ledger) = (Arc::new(Checkpoints::default()), Ledger::new());
        let last = KEPT as u64 + 2;
        for index in 1..=last {
            ledger.skip(index);
            Checkpoints::hash_later(&checkpoints, Execution::Threads, index, ledger.freeze());
            while !checkpoints.all().contains_key(&index) || checkpoints.busy.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(checkpoints.all().into_keys().collect::<Vec<u64>>(), (3..=last).collect::<Vec<u64>>());
        assert_eq!(checkpoints.all().get(&last), Some(&ledger.state_hash()));
    }

    #[test]
    fn indexes_are_rarer_for_large_state() {
        let mut ledger = Ledger::new();
        ledger.skip(EVERY);
        assert!(Checkpoints::is_due(&ledger));
        ledger.skip(EVERY + 1);
        assert!(!Checkpoints::is_due(&ledger));
        let (me, opt_outs) = (ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) }, SMALL_ROWS as u32);
        let start = EpochStart::new(me, 1, vec![VoterClock { node: me.node, wall: Time(0) }]);
        let mut apply = |index, epoch, command| {
            ledger.apply(index, &Entry { epoch: Epoch(epoch), now: Time(0), actor: Actor::System, command })
        };
        apply(EVERY + 2, 0, Command::EpochStart(start));
        let keys = (0..opt_outs).map(|number| format!("r{number}@example.com")).collect();
        apply(3 * EVERY, EVERY + 2, Command::OptOut(OptOut { tenant: "default".to_owned(), keys }));
        assert!(!Checkpoints::is_due(&ledger), "{} rows", ledger.row_count());
        ledger.skip(4 * EVERY);
        assert!(Checkpoints::is_due(&ledger));
    }
}
