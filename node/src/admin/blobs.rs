//! Contents and audiences on their way from the ledger to an answer.
//!
//! Their bytes are copied while the state is looked at and decoded after it was let go: a list of ten
//! thousand recipients is not decoded while entries wait to be applied.

use std::collections::BTreeMap;

use reveille_ledger::Ledger;
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::ids::Hash;

/// Bytes that are copied for one page of an answer; a page that needs more ends early.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Blobs that were copied.
#[derive(Default)]
pub struct Blobs {
    bytes: BTreeMap<Hash, Vec<u8>>,
    total: usize,
}

impl Blobs {
    /// Copies a blob, once.
    pub fn take(&mut self, ledger: &Ledger, hash: Hash) {
        if self.bytes.contains_key(&hash) {
            return;
        }
        let bytes = ledger.blob(&hash).map(<[u8]>::to_vec).unwrap_or_default();
        self.total += bytes.len();
        self.bytes.insert(hash, bytes);
    }

    /// Enough for one page?
    pub fn is_full(&self) -> bool {
        self.total >= BYTES_MAX
    }

    fn audience(&self, hash: &Hash) -> Audience {
        // What the ledger holds was encoded by it.
        self.bytes.get(hash).and_then(|bytes| Audience::from_blob(bytes)).unwrap_or_default()
    }

    /// The sender of a content, as given.
    pub fn sender(&self, hash: &Hash) -> Option<String> {
        Some(Content::from_blob(self.bytes.get(hash)?)?.sender)
    }
}

/// Audiences, decoded as they are asked for.
pub struct Audiences<'b> {
    blobs: &'b Blobs,
    decoded: BTreeMap<Hash, Audience>,
}

impl<'b> Audiences<'b> {
    /// Of these blobs.
    pub fn new(blobs: &'b Blobs) -> Audiences<'b> {
        Audiences { blobs, decoded: BTreeMap::new() }
    }

    /// All of one audience.
    pub fn get(&mut self, hash: Hash) -> &Audience {
        self.decoded.entry(hash).or_insert_with(|| self.blobs.audience(&hash))
    }

    /// A recipient by number.
    pub fn recipient(&mut self, hash: Hash, number: u32) -> Option<&Recipient> {
        self.get(hash).recipients.get(number as usize)
    }

    /// The address of a recipient, as given; by number where it is not known.
    pub fn address(&mut self, hash: Hash, number: u32) -> String {
        self.recipient(hash, number).map_or_else(|| format!("#{number}"), |recipient| recipient.address.clone())
    }
}
