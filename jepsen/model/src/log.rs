//! The replicated log: one committed sequence, of which each node has applied a prefix. Raft is below this model.
//!
//! An entry that `apply` refuses never changes any node, so it is left out: the search is shorter and loses no
//! behaviour. The state after each entry is kept, because lagging nodes decide by it. Entries that every process has
//! applied are forgotten, so two histories that lead to the same state are one.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::apply::{Applied, apply};
use crate::broken::Rules;
use crate::entry::Entry;
use crate::ledger::Ledger;
use crate::names::Index;

/// The oldest state that a node may still have, the entries after it, and the state after each of them.
#[derive(Clone, Debug)]
pub struct Log {
    entries: Vec<Entry>,
    /// The states, one more than `entries`. The first is the oldest state.
    ledgers: Vec<Arc<Ledger>>,
}

impl Log {
    /// Returns a log with the state `opening` and without entries.
    pub fn new(opening: Ledger) -> Log {
        Log { entries: Vec::new(), ledgers: vec![Arc::new(opening)] }
    }

    /// Commits `entry`, unless `apply` refuses it.
    pub fn commit(&mut self, rules: Rules, entry: Entry) -> Applied {
        let next = apply(rules, self.tip(), &entry)?;
        self.entries.push(entry);
        self.ledgers.push(Arc::new(next));
        Ok(())
    }

    /// Returns the state after all committed entries.
    pub fn tip(&self) -> &Ledger {
        &self.ledgers[self.entries.len()]
    }

    /// Returns the state after all committed entries, to be kept while further entries are committed.
    pub fn kept_tip(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledgers[self.entries.len()])
    }

    /// Returns the state of a node that has applied all entries up to `applied`, which must not be forgotten.
    pub fn at(&self, applied: Index) -> &Ledger {
        &self.ledgers[usize::from(applied - self.first())]
    }

    /// Returns the entry at `index`, if it is committed and not forgotten.
    pub fn entry(&self, index: Index) -> Option<&Entry> {
        self.entries.get(usize::from(index.checked_sub(self.first() + 1)?))
    }

    /// Returns the entries after `applied`, with their indices.
    pub fn after(&self, applied: Index) -> impl Iterator<Item = (Index, &Entry)> {
        (applied + 1..).map_while(|index| Some((index, self.entry(index)?)))
    }

    /// Returns the index of the oldest state.
    pub fn first(&self) -> Index {
        self.ledgers[0].index
    }

    /// Forgets all entries before `index`, which must be committed.
    pub fn forget_before(&mut self, index: Index) {
        let count = usize::from(index.saturating_sub(self.first()));
        self.entries.drain(..count);
        self.ledgers.drain(..count);
    }
}

// The later states follow from the first one and the entries.
impl PartialEq for Log {
    fn eq(&self, other: &Log) -> bool {
        self.entries == other.entries && self.ledgers[0] == other.ledgers[0]
    }
}

impl Eq for Log {}

impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ledgers[0].hash(state);
        self.entries.hash(state);
    }
}
