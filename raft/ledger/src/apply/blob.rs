//! Blobs: contents and audiences, stored once by their hash, with a count of references.

use crate::model::{Blob, Hash, Ledger, StoredBlob, Time};

impl Ledger {
    /// Stores a blob, or adds a reference to it.
    pub(super) fn store_blob(&mut self, blob: Blob) -> Hash {
        match self.blobs.edit(&blob.hash) {
            Some(stored) => {
                stored.references += 1;
                if stored.bytes[..] != blob.bytes {
                    // A person was erased from it, and the list was given again.
                    stored.bytes = blob.bytes.into();
                    self.derived.mappings.forget(&blob.hash);
                }
            }
            None => {
                let stored = StoredBlob { bytes: blob.bytes.into(), references: 1, kept_until: Time::default() };
                self.blobs.put(blob.hash, stored);
            }
        }
        if let Some(stored) = self.blobs.get(&blob.hash) {
            self.derived.add_files(blob.hash, &stored.bytes);
        }
        blob.hash
    }

    /// Adds a reference to a stored blob.
    pub(super) fn retain_blob(&mut self, hash: &Hash) {
        let Some(stored) = self.blobs.edit(hash) else { return };
        stored.references += 1;
        if stored.references == 1 {
            self.derived.add_files(*hash, &stored.bytes);
        }
    }

    /// Removes a reference. The last one removes the blob, unless archived runs still refer to it, or workers may do so
    /// after an erasure. Archived runs send nothing, so a blob that only they have needs no files.
    pub(super) fn release_blob(&mut self, hash: &Hash) {
        let now = self.head.now;
        let Some(stored) = self.blobs.edit(hash) else { return };
        stored.references = stored.references.saturating_sub(1);
        if stored.references > 0 {
            return;
        }
        self.derived.seals.remove(hash);
        self.derived.attached.remove(hash);
        if stored.is_unused(now) {
            self.remove_blob(hash);
        }
    }

    /// Removes a blob to which nothing refers.
    pub(super) fn remove_unused_blob(&mut self, hash: &Hash) {
        let now = self.head.now;
        if self.blobs.get(hash).is_some_and(|stored| stored.is_unused(now)) {
            self.remove_blob(hash);
        }
    }

    pub(super) fn remove_blob(&mut self, hash: &Hash) -> Option<StoredBlob> {
        self.derived.seals.remove(hash);
        self.derived.attached.remove(hash);
        self.derived.mappings.forget(hash);
        self.blobs.remove(hash)
    }
}
