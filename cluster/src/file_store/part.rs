//! Format of a part's file.
//!
//! ```text
//! head:   magic (8) | recipients u32 | a block: end u32, blake3 (32) | …      all numbers little-endian
//! blocks: 256 recipients each, the last fewer; postcard
//! ```
//!
//! The name of a part is the blake3 of its head. A reader verifies the head by the name, and each block that it reads
//! by the head. It reads nothing else. Each `end` is counted from the first byte after the head.

use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::{COLUMNS_MAX, Recipient};
use reveille_ledger::ids::Hash;
use serde::{Deserialize, Serialize};

use super::attachment;

/// Number of recipients in a block: as many as in a slice, so that a claim mostly reads one or two blocks.
pub const BLOCK: u16 = 256;
/// The last byte is the version.
const MAGIC: &[u8; 8] = b"rvlpart\x01";
const ENTRY: usize = 4 + 32;

/// A recipient as it is encoded. `key` is `None` if it equals the address, which is usual.
#[derive(Serialize)]
struct Line<'a> {
    address: &'a str,
    key: Option<&'a str>,
    values: &'a [String],
}

/// Position and hash of each block.
#[derive(Debug)]
pub(super) struct Head {
    rows: u32,
    length: usize,
    /// End of each block, counted from the end of the head, and its hash.
    blocks: Vec<(u32, [u8; 32])>,
}

impl Head {
    /// Number of bytes from which the head's length is known.
    pub const FIXED: usize = MAGIC.len() + 4;

    /// Returns the length of a head from its first bytes.
    pub fn length(fixed: &[u8; Head::FIXED]) -> Result<usize, String> {
        let rows = fixed.strip_prefix(MAGIC).ok_or("it does not begin like a part of this version")?;
        let rows = rows.try_into().map(u32::from_le_bytes).map_err(|_| "its head is cut")?;
        if rows == 0 || rows > CHUNK {
            return Err(format!("it claims {rows} recipients"));
        }
        Ok(Head::FIXED + ENTRY * rows.div_ceil(u32::from(BLOCK)) as usize)
    }

    /// Decodes a head and verifies it by the part's name. `bytes` must be exactly the head.
    pub fn read(name: Hash, bytes: &[u8]) -> Result<Head, String> {
        let fixed = bytes.first_chunk::<{ Head::FIXED }>().ok_or("its head is cut")?;
        let length = Head::length(fixed)?;
        if bytes.len() != length {
            return Err("its head is cut".to_owned());
        }
        if Hash::of(bytes) != name {
            return Err("its head is not the one that its name stands for".to_owned());
        }
        let rows = fixed.last_chunk::<4>().map(|rows| u32::from_le_bytes(*rows)).unwrap_or_default();
        let mut blocks = Vec::with_capacity((length - Head::FIXED) / ENTRY);
        let mut before = 0;
        for entry in bytes.get(Head::FIXED..).unwrap_or_default().chunks_exact(ENTRY) {
            let (Some(end), Some(hash)) = (entry.first_chunk::<4>(), entry.last_chunk::<32>()) else { continue };
            let end = u32::from_le_bytes(*end);
            if end <= before {
                return Err("its blocks are out of order".to_owned());
            }
            blocks.push((end, *hash));
            before = end;
        }
        Ok(Head { rows, length, blocks })
    }

    /// Returns the number of recipients.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns offset and length of a block in the file.
    pub fn extent(&self, number: u16) -> Option<(u64, usize)> {
        let number = usize::from(number);
        let (end, _) = self.blocks.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.blocks[before].0);
        Some((self.length as u64 + u64::from(start), (end - start) as usize))
    }

    /// Verifies the bytes of a block and decodes its recipients.
    pub fn block(&self, number: u16, bytes: &[u8]) -> Result<Vec<Recipient>, String> {
        let (_, hash) = self.blocks.get(usize::from(number)).ok_or_else(|| format!("it has no block {number}"))?;
        if blake3::hash(bytes) != *hash {
            return Err(format!("block {number} is not the one that was sealed"));
        }
        let expected = (self.rows - u32::from(number) * u32::from(BLOCK)).min(u32::from(BLOCK));
        let read = || {
            let mut lines = Lines { left: bytes };
            let has: usize = lines.take()?;
            if has != expected as usize {
                return Err(format!("has {has} recipients, not {expected}"));
            }
            let recipients = (0..has).map(|_| lines.recipient()).collect::<Result<Vec<_>, _>>()?;
            if lines.left.is_empty() { Ok(recipients) } else { Err("has something behind its last one".to_owned()) }
        };
        read().map_err(|what| format!("block {number} {what}"))
    }
}

/// The bytes of a block that are not decoded yet. They may come from a user. Each count is checked before memory is
/// allocated for it, so the result is never much larger than the input.
struct Lines<'a> {
    left: &'a [u8],
}

impl<'a> Lines<'a> {
    fn take<T: Deserialize<'a>>(&mut self) -> Result<T, String> {
        let (taken, left) = postcard::take_from_bytes(self.left).map_err(|error| format!("does not read: {error}"))?;
        self.left = left;
        Ok(taken)
    }

    /// Decodes one [`Line`].
    fn recipient(&mut self) -> Result<Recipient, String> {
        let (address, key): (&str, Option<&str>) = self.take()?;
        let has: usize = self.take()?;
        if has > COLUMNS_MAX {
            return Err(format!("has a recipient with {has} values, more than {COLUMNS_MAX}"));
        }
        let values = (0..has).map(|_| self.take().map(str::to_owned)).collect::<Result<_, _>>()?;
        Ok(Recipient { address: address.to_owned(), key: key.unwrap_or(address).to_owned(), values })
    }
}

/// Encodes a part with these recipients, at least one and at most 65,536.
pub fn encode(recipients: &[Recipient]) -> Vec<u8> {
    let mut head = [MAGIC.as_slice(), &(recipients.len() as u32).to_le_bytes()].concat();
    let mut body: Vec<u8> = Vec::new();
    for block in recipients.chunks(usize::from(BLOCK)) {
        let lines: Vec<Line<'_>> = block
            .iter()
            .map(|Recipient { address, key, values }| Line { address, key: (key != address).then_some(key), values })
            .collect();
        let bytes = postcard::to_stdvec(&lines).expect("strings in memory can be encoded");
        body.extend(&bytes);
        head.extend((body.len() as u32).to_le_bytes());
        head.extend(blake3::hash(&bytes).as_bytes());
    }
    head.extend(body);
    head
}

/// Returns the name of a part that was just encoded, without verifying it.
pub fn name(bytes: &[u8]) -> Option<Hash> {
    let length = Head::length(bytes.first_chunk::<{ Head::FIXED }>()?).ok()?;
    bytes.get(..length).map(Hash::of)
}

/// Verifies a whole file, each block of a part or an attachment, and returns its name.
pub(crate) fn verify(bytes: &[u8]) -> Result<Hash, String> {
    attachment::name(bytes).map_or_else(|| verify_each(bytes, |_| None), Ok)
}

/// As [`verify`] of a part, and also fails if `objection` returns a problem with any recipient.
pub(super) fn verify_each(bytes: &[u8], objection: fn(&Recipient) -> Option<String>) -> Result<Hash, String> {
    let fixed = bytes.first_chunk::<{ Head::FIXED }>().ok_or("it is cut short")?;
    let head = bytes.get(..Head::length(fixed)?).ok_or("its head is cut")?;
    let name = Hash::of(head);
    let head = Head::read(name, head)?;
    let mut end = head.length;
    for (number, _) in (0..).zip(&head.blocks) {
        let (offset, length) = head.extent(number).ok_or("a block is missing")?;
        let start = usize::try_from(offset).map_err(|error| error.to_string())?;
        end = start + length;
        let recipients = head.block(number, bytes.get(start..end).ok_or("it is cut short")?)?;
        if let Some(why) = recipients.iter().find_map(objection) {
            return Err(why);
        }
    }
    if end == bytes.len() { Ok(name) } else { Err("something follows its last block".to_owned()) }
}
