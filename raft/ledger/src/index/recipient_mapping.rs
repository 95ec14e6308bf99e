//! Maps the recipients of one list to their numbers in another (P17), because an edit of an audience changes the
//! numbers.
//!
//! Lists never change, so a mapping is valid as long as both lists are kept. It is made on first use and never stored.

use std::collections::BTreeMap;

use crate::model::{Hash, Recipient, Recipients};

/// Maximum number of recipients in all mappings together; each takes four bytes. Beyond this all mappings are dropped,
/// and made again when they are needed.
const NUMBERS_MAX: usize = 8 * 1024 * 1024;

/// For each recipient of one list: its number in the other list, found by address key.
pub(crate) type RecipientMapping = Vec<Option<u16>>;

/// Mappings, by the hashes of the own and the other list.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecipientMappings {
    mappings: BTreeMap<(Hash, Hash), RecipientMapping>,
    numbers: usize,
}

impl RecipientMappings {
    pub fn get(&self, own: Hash, other: Hash) -> Option<&RecipientMapping> {
        self.mappings.get(&(own, other))
    }

    pub fn put(&mut self, own: Hash, other: Hash, mapping: RecipientMapping) {
        if self.numbers + mapping.len() > NUMBERS_MAX {
            *self = RecipientMappings::default();
        }
        self.numbers += mapping.len();
        let former = self.mappings.insert((own, other), mapping);
        self.numbers -= former.map_or(0, |former| former.len());
    }

    /// Adds mappings that were made elsewhere.
    pub fn take(&mut self, made: RecipientMappings) {
        for ((own, other), mapping) in made.mappings {
            self.put(own, other, mapping);
        }
    }

    /// Removes the mappings of a list that is gone.
    pub fn forget(&mut self, list: &Hash) {
        self.mappings.retain(|(own, other), _| own != list && other != list);
        self.numbers = self.mappings.values().map(Vec::len).sum();
    }

    pub fn iter(&self) -> impl Iterator<Item = (Hash, Hash, &RecipientMapping)> {
        self.mappings.iter().map(|((own, other), mapping)| (*own, *other, mapping))
    }
}

/// Makes a mapping. It has no numbers for an unreadable or sealed list: a schedule with such a list has no `min_gap`.
pub(crate) fn map_recipients(own: Option<&[u8]>, other: Option<&[u8]>) -> RecipientMapping {
    let list = |blob: Option<&[u8]>| match blob.and_then(Recipients::from_blob) {
        Some(Recipients::Inline(audience)) => audience.recipients,
        Some(Recipients::Sealed(_)) | None => Vec::<Recipient>::new(),
    };
    let (own, other) = (list(own), list(other));
    let numbers: BTreeMap<&str, u16> = other.iter().zip(0..).map(|(one, number)| (one.key.as_str(), number)).collect();
    // Rows of erased persons are equal, and stand for none.
    own.iter().map(|one| numbers.get(one.key.as_str()).copied().filter(|_| !one.is_erased())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Audience;

    fn list(keys: &[&str]) -> Vec<u8> {
        let one = |key: &&str| Recipient { address: key.to_uppercase(), key: (*key).to_owned(), values: vec![] };
        Audience { columns: vec![], recipients: keys.iter().map(one).collect() }.blob().bytes
    }

    #[test]
    fn mapping_table_is_sorted_by_key() {
        let (former, present) = (list(&["a", "b", "c"]), list(&["c", "new", "a"]));
        assert_eq!(map_recipients(Some(&present), Some(&former)), [Some(2), None, Some(0)]);
        assert_eq!(map_recipients(Some(&former), Some(&present)), [Some(2), None, Some(0)]);
        assert_eq!(map_recipients(Some(&present), None), [None, None, None]);
    }

    #[test]
    fn tables_go_with_their_lists_and_are_bounded() {
        let hash = |number: u8| Hash([number; 32]);
        let mut mappings = RecipientMappings::default();
        mappings.put(hash(1), hash(2), vec![None; 3]);
        mappings.put(hash(1), hash(2), vec![None; 4]);
        mappings.put(hash(2), hash(3), vec![None; 5]);
        assert_eq!(mappings.numbers, 9);
        mappings.forget(&hash(3));
        assert_eq!((mappings.numbers, mappings.iter().count()), (4, 1));
        mappings.put(hash(4), hash(5), vec![None; NUMBERS_MAX - 3]);
        assert_eq!(mappings.iter().count(), 1, "all others are forgotten");
        assert!(mappings.get(hash(1), hash(2)).is_none());
    }
}
