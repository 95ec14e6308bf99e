//! An ordered table of rows.

use std::collections::{BTreeMap, btree_map};
use std::ops::RangeBounds;

/// Rows by key.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    rows: BTreeMap<K, V>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { rows: BTreeMap::new() }
    }
}

impl<K: Ord, V> Table<K, V> {
    /// Returns the row of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    /// Returns the row of `key` for changes.
    pub fn edit(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key)
    }

    /// Adds a row, or replaces and returns the former one.
    pub fn put(&mut self, key: K, row: V) -> Option<V> {
        self.rows.insert(key, row)
    }

    /// Removes and returns a row.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.rows.remove(key)
    }

    /// True if there is a row of `key`.
    pub fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Iterates over all rows, in order.
    pub fn iter(&self) -> btree_map::Iter<'_, K, V> {
        self.rows.iter()
    }

    /// Iterates over the rows within `bounds`, in order.
    pub fn range<R: RangeBounds<K>>(&self, bounds: R) -> btree_map::Range<'_, K, V> {
        self.rows.range(bounds)
    }

    /// Returns the row with the lowest key.
    pub fn first(&self) -> Option<(&K, &V)> {
        self.rows.first_key_value()
    }
}
