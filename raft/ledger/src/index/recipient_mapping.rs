//! Maps the recipients of one list to their numbers in another (P17), because an edit of an audience changes the
//! numbers.
//!
//! Lists never change, so a mapping is valid as long as both lists are kept. It is made on first use and never stored.
//! One between short lists is made again at each use: a schedule that is often triggered for few recipients would have
//! a mapping for each two of its triggers.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Hash, Recipient, Recipients};

/// Maximum number of recipients in all mappings together; each takes four bytes. Beyond this all mappings are dropped,
/// and made again when they are needed.
const NUMBERS_MAX: usize = 8 * 1024 * 1024;
/// Number of recipients that take as much memory as a mapping's hashes, which are stored twice.
const OVERHEAD: usize = 64;
/// Maximum size of two lists together whose mapping is not kept, in bytes: about twenty recipients.
const SHORT_BYTES_MAX: usize = 1_024;

/// For each recipient of one list: its number in the other list, found by address key.
pub(crate) type RecipientMapping = Vec<Option<u16>>;

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
            if !are_short(len(&own), len(&other)) {
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

/// The mapping between lists without a common recipient.
pub(crate) const NOTHING_IN_COMMON: &RecipientMapping = &Vec::new();

/// True if two lists of these sizes are so short that their mapping is not kept.
pub(crate) fn are_short(own: usize, other: usize) -> bool {
    own + other <= SHORT_BYTES_MAX
}

/// True if none of these keys is in a list. It does not decode the list: address keys are in its bytes as they are.
pub(crate) fn has_none_of(list: &[u8], keys: &[String]) -> bool {
    !keys.iter().any(|key| list.windows(key.len().max(1)).any(|bytes| bytes == key.as_bytes()))
}

/// Returns the address keys of a list; none if it is unreadable or sealed.
pub(crate) fn keys_of(list: &[u8]) -> Vec<String> {
    match Recipients::from_blob(list) {
        Some(Recipients::Inline(audience)) => audience.recipients.into_iter().map(|one| one.key).collect(),
        Some(Recipients::Sealed(_)) | None => Vec::new(),
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
        mappings.put(hash(3), hash(1), vec![None; 6]);
        assert_eq!(mappings.numbers, 15 + 3 * OVERHEAD);
        mappings.forget(&hash(3));
        assert_eq!((mappings.numbers, mappings.iter().count()), (4 + OVERHEAD, 1), "both ways");
        mappings.put(hash(4), hash(5), vec![None; NUMBERS_MAX - OVERHEAD - 3]);
        assert_eq!(mappings.iter().count(), 1, "all others are forgotten");
        assert!(mappings.get(hash(1), hash(2)).is_none());
        assert_eq!(mappings.by_other.len(), 1);
    }

    #[test]
    fn list_has_none_of_the_keys_of_another_list() {
        let (one, other) = (list(&["a@x", "b@x"]), list(&["c@x", "b@x"]));
        assert_eq!(keys_of(&one), ["a@x", "b@x"]);
        assert!(!has_none_of(&other, &keys_of(&one)));
        assert!(has_none_of(&list(&["c@x"]), &keys_of(&one)));
        assert!(has_none_of(&one, &[]) && has_none_of(&[], &keys_of(&one)));
        assert_eq!(map_recipients(Some(&one), Some(&list(&["c@x"]))), [None, None], "as the empty mapping");
    }

    #[test]
    fn mapping_between_short_lists_is_not_kept() {
        let (short, long) = (Hash([1; 32]), Hash([2; 32]));
        let len = |list: &Hash| if *list == short { 100 } else { SHORT_BYTES_MAX };
        let mut made = RecipientMappings::default();
        made.put(short, short, vec![None]);
        made.put(short, long, vec![None]);
        let mut mappings = RecipientMappings::default();
        mappings.take(made, len);
        assert!(mappings.get(short, short).is_none() && mappings.get(short, long).is_some());
    }
}
