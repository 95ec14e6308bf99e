//! Claims that the dispatcher has proposed and that have no answer yet.
//!
//! The dispatcher wakes again before the answer, so that new work does not wait for a commit. The state may or may not
//! have these claims already. So their pages are not offered until the answer comes, and the claims count as used
//! credit. For a short time they may count twice, which is safe.

use std::collections::{BTreeMap, btree_map};

use reveille_ledger::ids::RunId;

use super::types::ClaimGrant;

/// Maximum number of claim entries without an answer.
pub(crate) const ENTRIES_IN_FLIGHT_MAX: usize = 4;

/// The claims in flight, by the numbers of their entries.
#[derive(Debug, Default)]
pub(crate) struct InFlightClaims {
    last: u64,
    entries: BTreeMap<u64, Vec<ClaimGrant>>,
    /// Number of grants of each page. Each wake reads it for every open page.
    pages: BTreeMap<RunId, usize>,
}

impl InFlightClaims {
    /// Returns true if another entry may be proposed.
    pub fn has_room(&self) -> bool {
        self.entries.len() < ENTRIES_IN_FLIGHT_MAX
    }

    /// Adds an entry that is about to be proposed; returns its number.
    pub fn insert(&mut self, grants: Vec<ClaimGrant>) -> u64 {
        self.last += 1;
        for grant in &grants {
            *self.pages.entry(grant.page).or_default() += 1;
        }
        self.entries.insert(self.last, grants);
        self.last
    }

    /// Removes an entry: it was applied, or the dispatcher stopped waiting for it.
    pub fn remove(&mut self, number: u64) {
        let Some(grants) = self.entries.remove(&number) else { return };
        for grant in &grants {
            if let btree_map::Entry::Occupied(mut left) = self.pages.entry(grant.page) {
                *left.get_mut() -= 1;
                if *left.get() == 0 {
                    left.remove();
                }
            }
        }
    }

    /// Returns true if a grant of this page is in flight.
    pub fn holds(&self, page: RunId) -> bool {
        self.pages.contains_key(&page)
    }

    /// Returns all grants in flight.
    pub fn grants(&self) -> impl Iterator<Item = &ClaimGrant> {
        self.entries.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::NodeId;

    use super::*;

    #[test]
    fn page_is_held_until_all_its_claim_entries_are_answered() {
        let page = |index| RunId { index, place: 0 };
        let grant = |index, chunk| ClaimGrant {
            page: page(index),
            chunk,
            pool: "default".to_owned(),
            node: NodeId(1),
            recipients: 1,
        };
        let mut in_flight = InFlightClaims::default();
        let first = in_flight.insert(vec![grant(1, 0), grant(1, 1), grant(2, 0)]);
        let second = in_flight.insert(vec![grant(1, 2)]);
        let held = |in_flight: &InFlightClaims| [1, 2, 3].map(|index| in_flight.holds(page(index)));
        assert_eq!(held(&in_flight), [true, true, false]);
        in_flight.remove(first);
        in_flight.remove(first);
        assert_eq!(held(&in_flight), [true, false, false]);
        in_flight.remove(second);
        assert_eq!(held(&in_flight), [false; 3]);
    }
}
