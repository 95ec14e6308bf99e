//! Counts panics of an actor at each item, and excludes an item after its second panic (P13).
//!
//! Called by the auditor around its check of one run, and by the timer around the plan of one schedule, so that an item
//! that cannot be processed does not end the leadership. The counts end with the leadership.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Number of panics after which an item is excluded.
const PANICS_MAX: u8 = 2;

/// Number of panics of each item.
#[derive(Debug)]
pub(super) struct PanicGuard<K> {
    counts: BTreeMap<K, u8>,
}

impl<K: Ord + Copy> PanicGuard<K> {
    /// Creates a guard without panics.
    pub fn new() -> PanicGuard<K> {
        PanicGuard { counts: BTreeMap::new() }
    }

    /// Runs `check` for an item and returns its result. `None` if it panicked, or if the item is excluded.
    pub fn run<R>(&mut self, item: K, check: impl FnOnce() -> R) -> Option<R> {
        if self.excludes(item) {
            return None;
        }
        let seen = catch_unwind(AssertUnwindSafe(check)).ok();
        if seen.is_none() {
            *self.counts.entry(item).or_default() += 1;
        }
        seen
    }

    /// Returns true if the item is excluded.
    pub fn excludes(&self, item: K) -> bool {
        self.counts.get(&item).is_some_and(|count| *count >= PANICS_MAX)
    }

    /// Returns the excluded items.
    pub fn excluded(&self) -> impl Iterator<Item = K> + '_ {
        self.counts.iter().filter(|(_, count)| **count >= PANICS_MAX).map(|(item, _)| *item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_panic_at_an_item_quarantines_only_that_item() {
        let (mut guard, mut checks) = (PanicGuard::new(), 0);
        for sweep in 1..=3 {
            let bad = guard.run("bad", || {
                checks += 1;
                assert!(checks > 9, "this check panics");
            });
            assert_eq!(bad, None);
            assert_eq!(guard.run("good", || 7), Some(7));
            assert_eq!(guard.excluded().count(), usize::from(sweep >= 2));
        }
        assert_eq!(checks, 2, "what is out is skipped");
        assert_eq!(guard.excluded().collect::<Vec<_>>(), ["bad"]);
    }
}
