//! Claims that the dispatcher has proposed and that have no answer yet.
//!
//! The dispatcher wakes again before the answer, so that new work does not wait for a commit. The state may or may not
//! have these claims already. So their pages are not offered until the answer comes, and the claims count as used
//! credit. For a short time they may count twice, which is safe.

use std::collections::{BTreeMap, btree_map};

use reveille_ledger::ids::PageId;

use super::types::PlannedSlice;

/// Maximum number of claim entries without an answer.
pub(crate) const ENTRIES_IN_FLIGHT_MAX: usize = 4;

/// The claims in flight, by the numbers of their entries.
#[derive(Debug, Default)]
pub(crate) struct InFlightClaims {
    last: u64,
    entries: BTreeMap<u64, Vec<PlannedSlice>>,
    /// Number of slices of each page. Each wake reads it for every open page.
    pages: BTreeMap<PageId, usize>,
}

impl InFlightClaims {
    /// Returns true if another entry may be proposed.
    pub fn has_room(&self) -> bool {
        self.entries.len() < ENTRIES_IN_FLIGHT_MAX
    }

    /// Adds an entry that is about to be proposed; returns its number.
    pub fn insert(&mut self, slices: Vec<PlannedSlice>) -> u64 {
        self.last += 1;
        for slice in &slices {
            *self.pages.entry(slice.source.chunk.page).or_default() += 1;
        }
        self.entries.insert(self.last, slices);
        self.last
    }

    /// Removes an entry: it was applied, or the dispatcher stopped waiting for it.
    pub fn remove(&mut self, number: u64) {
        let Some(slices) = self.entries.remove(&number) else { return };
        for slice in &slices {
            if let btree_map::Entry::Occupied(mut left) = self.pages.entry(slice.source.chunk.page) {
                *left.get_mut() -= 1;
                if *left.get() == 0 {
                    left.remove();
                }
            }
        }
    }

    /// Returns true if a slice of this page is in flight.
    pub fn holds(&self, page: PageId) -> bool {
        self.pages.contains_key(&page)
    }

    /// Returns all slices in flight.
    pub fn slices(&self) -> impl Iterator<Item = &PlannedSlice> {
        self.entries.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::{NodeId, RunId};

    use super::*;
    use crate::leader::claims::types::ClaimSource;

    #[test]
    fn page_is_held_until_all_its_claim_entries_are_answered() {
        let page = |index| PageId(RunId { index, place: 0 });
        let slice = |index, chunk| PlannedSlice {
            offer: 0,
            tenant: "default".to_owned(),
            late: false,
            source: ClaimSource { chunk: page(index).chunk(chunk), pool: "default".to_owned() },
            node: NodeId(1),
            recipients: 1,
        };
        let mut in_flight = InFlightClaims::default();
        let first = in_flight.insert(vec![slice(1, 0), slice(1, 1), slice(2, 0)]);
        let second = in_flight.insert(vec![slice(1, 2)]);
        let held = |in_flight: &InFlightClaims| [1, 2, 3].map(|index| in_flight.holds(page(index)));
        assert_eq!(held(&in_flight), [true, true, false]);
        in_flight.remove(first);
        in_flight.remove(first);
        assert_eq!(held(&in_flight), [true, false, false]);
        in_flight.remove(second);
        assert_eq!(held(&in_flight), [false; 3]);
    }
}
