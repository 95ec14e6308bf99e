//! Values that many rows have in common, each of them once in memory.
//!
//! A million schedules have few tenants, zones, pools, cron expressions and policies. Rows refer to such a value by
//! `Arc`, and an interner gives equal values the same `Arc`. It changes no byte of a row, because an `Arc` is encoded
//! as its value.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of values from which on unused ones are removed.
const PRUNE_AT_MIN: usize = 64;

/// Values of one type, without repetitions.
#[derive(Debug)]
pub(crate) struct Interner<T: ?Sized> {
    values: BTreeSet<Arc<T>>,
    /// Unused values are removed when there are this many: twice as many as the last removal left.
    prune_at: usize,
}

impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Interner { values: self.values.clone(), ..*self }
    }
}

impl<T: ?Sized + Ord> Default for Interner<T> {
    fn default() -> Self {
        Interner { values: BTreeSet::new(), prune_at: PRUNE_AT_MIN }
    }
}

impl<T: ?Sized + Ord> Interner<T> {
    /// Replaces a value by the equal one that other rows use. Stores a value that no row uses yet.
    pub(crate) fn intern(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.values.get(value) {
            *value = Arc::clone(known);
            return;
        }
        if self.values.len() >= self.prune_at {
            self.values.retain(|known| Arc::strong_count(known) > 1);
            self.prune_at = PRUNE_AT_MIN.max(2 * self.values.len());
        }
        self.values.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_memory_and_unused_values_are_removed() {
        let mut interner = Interner::<str>::default();
        let mut interned = |text: &str| {
            let mut text = Arc::from(text);
            interner.intern(&mut text);
            text
        };
        let berlin = interned("Europe/Berlin");
        assert!(Arc::ptr_eq(&berlin, &interned("Europe/Berlin")));
        (0..10 * PRUNE_AT_MIN).for_each(|number| drop(interned(&number.to_string())));
        assert!(Arc::ptr_eq(&berlin, &interned("Europe/Berlin")));
        assert!(interner.values.len() <= PRUNE_AT_MIN, "{}", interner.values.len());
    }
}
