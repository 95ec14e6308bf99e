//! Claims that the dispatcher has proposed and that are not answered yet.
//!
//! It looks again meanwhile, so that what comes due does not wait until what was claimed before it is committed. The
//! state may know those claims already or not yet. So their pages are left out of a look until the answer is there,
//! and what they ask for counts as open: too much, for as long as both know of it, and never too little.

use std::collections::{BTreeMap, BTreeSet};

use reveille_ledger::ids::{NodeId, RunId};

use crate::fair::Grant;

/// Entries of claims that wait for their answers at most.
pub(crate) const ON_THE_WAY_MAX: usize = 4;

/// By the numbers of their entries.
#[derive(Debug, Default)]
pub(crate) struct OnTheWay {
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    grants: Vec<Grant>,
    preparing: BTreeSet<NodeId>,
}

impl OnTheWay {
    /// May another entry go?
    pub fn has_room(&self) -> bool {
        self.entries.len() < ON_THE_WAY_MAX
    }

    /// An entry goes, which grants a suspect to the nodes of `preparing`. Answers its number.
    pub fn goes(&mut self, grants: Vec<Grant>, preparing: BTreeSet<NodeId>) -> u64 {
        self.last += 1;
        self.entries.insert(self.last, Entry { grants, preparing });
        self.last
    }

    /// It is in the log and applied, or nobody waits for it any more.
    pub fn is_answered(&mut self, number: u64) {
        self.entries.remove(&number);
    }

    /// Is something of this page on its way?
    pub fn holds(&self, page: RunId) -> bool {
        self.grants().any(|grant| grant.page == page)
    }

    /// All that was granted.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.entries.values().flat_map(|entry| &entry.grants)
    }

    /// P12: nodes to which a suspect is on its way.
    pub fn preparing(&self) -> impl Iterator<Item = NodeId> {
        self.entries.values().flat_map(|entry| entry.preparing.iter().copied())
    }
}
