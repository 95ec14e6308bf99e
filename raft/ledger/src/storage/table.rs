//! An ordered table of rows, in leaves that frozen states share.
//!
//! A table is a list of leaves. To freeze it ([`Table::frozen_leaves`]) costs one pointer a leaf, whatever the size of
//! the state. Afterwards a change copies the changed row, and the list of its leaf if rows are added or removed, or many
//! are changed; all other rows stay shared.
//!
//! A leaf ends after a key whose hash has a certain form. So equal tables have equal leaves, whatever their histories
//! were, and a change moves no boundary but its own.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use serde::Serialize;

use super::block::{AnyLeaf, LeafBlocks, LeafRows};
use super::form::{RowForm, encode_as};

/// Rows by key.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    /// Leaves in the order of their keys. None is empty.
    leaves: Vec<Arc<Leaf<K, V>>>,
    /// The last key of each leaf: a larger key belongs to the next leaf. Only the last leaf may have none. They are
    /// side by side, so that a look-up reads no leaf but one.
    ends: Vec<K>,
    len: usize,
}

/// Maximum number of rows of a leaf that stand beside its shared list.
const REPLACED_MAX: usize = 8;

/// Neighbouring rows of a table.
#[derive(Clone, Debug)]
struct Leaf<K, V> {
    /// In the order of their keys.
    rows: Arc<Rows<K, V>>,
    /// Rows that replace those at these positions, while a frozen state shares the list. To copy the list would touch
    /// each of its rows, and an entry that archives runs changes a row in each of hundreds of leaves.
    replaced: Vec<(usize, Arc<V>)>,
    /// Its blocks, if they have been computed since the last change.
    blocks: LeafBlocks,
}

type Rows<K, V> = Vec<(K, Arc<V>)>;

impl<K, V> Leaf<K, V> {
    fn new(rows: Rows<K, V>) -> Arc<Leaf<K, V>> {
        Arc::new(Leaf { rows: Arc::new(rows), replaced: Vec::new(), blocks: LeafBlocks::default() })
    }

    /// Iterates over the rows from `from` on and before `to`, in order.
    fn range(&self, from: usize, to: usize) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        let rows = self.rows.get(from..to).unwrap_or_default();
        (from..to).zip(rows).map(|(row, (key, value))| (key, &**self.replaced(row).unwrap_or(value)))
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.range(0, self.rows.len())
    }

    fn get(&self, row: usize) -> Option<(&K, &V)> {
        let (key, value) = self.rows.get(row)?;
        Some((key, self.replaced(row).unwrap_or(value)))
    }

    fn replaced(&self, row: usize) -> Option<&Arc<V>> {
        self.replaced.iter().find(|(replaced, _)| *replaced == row).map(|(_, value)| value)
    }
}

impl<K: Clone, V: Clone> Leaf<K, V> {
    /// Returns the leaf for changes: a copy of it if a frozen state shares it, which shares its list.
    fn change(leaf: &mut Arc<Leaf<K, V>>) -> &mut Leaf<K, V> {
        // The copy needs no blocks either, so they are not copied.
        if Arc::get_mut(leaf).is_none() {
            let (rows, replaced) = (Arc::clone(&leaf.rows), leaf.replaced.clone());
            *leaf = Arc::new(Leaf { rows, replaced, blocks: LeafBlocks::default() });
        }
        let leaf = Arc::make_mut(leaf);
        leaf.blocks.take();
        leaf
    }

    /// Returns the list for changes, with all rows in it: a copy if a frozen state shares it.
    fn rows_mut(&mut self) -> &mut Rows<K, V> {
        let rows = Arc::make_mut(&mut self.rows);
        for (row, value) in self.replaced.drain(..) {
            rows[row].1 = value;
        }
        rows
    }

    /// Returns a row for changes.
    fn row_mut(&mut self, row: usize) -> Option<&mut Arc<V>> {
        let is_shared = Arc::get_mut(&mut self.rows).is_none();
        let is_replaced = self.replaced(row).is_some();
        if !is_shared || !is_replaced && self.replaced.len() >= REPLACED_MAX {
            return self.rows_mut().get_mut(row).map(|(_, value)| value);
        }
        if !is_replaced {
            let (_, value) = self.rows.get(row)?;
            self.replaced.push((row, Arc::clone(value)));
        }
        self.replaced.iter_mut().find(|(replaced, _)| *replaced == row).map(|(_, value)| value)
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { leaves: Vec::new(), ends: Vec::new(), len: 0 }
    }
}

impl<K: Ord, V> Table<K, V> {
    /// Returns the position of the first row whose key is not less than `key`, or the end of the last leaf.
    fn lower_bound(&self, key: &K) -> Position {
        let leaf = self.ends.partition_point(|end| end < key);
        let row = self.leaves.get(leaf).map_or(0, |leaf| leaf.rows.partition_point(|(known, _)| known < key));
        Position { leaf, row }
    }

    fn find(&self, key: &K) -> Option<Position> {
        let position = self.lower_bound(key);
        self.at(position).filter(|(known, _)| *known == key).map(|_| position)
    }

    fn at(&self, position: Position) -> Option<(&K, &V)> {
        self.leaves.get(position.leaf)?.get(position.row)
    }

    /// Returns the row of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.at(self.find(key)?).map(|(_, row)| row)
    }

    /// True if there is a row of `key`.
    pub fn contains(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over all rows, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.range(..)
    }

    /// Iterates over the rows within `bounds`, in order.
    pub fn range<R: RangeBounds<K>>(&self, bounds: R) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        let after = |key| {
            let position = self.lower_bound(key);
            let is_there = self.at(position).is_some_and(|(known, _)| known == key);
            Position { row: position.row + usize::from(is_there), ..position }
        };
        let front = match bounds.start_bound() {
            Bound::Included(key) => self.lower_bound(key),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => Position { leaf: 0, row: 0 },
        };
        let back = match bounds.end_bound() {
            Bound::Included(key) => after(key),
            Bound::Excluded(key) => self.lower_bound(key),
            Bound::Unbounded => Position { leaf: self.leaves.len(), row: 0 },
        };
        let rows = move |number: usize| {
            let leaf = self.leaves.get(number)?;
            let from = if number == front.leaf { front.row } else { 0 };
            let to = if number == back.leaf { back.row } else { leaf.rows.len() };
            Some(leaf.range(from, to))
        };
        (front.leaf..back.leaf + 1).filter_map(rows).flatten()
    }

    /// Returns the row with the lowest key.
    pub fn first(&self) -> Option<(&K, &V)> {
        self.at(Position { leaf: 0, row: 0 })
    }
}

impl<K: Serialize + Ord + Clone, V: RowForm + Clone> Table<K, V> {
    /// Returns the row of `key` for changes.
    pub fn edit(&mut self, key: &K) -> Option<&mut V> {
        let position = self.find(key)?;
        let leaf = Leaf::change(self.leaves.get_mut(position.leaf)?);
        leaf.row_mut(position.row).map(Arc::make_mut)
    }

    /// Adds a row, or replaces and returns the former one.
    pub fn put(&mut self, key: K, row: V) -> Option<V> {
        let position = self.lower_bound(&key);
        if self.at(position).is_some_and(|(known, _)| *known == key) {
            let leaf = Leaf::change(self.leaves.get_mut(position.leaf)?);
            let former = leaf.row_mut(position.row)?;
            return Some(Arc::unwrap_or_clone(std::mem::replace(former, Arc::new(row))));
        }
        if position.leaf == self.leaves.len() {
            self.leaves.push(Leaf::new(Vec::new()));
        }
        let end = closes_leaf::<K, V>(&key).then(|| key.clone());
        let rows = Leaf::change(&mut self.leaves[position.leaf]).rows_mut();
        rows.insert(position.row, (key, Arc::new(row)));
        self.len += 1;
        if let Some(end) = end {
            self.ends.insert(position.leaf, end);
            let rest = rows.split_off(position.row + 1);
            // Most leaves with an end never grow again.
            rows.shrink_to_fit();
            if !rest.is_empty() {
                self.leaves.insert(position.leaf + 1, Leaf::new(rest));
            }
        }
        None
    }

    /// Removes and returns a row.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let position = self.find(key)?;
        let rows = Leaf::change(&mut self.leaves[position.leaf]).rows_mut();
        let (_, row) = rows.remove(position.row);
        self.len -= 1;
        let ended_leaf = position.leaf < self.ends.len() && position.row == rows.len();
        if ended_leaf {
            self.ends.remove(position.leaf);
        }
        let is_empty = rows.is_empty();
        if ended_leaf && position.leaf + 1 < self.leaves.len() {
            // Without its end the leaf continues with the next one.
            let mut next = self.leaves.remove(position.leaf + 1);
            let next = std::mem::take(Leaf::change(&mut next).rows_mut());
            Leaf::change(&mut self.leaves[position.leaf]).rows_mut().extend(next);
        } else if is_empty {
            self.leaves.remove(position.leaf);
        }
        Some(Arc::unwrap_or_clone(row))
    }

    /// Removes the rows within `bounds`.
    pub fn remove_range<R: RangeBounds<K>>(&mut self, bounds: R) {
        let keys: Vec<K> = self.range(bounds).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| drop(self.remove(key)));
    }

    /// Forgets the blocks of all leaves: the form of the rows has changed.
    pub(crate) fn forget_blocks(&mut self) {
        for leaf in &mut self.leaves {
            Leaf::change(leaf);
        }
    }
}

impl<K, V> Table<K, V>
where
    K: Serialize + Send + Sync + 'static,
    V: RowForm + Send + Sync + 'static,
{
    /// Iterates over the leaves, shared with the table.
    pub(crate) fn frozen_leaves(&self) -> impl Iterator<Item = Arc<dyn AnyLeaf>> + '_ {
        self.leaves.iter().map(|leaf| Arc::clone(leaf) as Arc<dyn AnyLeaf>)
    }
}

impl<K, V> AnyLeaf for Leaf<K, V>
where
    K: Serialize + Send + Sync,
    V: RowForm + Send + Sync,
{
    fn rows(&self, tag: u8, level: u32) -> LeafRows<'_> {
        Box::new(self.iter().map(move |(key, row)| (encode_as(tag, key), row.to_row(level))))
    }

    fn blocks(&self) -> &LeafBlocks {
        &self.blocks
    }
}

/// True if a leaf ends after this key: enough low bits of the key's hash are zero.
fn closes_leaf<K: Serialize, V: RowForm>(key: &K) -> bool {
    let hash = blake3::hash(&encode_as(0, key));
    let low = hash.as_bytes().first_chunk().map_or(0, |low: &[u8; 8]| u64::from_le_bytes(*low));
    low.trailing_zeros() >= V::LEAF_ROWS.ilog2()
}

/// The rows of a table at one moment, shared with it like those of a frozen state.
#[derive(Clone, Debug)]
pub struct SharedRows<K, V> {
    leaves: Vec<Arc<Leaf<K, V>>>,
}

impl<K, V> Default for SharedRows<K, V> {
    fn default() -> SharedRows<K, V> {
        SharedRows { leaves: Vec::new() }
    }
}

impl<K, V> Table<K, V> {
    /// Returns the present rows. Costs one pointer a leaf.
    pub fn share(&self) -> SharedRows<K, V> {
        SharedRows { leaves: self.leaves.clone() }
    }
}

impl<K, V> SharedRows<K, V> {
    /// Iterates over the rows that were added or changed since `former`, an earlier state of the same table, and over
    /// their neighbours in the same leaves.
    pub fn changed_since(&self, former: &SharedRows<K, V>) -> impl Iterator<Item = (&K, &V)> {
        // `former` holds its leaves, so no other leaf has one of their addresses.
        let known: BTreeSet<*const Leaf<K, V>> = former.leaves.iter().map(Arc::as_ptr).collect();
        let changed = self.leaves.iter().filter(move |leaf| !known.contains(&Arc::as_ptr(leaf)));
        changed.flat_map(|leaf| leaf.iter())
    }
}

/// Position of a row: number of its leaf, and its number in the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    leaf: usize,
    row: usize,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::storage::{FrozenState, hash_of_blocks};

    /// A row whose table has leaves of two rows on average.
    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Value(u16);

    impl RowForm for Value {
        const LEAF_ROWS: u32 = 2;
    }

    fn freeze(table: &Table<u32, Value>) -> FrozenState {
        let mut state = FrozenState::default();
        state.add(1, 1, table.frozen_leaves());
        state
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u32, u16),
        Edit(u32, u16),
        Remove(u32),
        Freeze,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = 0_u32..64;
        let step = prop_oneof![
            4 => (key.clone(), any::<u16>()).prop_map(|(key, value)| Step::Put(key, value)),
            2 => (key.clone(), any::<u16>()).prop_map(|(key, value)| Step::Edit(key, value)),
            3 => key.prop_map(Step::Remove),
            1 => Just(Step::Freeze),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// The table agrees with a map; its leaves depend on its rows only; a frozen state never changes.
        #[test]
        fn table_is_an_ordered_map_and_frozen_states_stay(steps in steps(), from in 0_u32..70, to in 0_u32..70) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            let mut frozen = Vec::new();
            for step in steps {
                match step {
                    Step::Put(key, value) => prop_assert_eq!(table.put(key, Value(value)), map.insert(key, Value(value))),
                    Step::Edit(key, value) => {
                        let (row, known) = (table.edit(&key), map.get_mut(&key));
                        prop_assert_eq!(&row, &known);
                        row.into_iter().chain(known).for_each(|row| *row = Value(value));
                    }
                    Step::Remove(key) => prop_assert_eq!(table.remove(&key), map.remove(&key)),
                    Step::Freeze => frozen.push((freeze(&table), table.clone(), freeze(&table).hash())),
                }
                prop_assert!(table.iter().eq(map.iter()));
                prop_assert_eq!((table.len(), table.first()), (map.len(), map.first_key_value()));
            }
            for key in 0..70 {
                prop_assert_eq!(table.get(&key), map.get(&key));
                prop_assert_eq!(table.contains(&key), map.contains_key(&key));
            }
            if from <= to {
                prop_assert!(table.range(from..to).eq(map.range(from..to)));
                prop_assert!(table.range(from..=to).rev().eq(map.range(from..=to).rev()));
            }
            prop_assert!(table.range((Bound::Excluded(from), Bound::Unbounded)).eq(map.range((Bound::Excluded(from), Bound::Unbounded))));
            let mut ends = table.range(..to);
            let mut known = map.range(..to);
            while let Some(first) = known.next() {
                prop_assert_eq!(ends.next(), Some(first));
                prop_assert_eq!(ends.next_back(), known.next_back());
            }
            prop_assert_eq!((ends.next(), ends.next_back()), (None, None));

            let mut again = Table::default();
            for (key, value) in map.into_iter().rev() {
                again.put(key, value);
            }
            prop_assert_eq!(freeze(&again).hash(), freeze(&table).hash());
            prop_assert_eq!(freeze(&again).leaves().len(), freeze(&table).leaves().len());
            for (state, rows, hash) in frozen {
                let packed: Vec<_> = state.leaves().iter().flat_map(|leaf| leaf.pack()).map(|(block, _)| block).collect();
                prop_assert_eq!(hash_of_blocks(&packed), hash);
                prop_assert_eq!(freeze(&rows).hash(), hash);
            }
        }
    }

    /// Replicas of two releases compare their hashes, so the division into leaves is part of the format.
    #[test]
    fn leaves_end_after_recorded_keys() {
        let mut table = Table::default();
        for key in 0..20 {
            table.put(key, Value(0));
        }
        let ends: Vec<u32> = table.leaves.iter().filter_map(|leaf| leaf.rows.last()).map(|(key, _)| *key).collect();
        assert_eq!(ends, [0, 2, 3, 4, 8, 9, 10, 12, 13, 14, 15, 17, 19]);
    }

    #[test]
    fn changed_rows_are_found_by_their_leaves() {
        let mut table = Table::default();
        for key in 0..1_000 {
            table.put(key, Value(0));
        }
        let former = table.share();
        assert_eq!(table.share().changed_since(&former).count(), 0);
        *table.edit(&500).expect("a row") = Value(1);
        table.put(2_000, Value(2));
        table.remove(&7);
        let now = table.share();
        let changed: Vec<(u32, Value)> = now.changed_since(&former).map(|(key, value)| (*key, value.clone())).collect();
        assert!(changed.contains(&(500, Value(1))) && changed.contains(&(2_000, Value(2))) && changed.len() < 40);
        assert_eq!(former.changed_since(&SharedRows::default()).count(), 1_000);
    }

    #[test]
    fn change_encodes_one_page_again() {
        let mut table = Table::default();
        for key in 0..1_000 {
            table.put(key, Value(0));
        }
        let before = freeze(&table);
        before.hash();
        *table.edit(&500).expect("a row") = Value(1);
        let after = freeze(&table);
        let unknown = after.leaves().iter().filter(|leaf| leaf.known_blocks().is_none()).count();
        assert_eq!((unknown, after.leaves().len()), (1, before.leaves().len()));
        assert_ne!(after.hash(), before.hash());
    }
}
