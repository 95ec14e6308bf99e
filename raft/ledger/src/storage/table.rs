//! An ordered table of rows, in pages that frozen states share.
//!
//! A table is a list of pages. To freeze it ([`Table::frozen_pages`]) costs one pointer a page, whatever the size of
//! the state. Afterwards a change copies the list of one page and the changed row; all other rows stay shared.
//!
//! A page ends after a key whose hash has a certain form. So equal tables have equal pages, whatever their histories
//! were, and a change moves no boundary but its own.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::TableKey;
use super::form::RowForm;
use super::frozen::{AnyPage, PageChunks, PageRows};

/// Rows by key.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    /// Pages in the order of their keys. None is empty, and all but the last are closed.
    pages: Vec<Arc<TablePage<K, V>>>,
    len: usize,
}

/// Neighbouring rows of a table.
#[derive(Clone, Debug)]
struct TablePage<K, V> {
    rows: Vec<(K, Arc<V>)>,
    /// True if its last key ends a page: a larger key belongs to the next page.
    closed: bool,
    /// Its chunks, if they have been computed since the last change.
    chunks: PageChunks,
}

impl<K, V> TablePage<K, V> {
    fn new(rows: Vec<(K, Arc<V>)>, closed: bool) -> Arc<TablePage<K, V>> {
        Arc::new(TablePage { rows, closed, chunks: PageChunks::default() })
    }
}

impl<K: Clone, V: Clone> TablePage<K, V> {
    /// Returns the page for changes: a copy of it if a frozen state shares it.
    fn change(page: &mut Arc<TablePage<K, V>>) -> &mut TablePage<K, V> {
        // The copy needs no chunks either, so they are not copied.
        if Arc::get_mut(page).is_none() {
            *page = TablePage::new(page.rows.clone(), page.closed);
        }
        let page = Arc::make_mut(page);
        page.chunks.take();
        page
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table { pages: Vec::new(), len: 0 }
    }
}

impl<K: Ord, V> Table<K, V> {
    /// Returns the position of the first row whose key is not less than `key`.
    fn lower_bound(&self, key: &K) -> Position {
        let page = self.pages.partition_point(|page| page.rows.last().is_some_and(|(last, _)| last < key));
        let rows = self.pages.get(page).map(|page| page.rows.as_slice()).unwrap_or_default();
        Position { page, row: rows.partition_point(|(known, _)| known < key) }
    }

    fn find(&self, key: &K) -> Option<Position> {
        let position = self.lower_bound(key);
        self.at(position).filter(|(known, _)| *known == key).map(|_| position)
    }

    fn at(&self, position: Position) -> Option<(&K, &V)> {
        let (key, row) = self.pages.get(position.page)?.rows.get(position.row)?;
        Some((key, row))
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
    pub fn iter(&self) -> Rows<'_, K, V> {
        self.range(..)
    }

    /// Iterates over the rows within `bounds`, in order.
    pub fn range<R: RangeBounds<K>>(&self, bounds: R) -> Rows<'_, K, V> {
        let after = |key| {
            let position = self.lower_bound(key);
            let is_there = self.at(position).is_some_and(|(known, _)| known == key);
            Position { row: position.row + usize::from(is_there), ..position }
        };
        let front = match bounds.start_bound() {
            Bound::Included(key) => self.lower_bound(key),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => Position { page: 0, row: 0 },
        };
        let back = match bounds.end_bound() {
            Bound::Included(key) => after(key),
            Bound::Excluded(key) => self.lower_bound(key),
            Bound::Unbounded => Position { page: self.pages.len(), row: 0 },
        };
        Rows { table: self, front, back }
    }

    /// Returns the row with the lowest key.
    pub fn first(&self) -> Option<(&K, &V)> {
        self.at(Position { page: 0, row: 0 })
    }
}

impl<K: TableKey + Ord + Clone, V: RowForm + Clone> Table<K, V> {
    /// Returns the row of `key` for changes.
    pub fn edit(&mut self, key: &K) -> Option<&mut V> {
        let position = self.find(key)?;
        let page = TablePage::change(self.pages.get_mut(position.page)?);
        page.rows.get_mut(position.row).map(|(_, row)| Arc::make_mut(row))
    }

    /// Adds a row, or replaces and returns the former one.
    pub fn put(&mut self, key: K, row: V) -> Option<V> {
        let mut position = self.lower_bound(&key);
        if self.at(position).is_some_and(|(known, _)| *known == key) {
            let page = TablePage::change(self.pages.get_mut(position.page)?);
            let (_, former) = page.rows.get_mut(position.row)?;
            return Some(Arc::unwrap_or_clone(std::mem::replace(former, Arc::new(row))));
        }
        // A key above all others belongs to the last page, unless that one is closed.
        if position.page == self.pages.len() {
            match self.pages.last().filter(|page| !page.closed) {
                Some(last) => position = Position { page: position.page - 1, row: last.rows.len() },
                None => self.pages.push(TablePage::new(Vec::new(), false)),
            }
        }
        let closes = closes_page::<K, V>(&key);
        let page = TablePage::change(&mut self.pages[position.page]);
        page.rows.insert(position.row, (key, Arc::new(row)));
        self.len += 1;
        if closes {
            let rest = page.rows.split_off(position.row + 1);
            let was_closed = std::mem::replace(&mut page.closed, true);
            if !rest.is_empty() {
                self.pages.insert(position.page + 1, TablePage::new(rest, was_closed));
            }
        }
        None
    }

    /// Removes and returns a row.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let position = self.find(key)?;
        let page = TablePage::change(&mut self.pages[position.page]);
        let (_, row) = page.rows.remove(position.row);
        self.len -= 1;
        let ended_page = page.closed && position.row == page.rows.len();
        if ended_page {
            page.closed = false;
        }
        let is_empty = page.rows.is_empty();
        if ended_page && position.page + 1 < self.pages.len() {
            // Without its end the page continues with the next one.
            let next = Arc::unwrap_or_clone(self.pages.remove(position.page + 1));
            let page = TablePage::change(&mut self.pages[position.page]);
            page.rows.extend(next.rows);
            page.closed = next.closed;
        } else if is_empty {
            self.pages.remove(position.page);
        }
        Some(Arc::unwrap_or_clone(row))
    }

    /// Removes the rows within `bounds`.
    pub fn remove_range<R: RangeBounds<K>>(&mut self, bounds: R) {
        let keys: Vec<K> = self.range(bounds).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| drop(self.remove(key)));
    }

    /// Forgets the chunks of all pages: the form of the rows has changed.
    pub(crate) fn forget_chunks(&mut self) {
        for page in &mut self.pages {
            TablePage::change(page);
        }
    }
}

impl<K, V> Table<K, V>
where
    K: TableKey + Send + Sync + 'static,
    V: RowForm + Send + Sync + 'static,
{
    /// Iterates over the pages, shared with the table.
    pub(crate) fn frozen_pages(&self) -> impl Iterator<Item = Arc<dyn AnyPage>> + '_ {
        self.pages.iter().map(|page| Arc::clone(page) as Arc<dyn AnyPage>)
    }
}

impl<K, V> AnyPage for TablePage<K, V>
where
    K: TableKey + Send + Sync,
    V: RowForm + Send + Sync,
{
    fn rows(&self, tag: u8, level: u32) -> PageRows<'_> {
        Box::new(self.rows.iter().map(move |(key, row)| (key.to_bytes(tag), row.to_row(level))))
    }

    fn chunks(&self) -> &PageChunks {
        &self.chunks
    }
}

/// True if a page ends after this key: enough low bits of the key's hash are zero.
fn closes_page<K: TableKey, V: RowForm>(key: &K) -> bool {
    let hash = blake3::hash(&key.to_bytes(0));
    let low = hash.as_bytes().first_chunk().map_or(0, |low: &[u8; 8]| u64::from_le_bytes(*low));
    low.trailing_zeros() >= V::PAGE_ROWS.ilog2()
}

/// Position of a row: number of its page, and its number in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    page: usize,
    row: usize,
}

/// Iterator over rows; see [`Table::range`].
#[derive(Debug)]
pub struct Rows<'a, K, V> {
    table: &'a Table<K, V>,
    /// The next row from the front; past the end of a page it is the first one of the next page.
    front: Position,
    /// The row behind the last one.
    back: Position,
}

impl<K, V> Clone for Rows<'_, K, V> {
    fn clone(&self) -> Self {
        Rows { ..*self }
    }
}

impl<'a, K, V> Iterator for Rows<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let page = self.table.pages.get(self.front.page)?;
        if self.front.row == page.rows.len() {
            self.front = Position { page: self.front.page + 1, row: 0 };
            return self.next();
        }
        if self.front >= self.back {
            return None;
        }
        let (key, row) = page.rows.get(self.front.row)?;
        self.front.row += 1;
        Some((key, row))
    }
}

impl<K, V> DoubleEndedIterator for Rows<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while self.back.row == 0 {
            let page = self.back.page.checked_sub(1)?;
            self.back = Position { page, row: self.table.pages.get(page)?.rows.len() };
        }
        if self.front >= self.back {
            return None;
        }
        self.back.row -= 1;
        let (key, row) = self.table.pages.get(self.back.page)?.rows.get(self.back.row)?;
        Some((key, row))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::storage::{FrozenState, hash_of_chunks};

    /// A row whose table has pages of two rows on average.
    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Value(u16);

    impl RowForm for Value {
        const PAGE_ROWS: u32 = 2;
    }

    fn freeze(table: &Table<u32, Value>) -> FrozenState {
        let mut state = FrozenState::of_pages(Vec::new());
        state.add(1, 1, table.frozen_pages());
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
        /// The table agrees with a map; its pages depend on its rows only; a frozen state never changes.
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
            prop_assert_eq!(freeze(&again).pages().len(), freeze(&table).pages().len());
            for (state, rows, hash) in frozen {
                let packed: Vec<_> = state.pages().iter().flat_map(|page| page.pack()).map(|(chunk, _)| chunk).collect();
                prop_assert_eq!(hash_of_chunks(&packed), hash);
                prop_assert_eq!(freeze(&rows).hash(), hash);
            }
        }
    }

    /// Replicas of two releases compare their hashes, so the division into pages is part of the format.
    #[test]
    fn pages_end_after_recorded_keys() {
        let mut table = Table::default();
        for key in 0..20 {
            table.put(key, Value(0));
        }
        let ends: Vec<u32> = table.pages.iter().filter_map(|page| page.rows.last()).map(|(key, _)| *key).collect();
        assert_eq!(ends, [1, 2, 5, 6, 7, 8, 10, 12, 16, 17, 19]);
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
        let unknown = after.pages().iter().filter(|page| page.known_chunks().is_none()).count();
        assert_eq!((unknown, after.pages().len()), (1, before.pages().len()));
        assert_ne!(after.hash(), before.hash());
    }
}
