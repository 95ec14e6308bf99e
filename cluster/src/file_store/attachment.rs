//! Format of an attachment's file: a mark with the version, then the bytes of the attachment.
//!
//! Its name is the blake3 of the whole file, so it never equals the name of a part, whose head begins with another
//! mark. The store keeps, spreads, fetches and removes both kinds in the same way (P20).

use reveille_ledger::ids::Hash;

use super::{FileStore, FileStoreError};

/// The last byte is the version.
const MAGIC: &[u8; 8] = b"rvlfile\x01";

/// Returns the file of an attachment with these bytes, and its name.
pub fn encode_attachment(bytes: &[u8]) -> (Hash, Vec<u8>) {
    let file = [MAGIC.as_slice(), bytes].concat();
    (Hash::of(&file), file)
}

/// Returns the name of a file if it is that of an attachment.
pub(super) fn name(file: &[u8]) -> Option<Hash> {
    file.starts_with(MAGIC).then(|| Hash::of(file))
}

impl FileStore {
    /// Returns the bytes of an attachment.
    ///
    /// # Errors
    /// Fails if the file is not here, or if it is not the one of that name. It is then fetched from another node.
    pub fn attachment(&self, file: Hash) -> Result<Vec<u8>, FileStoreError> {
        let read = self.whole(file).and_then(|mut whole| match whole.strip_prefix(MAGIC) {
            Some(_) => Ok(whole.split_off(MAGIC.len())),
            None => Err(FileStoreError::Damaged { part: file, what: "it is not an attachment".to_owned() }),
        });
        if let Err(fault) = &read {
            tracing::warn!(%fault, "an attachment cannot be read");
            self.mark_missing(file);
        }
        read
    }
}
