//! Maps the recipients of one list to their numbers in another (P17), because an edit of an audience changes the
//! numbers.
//!
//! Lists never change, so a mapping is valid as long as both lists are kept. It is made on first use and never stored.
//! One between short lists is made again at each use: a schedule that is often triggered for few recipients would have
//! a mapping for each two of its triggers.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Hash, Recipients};

/// Maximum number of recipients in all mappings together; each takes four bytes. Beyond this all mappings are dropped,
/// and made again when they are needed.
const NUMBERS_MAX: usize = 8 * 1024 * 1024;
/// Number of recipients that take as much memory as a mapping's hashes, which are stored twice.
const OVERHEAD: usize = 64;
/// Maximum size of two lists together whose mapping is not kept, in bytes: about twenty recipients.
const SHORT_BYTES_MAX: usize = 1_024;

/// Recipients that two lists have in common, found by address key: the number in the one and in the other, in order.
pub(crate) type RecipientMapping = Vec<(u16, u16)>;

/// Mappings, by the hashes of the own and the other list.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecipientMappings {
    mappings: BTreeMap<(Hash, Hash), RecipientMapping>,
    /// The same pairs, by the other list and the own one.
    by_other: BTreeSet<(Hash, Hash)>,
    /// Recipients in all mappings, with [`OVERHEAD`] for each mapping.
    numbers: usize,
}

impl RecipientMappings {
    pub fn get(&self, own: Hash, other: Hash) -> Option<&RecipientMapping> {
        self.mappings.get(&(own, other))
    }

    pub fn put(&mut self, own: Hash, other: Hash, mapping: RecipientMapping) {
        self.remove((own, other));
        let numbers = mapping.len() + OVERHEAD;
        if self.numbers + numbers > NUMBERS_MAX {
            *self = RecipientMappings::default();
        }
        self.numbers += numbers;
        self.by_other.insert((other, own));
        self.mappings.insert((own, other), mapping);
    }

    /// Adds mappings that were made elsewhere, except those between short lists. `len` is the size of a list in bytes.
    pub fn take(&mut self, made: RecipientMappings, len: impl Fn(&Hash) -> usize) {
        for ((own, other), mapping) in made.mappings {
            if len(&own) + len(&other) > SHORT_BYTES_MAX {
                self.put(own, other, mapping);
            }
        }
    }

    /// Removes the mappings of a list that is gone.
    pub fn forget(&mut self, list: &Hash) {
        let all = (*list, Hash([0; 32]))..=(*list, Hash([255; 32]));
        let own = self.mappings.range(all.clone()).map(|(pair, _)| *pair);
        let other = self.by_other.range(all).map(|(other, own)| (*own, *other));
        let pairs: Vec<_> = own.chain(other).collect();
        pairs.into_iter().for_each(|pair| self.remove(pair));
    }

    fn remove(&mut self, (own, other): (Hash, Hash)) {
        if let Some(mapping) = self.mappings.remove(&(own, other)) {
            self.by_other.remove(&(other, own));
            self.numbers -= mapping.len() + OVERHEAD;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Hash, Hash, &RecipientMapping)> {
        self.mappings.iter().map(|((own, other), mapping)| (*own, *other, mapping))
    }
}

/// Returns the address keys of a list; none if it is unreadable or sealed.
pub(crate) fn keys_of(list: &[u8]) -> Vec<String> {
    match Recipients::from_blob(list) {
        Some(Recipients::Inline(audience)) => audience.recipients.into_iter().map(|one| one.key).collect(),
        Some(Recipients::Sealed(_)) | None => Vec::new(),
    }
}

/// Returns the numbers of a list's recipients. Rows of erased persons are equal, and stand for none.
pub(crate) fn numbers_of(list: Option<&[u8]>) -> BTreeMap<String, u16> {
    let keys = list.map(keys_of).unwrap_or_default();
    keys.into_iter().zip(0..).filter(|(key, _)| !key.is_empty()).collect()
}

/// Makes a mapping from these numbers. An unreadable or sealed list has none of them: a schedule with such a list has no
/// `min_gap`.
pub(crate) fn map_recipients(own: &BTreeMap<String, u16>, other: Option<&[u8]>) -> RecipientMapping {
    let other = other.map(keys_of).unwrap_or_default();
    let common = other.iter().zip(0..).filter_map(|(key, number)| Some((*own.get(key)?, number)));
    let mut mapping: RecipientMapping = common.collect();
    mapping.sort_unstable();
    mapping
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Audience, Recipient};

    fn list(keys: &[&str]) -> Vec<u8> {
        let one = |key: &&str| Recipient { address: key.to_uppercase(), key: (*key).to_owned(), values: vec![] };
        Audience { columns: vec![], recipients: keys.iter().map(one).collect() }.blob().bytes
    }

    #[test]
    fn mapping_table_is_sorted_by_key() {
        let (former, present) = (list(&["a", "b", "c"]), list(&["c", "new", "a"]));
        assert_eq!(map_recipients(&numbers_of(Some(&present)), Some(&former)), [(0, 2), (2, 0)]);
        assert_eq!(map_recipients(&numbers_of(Some(&former)), Some(&present)), [(0, 2), (2, 0)]);
        assert_eq!(map_recipients(&numbers_of(Some(&present)), None), []);
    }

    #[test]
    fn tables_go_with_their_lists_and_are_bounded() {
        let hash = |number: u8| Hash([number; 32]);
        let mut mappings = RecipientMappings::default();
        mappings.put(hash(1), hash(2), vec![(0, 0); 3]);
        mappings.put(hash(1), hash(2), vec![(0, 0); 4]);
        mappings.put(hash(2), hash(3), vec![(0, 0); 5]);
        mappings.put(hash(3), hash(1), vec![(0, 0); 6]);
        assert_eq!(mappings.numbers, 15 + 3 * OVERHEAD);
        mappings.forget(&hash(3));
        assert_eq!((mappings.numbers, mappings.iter().count()), (4 + OVERHEAD, 1), "both ways");
        mappings.put(hash(4), hash(5), vec![(0, 0); NUMBERS_MAX - OVERHEAD - 3]);
        assert_eq!(mappings.iter().count(), 1, "all others are forgotten");
        assert!(mappings.get(hash(1), hash(2)).is_none());
        assert_eq!(mappings.by_other.len(), 1);
    }

    #[test]
    fn mapping_between_short_lists_is_not_kept() {
        let (short, long) = (Hash([1; 32]), Hash([2; 32]));
        let len = |list: &Hash| if *list == short { 100 } else { SHORT_BYTES_MAX };
        let mut made = RecipientMappings::default();
        made.put(short, short, vec![(0, 0)]);
        made.put(short, long, vec![(0, 0)]);
        let mut mappings = RecipientMappings::default();
        mappings.take(made, len);
        assert!(mappings.get(short, short).is_none() && mappings.get(short, long).is_some());
    }
}
