//! The bytes of the archive's blocks, between the entry that made them and the first durable snapshot with them (P24).
//!
//! Parts with the same content and recipients name the same block. So the bytes of a block stay here when one part no
//! longer names it. The next snapshot saves those that a part names, and then all of its time are forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::block::{BLOCK_BYTES_MAX, BlockEntry, LISTS_BYTES_MAX, Row, pack_rows, unpack_block};
use super::form::{self, RowForm, Unreadable};
use super::frozen::{FrozenArchive, FrozenState};
use super::rows::BLOBS;
use crate::model::{Content, Hash, Ledger, Recipients, StoredBlob, Time};

impl Ledger {
    /// Encodes all rows of `part`, a ledger whose head is empty, into blocks of the archive.
    pub(crate) fn pack_part(&mut self, part: &Ledger) -> Vec<BlockEntry> {
        // The first row is the head, which is not stored.
        let (lists, others): (Vec<Row>, Vec<Row>) = part.all_rows().skip(1).partition(|(key, _)| is_list(key));
        let lists = pack_rows(lists.into_iter(), LISTS_BYTES_MAX);
        let packed = pack_rows(others.into_iter(), BLOCK_BYTES_MAX);
        let kept = packed.into_iter().chain(lists).map(|(block, bytes)| {
            self.derived.unsaved.insert(block.hash, bytes.into());
            block
        });
        kept.collect()
    }

    /// Returns the bytes of a block of the archive that no durable snapshot has yet.
    pub fn unsaved_block(&self, hash: &Hash) -> Option<Arc<[u8]>> {
        self.derived.unsaved.get(hash).cloned()
    }

    /// Returns the blocks of the archive that no durable snapshot has yet.
    pub fn unsaved_blocks(&self) -> BTreeSet<Hash> {
        self.derived.unsaved.keys().copied().collect()
    }

    /// Size in bytes of the blocks of the archive that no durable snapshot has yet, and of those among them that no part
    /// names any more.
    pub fn unsaved_bytes(&self) -> usize {
        self.derived.unsaved.values().map(|bytes| bytes.len()).sum()
    }

    /// Forgets the bytes that this state had in memory, of which a durable snapshot was made. A block that was made
    /// again since stays: no part may have named it in that state.
    pub fn forget_saved(&mut self, state: &FrozenState) {
        let saved = state.unsaved();
        self.derived.unsaved.retain(|hash, bytes| saved.get(hash).is_none_or(|saved| !Arc::ptr_eq(saved, bytes)));
    }

    /// Returns the archive as it is now. It shares the rows of its parts with the ledger.
    pub(super) fn frozen_archive(&self) -> FrozenArchive {
        FrozenArchive { parts: self.parts.clone(), unsaved: self.derived.unsaved.clone() }
    }
}

/// True if this is the key of a content or a list.
fn is_list(key: &[u8]) -> bool {
    key.first() == Some(&BLOBS)
}

/// Returns a block of the archive without the person of this address key. Only these lists are changed, and these
/// contents become empty. `None`: nothing of that is in it.
///
/// # Errors
/// The bytes are no block of this build.
pub fn block_without(
    block: &[u8],
    key: &str,
    (lists, contents): (&BTreeSet<Hash>, &BTreeSet<Hash>),
) -> Result<Option<Vec<u8>>, Unreadable> {
    if contents.is_empty() && !block.windows(key.len()).any(|bytes| bytes == key.as_bytes()) {
        return Ok(None);
    }
    let mut rows = unpack_block(block)?;
    let mut found = false;
    for (row, value) in rows.iter_mut().filter(|(row, _)| is_list(row)) {
        let hash = form::decode_as(BLOBS, row)?;
        let is_content = contents.contains(&hash);
        if !is_content && !lists.contains(&hash) {
            continue;
        }
        let stored = StoredBlob::from_row(value)?;
        let erased = if is_content { Content::erased_bytes(&stored.bytes) } else { list_without(&stored.bytes, key) };
        let Some(bytes) = erased else { continue };
        *value = form::encode(&StoredBlob { bytes, ..stored });
        found = true;
    }
    if !found {
        return Ok(None);
    }
    // The rows of a block stay one block: they only became shorter.
    Ok(pack_rows(rows.into_iter(), usize::MAX).pop().map(|(_, bytes)| bytes))
}

/// Returns a block of the archive with one more list: this list without the person of this address key. So the runs of
/// the block's part no longer use the list of the same hash in the state. `None`: the person is not in the list.
///
/// # Errors
/// As [`block_without`].
pub fn block_with_list(block: &[u8], key: &str, (hash, list): (Hash, &[u8])) -> Result<Option<Vec<u8>>, Unreadable> {
    let Some(bytes) = list_without(list, key) else { return Ok(None) };
    let mut rows = unpack_block(block)?;
    let stored = StoredBlob { bytes, references: 1, kept_until: Time(0) };
    rows.push((form::encode_as(BLOBS, &hash), form::encode(&stored)));
    Ok(pack_rows(rows.into_iter(), usize::MAX).pop().map(|(_, bytes)| bytes))
}

/// Returns a list without the person of this address key. `None`: the person is not in it, or it is no list.
fn list_without(list: &[u8], key: &str) -> Option<Box<[u8]>> {
    let Some(Recipients::Inline(mut audience)) = Recipients::from_blob(list) else { return None };
    audience.erase(key)?;
    Some(audience.blob().bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Audience, Blob, Recipient};

    #[test]
    fn block_without_person_keeps_other_rows_and_numbers() {
        let one = |name: &str| Recipient {
            address: name.to_owned(),
            key: name.to_lowercase(),
            values: vec![format!("name of {name}")],
        };
        let audience = Audience { columns: vec!["name".to_owned()], recipients: vec![one("Ann@x"), one("bob@x")] };
        let mut part = Ledger::new();
        let hash = part.with_blob(audience.blob());
        let [block] = Ledger::new().pack_part(&part)[..] else { panic!("one block") };
        let (lists, none) = (BTreeSet::from([hash]), BTreeSet::new());
        let packed = |part: &Ledger| pack_rows(part.all_rows().skip(1), usize::MAX).remove(0).1;
        let bytes = packed(&part);
        assert_eq!(Hash::of(&bytes), block.hash);
        assert_eq!(block_without(&bytes, "other@x", (&lists, &none)).unwrap(), None);
        assert_eq!(block_without(&bytes, "ann@x", (&none, &none)).unwrap(), None, "another tenant has the list");
        let erased = block_without(&bytes, "ann@x", (&lists, &none)).unwrap().expect("she was in it");
        assert!(!erased.windows(3).any(|piece| piece.eq_ignore_ascii_case(b"ann")), "neither address nor values");
        let read = Ledger::from_rows(unpack_block(&erased).unwrap()).unwrap();
        let Some(Recipients::Inline(read)) = read.blob(&hash).and_then(Recipients::from_blob) else { panic!("a list") };
        assert_eq!(read.recipients, [Recipient::erased(), one("bob@x")]);
        assert_eq!(block_without(&erased, "ann@x", (&lists, &none)).unwrap(), None);
    }

    #[test]
    fn block_without_content_keeps_other_contents() {
        let mut part = Ledger::new();
        let content = |subject: &str| Content { subject: subject.to_owned(), ..Content::default() };
        let [own, other] = ["Dear Ann", "Dear all"].map(|subject| part.with_blob(content(subject).blob()));
        let [block] = Ledger::new().pack_part(&part)[..] else { panic!("one block") };
        let bytes = pack_rows(part.all_rows().skip(1), usize::MAX).remove(0).1;
        assert_eq!(Hash::of(&bytes), block.hash);
        let (none, contents) = (BTreeSet::new(), BTreeSet::from([own]));
        let erased = block_without(&bytes, "ann@x", (&none, &contents)).unwrap().expect("it was in it");
        let read = Ledger::from_rows(unpack_block(&erased).unwrap()).unwrap();
        let read = |hash| read.blob(hash).and_then(Content::from_blob);
        assert_eq!((read(&own), read(&other)), (Some(Content::default()), Some(content("Dear all"))));
        assert_eq!(block_without(&erased, "ann@x", (&none, &contents)).unwrap(), None);
    }

    #[test]
    fn block_that_is_made_again_outlives_snapshot_of_before() {
        let (mut ledger, mut part) = (Ledger::new(), Ledger::new());
        part.with_blob(Audience::default().blob());
        let [block] = ledger.pack_part(&part)[..] else { panic!("one block") };
        let state = ledger.freeze();
        assert_eq!(ledger.pack_part(&part), [block]);
        ledger.forget_saved(&state);
        assert!(ledger.unsaved_block(&block.hash).is_some(), "the snapshot has no part that names it");
        ledger.forget_saved(&ledger.freeze());
        assert!(ledger.unsaved_block(&block.hash).is_none() && ledger.unsaved_bytes() == 0);
    }

    impl Ledger {
        /// Stores a list or a content, as an archived run that alone uses it leaves it.
        fn with_blob(&mut self, blob: Blob) -> Hash {
            let stored = StoredBlob { bytes: blob.bytes.into(), references: 1, kept_until: Default::default() };
            self.blobs.put(blob.hash, stored);
            blob.hash
        }
    }
}
