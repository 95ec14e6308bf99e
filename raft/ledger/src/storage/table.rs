//! An ordered table that remembers which of its rows changed since they were last written out.
//!
//! The state store mirrors exactly those rows; nothing else tracks dirt, so no change can be forgotten.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::RangeBounds;

/// Rows by key, and the keys whose row was added, changed or removed.
#[derive(Clone, Debug)]
pub struct Table<K: Ord + Clone, V> {
    rows: BTreeMap<K, V>,
    dirty: BTreeSet<K>,
}

impl<K: Ord + Clone, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { rows: BTreeMap::new(), dirty: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V> Table<K, V> {
    /// The row of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    /// The row of `key`, to be changed: it counts as changed from here on.
    pub fn edit(&mut self, key: &K) -> Option<&mut V> {
        let row = self.rows.get_mut(key)?;
        self.dirty.insert(key.clone());
        Some(row)
    }

    /// Puts a row, in place of a former one.
    pub fn put(&mut self, key: K, row: V) -> Option<V> {
        self.dirty.insert(key.clone());
        self.rows.insert(key, row)
    }

    /// Puts a row that was read from a store: it is not dirty.
    pub fn restore(&mut self, key: K, row: V) {
        self.rows.insert(key, row);
    }

    /// Takes a row away.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        self.dirty.insert(key.clone());
        Some(row)
    }

    /// Is there such a row?
    pub fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// No row at all?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All rows in order.
    pub fn iter(&self) -> btree_map::Iter<'_, K, V> {
        self.rows.iter()
    }

    /// Rows within bounds, in order.
    pub fn range<R: RangeBounds<K>>(&self, bounds: R) -> btree_map::Range<'_, K, V> {
        self.rows.range(bounds)
    }

    /// How many keys changed since the last call of `take_dirty`.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// The keys that changed since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.dirty)
    }

    /// The lowest key.
    pub fn first(&self) -> Option<(&K, &V)> {
        self.rows.first_key_value()
    }
}
