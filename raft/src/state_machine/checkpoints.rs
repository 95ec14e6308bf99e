//! Hashes of the applied state at indexes that all nodes have in common, so that replicas can be compared (I11).
//!
//! The apply thread hashes at each multiple of [`EVERY`], even on a busy node. [`Checkpoints::take_when_quiet`] hashes
//! when nothing was applied for a while: a quiet cluster is quiet at the same index on all nodes. A large state is not
//! hashed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reveille_ledger::Ledger;
use reveille_ledger::ids::Hash;

/// Number of entries between two hashes.
const EVERY: u64 = 4_096;
/// Number of hashes that are kept. A lagging node must have some in common with the others.
const KEPT: usize = 8;
/// Limits of a state that is hashed: rows, and bytes of lists and contents. Hashing takes about ten milliseconds.
const ROWS_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// The newest hashes, by index.
#[derive(Default)]
pub(crate) struct Checkpoints(Mutex<BTreeMap<u64, Hash>>);

impl Checkpoints {
    /// Returns the kept hashes, by index.
    pub fn all(&self) -> BTreeMap<u64, Hash> {
        self.0.lock().clone()
    }

    /// Hashes the state if the applied index is a multiple of [`EVERY`]. Called after each entry.
    pub fn take_when_due(&self, ledger: &Ledger) {
        if ledger.head().applied.is_multiple_of(EVERY) {
            self.take(ledger);
        }
    }

    /// Hashes the state if nothing was applied since index `seen`. Returns the applied index.
    pub fn take_when_quiet(&self, ledger: &Ledger, seen: u64) -> u64 {
        let applied = ledger.head().applied;
        if applied == seen && !self.0.lock().contains_key(&applied) {
            self.take(ledger);
        }
        applied
    }

    fn take(&self, ledger: &Ledger) {
        if !is_soon_hashed(ledger) {
            return;
        }
        let hash = ledger.state_hash();
        let mut kept = self.0.lock();
        kept.insert(ledger.head().applied, hash);
        while kept.len() > KEPT {
            kept.pop_first();
        }
    }
}

fn is_soon_hashed(ledger: &Ledger) -> bool {
    ledger.row_count() <= ROWS_MAX && ledger.blob_bytes() <= BYTES_MAX
}

#[cfg(test)]
mod tests {
    use reveille_ledger::command::{Command, Entry, EpochStart, OptOut, VoterClock};
    use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, Time};

    use super::*;

    #[test]
    fn hashes_are_of_common_indexes_and_the_newest_are_kept() {
        let (checkpoints, mut ledger) = (Checkpoints::default(), Ledger::new());
        let last = EVERY * (KEPT as u64 + 2);
        for index in 1..=last {
            ledger.skip(index);
            checkpoints.take_when_due(&ledger);
        }
        let indexes: Vec<u64> = checkpoints.all().into_keys().collect();
        assert_eq!(indexes, (3..=KEPT as u64 + 2).map(|number| number * EVERY).collect::<Vec<u64>>());

        ledger.skip(last + 1);
        assert_eq!(checkpoints.take_when_quiet(&ledger, last), last + 1);
        assert!(!checkpoints.all().contains_key(&(last + 1)), "something was applied since");
        assert_eq!(checkpoints.take_when_quiet(&ledger, last + 1), last + 1);
        assert_eq!(checkpoints.all().get(&(last + 1)), Some(&ledger.state_hash()));
    }

    #[test]
    fn state_with_many_rows_is_not_hashed() {
        let mut ledger = Ledger::new();
        assert!(is_soon_hashed(&ledger));
        let me = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        let start = EpochStart::new(me, 1, vec![VoterClock { node: me.node, wall: Time(0) }]);
        ledger.apply(1, &Entry { epoch: Epoch(0), now: Time(0), command: Command::EpochStart(start) });
        for index in 2..ROWS_MAX as u64 + 2 {
            let key = format!("r{index}@example.com");
            let command = Command::OptOut(OptOut { tenant: "default".to_owned(), keys: vec![key] });
            ledger.apply(index, &Entry { epoch: Epoch(1), now: Time(0), command });
        }
        assert!(!is_soon_hashed(&ledger), "{} rows", ledger.row_count());
    }
}
