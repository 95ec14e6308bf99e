//! The format of a journal file: a chain of frames, each with a header or a record.
//!
//! A frame is `length, !length, body, check`: two little-endian u16, the body in postcard, and a CRC-32C that continues
//! the checksum of the frame before. So a frame counts only if every frame before it is unchanged. The inverted length
//! separates a damaged length from a frame whose end was never written. The first frame is the [`Header`].

use reveille_ledger::command::RelayRefusal;
use reveille_ledger::ids::{ChunkKey, ClaimOwner, Fence};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the format. A file of another version proves nothing.
pub(super) const FORMAT: u16 = 3;
/// Maximum size of a body in bytes. A header, and a record with the longest text ([`super::super::outcome::clip`]), are
/// below it.
const BODY_BYTES_MAX: usize = 1_024;

/// The process that wrote the file, and the boot id of the machine at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: u16,
    pub(super) cluster: u128,
    pub(super) process: ClaimOwner,
    pub(super) boot: String,
}

/// One recipient of one claim: its slot, under the fencing token of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimedSlot {
    /// Chunk of the claim.
    pub chunk: ChunkKey,
    /// Fencing token of the claim.
    pub fence: Fence,
    /// Slot of the recipient in its chunk.
    pub slot: u16,
}

/// Step that the node is about to take for a recipient, or the answer of the relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JournalStep {
    /// The node is about to compose the email.
    Composing,
    /// The node is about to write the final dot. From here on the recipient is in doubt (P5).
    Handoff,
    /// The relay answered 250 to the final dot.
    Accepted,
    /// The relay refused the email.
    Refused(RelayRefusal),
    /// Composing has ended, and nothing was handed off yet. If the process crashes now, this recipient was not the
    /// cause (P12).
    Composed,
}

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The recipient that the step concerns.
    pub claimed_slot: ClaimedSlot,
    /// What the node is about to do, or what the relay answered.
    pub step: JournalStep,
}

/// Appends one frame to `out`. `chain` is the checksum before the frame; returns the checksum after it.
pub(super) fn write_frame<T: Serialize>(out: &mut Vec<u8>, chain: u32, body: &T) -> u32 {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    *out = postcard::to_extend(body, std::mem::take(out)).expect("plain data in memory can be encoded");
    let (prefix, body) = out[start..].split_at_mut(4);
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    prefix[..2].copy_from_slice(&length.to_le_bytes());
    prefix[2..].copy_from_slice(&(!length).to_le_bytes());
    let chain = crc32c::crc32c_append(crc32c::crc32c_append(chain, &length.to_le_bytes()), body);
    out.extend_from_slice(&chain.to_le_bytes());
    chain
}

/// Result of reading the next frame.
pub(super) enum Frame<'a> {
    /// A complete frame, the checksum after it, and the rest of the file.
    Whole { body: &'a [u8], chain: u32, rest: &'a [u8] },
    /// Nothing: the file ends after a complete frame.
    End,
    /// The file ends inside a frame, so its append did not return.
    Torn,
    /// A frame with a wrong length or checksum: the file was damaged.
    Damaged,
}

/// Reads the next frame.
pub(super) fn read_frame(bytes: &[u8], chain: u32) -> Frame<'_> {
    if bytes.is_empty() {
        return Frame::End;
    }
    let Some((prefix, after)) = bytes.split_first_chunk::<4>() else { return Frame::Torn };
    let [low, high, not_low, not_high] = *prefix;
    let length = u16::from_le_bytes([low, high]);
    if length != !u16::from_le_bytes([not_low, not_high]) || usize::from(length) > BODY_BYTES_MAX {
        return Frame::Damaged;
    }
    let Some((body, after)) = after.split_at_checked(usize::from(length)) else { return Frame::Torn };
    let Some((check, rest)) = after.split_first_chunk::<4>() else { return Frame::Torn };
    let expected = crc32c::crc32c_append(crc32c::crc32c_append(chain, &[low, high]), body);
    if u32::from_le_bytes(*check) != expected {
        return Frame::Damaged;
    }
    Frame::Whole { body, chain: expected, rest }
}

/// Decodes a body; `None` if it is not exactly one `T`.
pub(super) fn read_body<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}
