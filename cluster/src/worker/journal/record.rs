//! What a journal's file holds: frames in a chain, and the records in them.
//!
//! A frame is `length, !length, body, check`: two little-endian u16, the body in postcard, a CRC-32C that
//! continues the former frame's. So a frame counts only if every frame before it stands there unchanged,
//! and a length that was damaged cannot pass for a frame whose end was never written. The first frame is
//! the [`Header`].

use reveille_ledger::command::Refused;
use reveille_ledger::ids::{ClaimOwner, Fence, RunId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the format; a file of another one proves nothing.
pub(super) const FORMAT: u16 = 3;
/// Bytes of an answer's text that are kept: enough for an operator to recognise it.
pub const TEXT_BYTES_MAX: usize = 200;
/// Bytes of one body: a header or a record with all of its text is well below.
const BODY_BYTES_MAX: usize = 1_024;

/// Whose file it is, and in which life of the machine it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: u16,
    pub(super) cluster: u128,
    pub(super) process: ClaimOwner,
    pub(super) boot: String,
}

/// One recipient of one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// The claim.
    pub fence: Fence,
    /// The recipient's slot in its chunk.
    pub slot: u16,
}

/// What is about to be done for a recipient, or what was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Its mail is about to be composed.
    Open,
    /// The terminator is about to be written: doubt begins (P5).
    Begin,
    /// The relay answered 250 to the terminator.
    Accepted,
    /// The relay refused it. The journal keeps the first [`TEXT_BYTES_MAX`] bytes of the text.
    Refused(Refused),
    /// Composing has ended, and nothing was handed off yet: if the process dies now, it was not this recipient that
    /// killed it (P12).
    Composed,
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Whose.
    pub place: Place,
    /// What.
    pub act: Act,
}

impl Record {
    /// The record as it is kept: its text cut at a character's edge.
    pub(super) fn cut(mut self) -> Record {
        if let Act::Refused(refused) = &mut self.act {
            let edge = refused.text.floor_char_boundary(TEXT_BYTES_MAX);
            refused.text.truncate(edge);
        }
        self
    }
}

/// Appends one frame to `out`; the check of the chain after it. `chain` is the check before it.
pub(super) fn write_frame<T: Serialize>(out: &mut Vec<u8>, chain: u32, body: &T) -> u32 {
    // Plain data in memory, and bounded: postcard has nothing to refuse there.
    let body = postcard::to_stdvec(body).unwrap_or_default();
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(&body);
    let chain = crc32c::crc32c_append(crc32c::crc32c_append(chain, &length.to_le_bytes()), &body);
    out.extend_from_slice(&chain.to_le_bytes());
    chain
}

/// What stands next in a file.
pub(super) enum Frame<'a> {
    /// A whole frame, the check after it, and what follows.
    Whole { body: &'a [u8], chain: u32, rest: &'a [u8] },
    /// Nothing: the file ends between two frames.
    End,
    /// The file ends inside this frame: its append did not return.
    Torn,
    /// Bytes that were never written so.
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

/// Reads a whole body; none when it is not exactly a `T`.
pub(super) fn read_body<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}
