//! Reads contents and recipients for responses.
//!
//! The bytes of blobs are copied under the read lock and decoded after it is released. So the decoding of ten thousand
//! recipients does not delay entries that wait to be applied.

use std::collections::{BTreeMap, BTreeSet};

use reveille_cluster::file_store::FileStoreError;
use reveille_ledger::Ledger;
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::{Content, Recipient, Recipients};
use reveille_ledger::ids::Hash;

use super::archive::RunLedgers;
use super::{Admin, ApiResult, error_texts};

/// Maximum number of bytes that are copied for one page of a response. A page that needs more ends early.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Copied blobs.
#[derive(Default)]
pub struct Blobs {
    bytes: BTreeMap<Hash, Vec<u8>>,
    total: usize,
}

impl Blobs {
    /// Copies a blob, unless it is copied already.
    pub fn take(&mut self, ledger: &Ledger, hash: Hash) {
        if self.bytes.contains_key(&hash) {
            return;
        }
        let bytes = ledger.blob(&hash).map(<[u8]>::to_vec).unwrap_or_default();
        self.total += bytes.len();
        self.bytes.insert(hash, bytes);
    }

    /// Copies a blob of a run. A part of the archive has only blobs that nothing in the state uses.
    pub fn take_of_run(&mut self, at: RunLedgers<'_>, hash: Hash) {
        let ledger = if at.own.blob(&hash).is_some() { at.own } else { at.state };
        self.take(ledger, hash);
    }

    /// Returns true if no more blobs should be copied for this page.
    pub fn is_full(&self) -> bool {
        self.total >= BYTES_MAX
    }

    fn recipients(&self, hash: &Hash) -> Option<Recipients> {
        self.bytes.get(hash).and_then(|bytes| Recipients::from_blob(bytes))
    }

    /// Returns the sender of a content as the user wrote it.
    pub fn sender(&self, hash: &Hash) -> Option<String> {
        Some(Content::from_blob(self.bytes.get(hash)?)?.sender)
    }
}

impl Admin {
    /// Returns recipients by audience and number, in the order of `wanted`; `None` if this node does not have one.
    /// Recipients of sealed audiences are read from their parts on a blocking thread (P20).
    pub(crate) async fn recipients(&self, blobs: &Blobs, wanted: &[(Hash, u32)]) -> Vec<Option<Recipient>> {
        let mut decoded: BTreeMap<Hash, Option<Recipients>> = BTreeMap::new();
        let mut found = Vec::with_capacity(wanted.len());
        let mut places = Vec::new();
        for (at, (hash, number)) in wanted.iter().enumerate() {
            let audience = decoded.entry(*hash).or_insert_with(|| blobs.recipients(hash));
            found.push(match audience {
                Some(Recipients::Inline(audience)) => audience.recipients.get(*number as usize).cloned(),
                Some(Recipients::Sealed(seal)) => {
                    places.extend(seal.locate(*number).map(|place| (at, place)));
                    None
                }
                None => None,
            });
        }
        let read = self.blocking(move |node| {
            let read = node.files.read_each(places.iter().map(|(_, place)| *place).collect());
            places.into_iter().filter_map(|(at, place)| Some((at, read.get(&place)?.clone().ok()?))).collect::<Vec<_>>()
        });
        for (at, recipient) in read.await.unwrap_or_default() {
            if let Some(place) = found.get_mut(at) {
                *place = Some(recipient);
            }
        }
        found
    }

    /// Returns the addresses as the user wrote them. For a recipient that this node does not have, or that was erased,
    /// returns `#` and its number.
    pub(crate) async fn addresses(&self, blobs: &Blobs, wanted: &[(Hash, u32)]) -> Vec<String> {
        let found = self.recipients(blobs, wanted).await.into_iter();
        let address = |(recipient, (_, number)): (Option<Recipient>, &(Hash, u32))| {
            let known = recipient.filter(|recipient| !recipient.is_erased());
            known.map_or_else(|| format!("#{number}"), |recipient| recipient.address)
        };
        found.zip(wanted).map(address).collect()
    }

    /// Returns the numbers of the recipients with these address keys. It reads the parts of a sealed audience in order,
    /// until all keys are found.
    pub(crate) async fn numbers(
        &self,
        blobs: &Blobs,
        audience: Hash,
        keys: BTreeSet<String>,
    ) -> ApiResult<BTreeMap<String, u32>> {
        let seal = match blobs.recipients(&audience) {
            _ if keys.is_empty() => return Ok(BTreeMap::new()),
            None => return Ok(BTreeMap::new()),
            Some(Recipients::Inline(audience)) => {
                let all = (0..).zip(audience.recipients).map(|(number, recipient)| (recipient.key, number));
                return Ok(all.filter(|(key, _)| keys.contains(key)).collect());
            }
            Some(Recipients::Sealed(seal)) => seal,
        };
        let read = self.blocking(move |node| {
            let mut found = BTreeMap::new();
            for (first, part) in (0..).step_by(CHUNK as usize).zip(&seal.parts) {
                let here = node.files.find(*part, &keys)?;
                found.extend(here.into_iter().map(|(place, key)| (key, first + u32::from(place))));
                if found.len() == keys.len() {
                    break;
                }
            }
            Ok(found)
        });
        read.await?.map_err(|fault: FileStoreError| {
            error_texts::file_unreadable(format!("{fault}; name it by number, as '#17'"))
        })
    }
}
