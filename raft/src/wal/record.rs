//! Records of the log: their encoding, and their effect on the log's state.
//!
//! On disk: kind (u8), length of the payload (u32), CRC-32C over kind, length and payload (u32), payload;
//! little-endian. Small payloads are postcard. An entry is the postcard of its head followed by its raw bytes. The
//! order of fields and variants is the format: only append to it, and raise `frame::VERSION` for any other change.

use prost::bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Identity of an entry: its index and the leadership that proposed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPoint {
    /// Term of the leadership.
    pub term: u64,
    /// Id of the leader's node.
    pub leader: u64,
    /// Index of the entry.
    pub index: u64,
}

/// A vote: the leadership that this node supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteRecord {
    /// Term of the leadership.
    pub term: u64,
    /// Id of the leader's node.
    pub leader: u64,
    /// True if a quorum is known to have granted the vote.
    pub committed: bool,
}

/// Kind of an entry's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PayloadKind {
    /// Empty: the first entry of a leadership.
    Blank,
    /// A command of the application.
    Normal,
    /// A membership, in the encoding of [`crate::types`].
    Membership,
}

/// One entry of the Raft log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRecord {
    /// Identity of the entry.
    pub point: LogPoint,
    /// Kind of the payload.
    pub kind: PayloadKind,
    /// The payload, which the log does not read.
    pub bytes: Bytes,
}

/// State of the log after a prefix of the stream. Every segment begins with this state, so that older segments can be
/// removed.
///
/// - `last` is the last entry, or `purged` if there is none after it.
/// - `purged`, if any, is at or before `last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// The last vote.
    pub vote: Option<VoteRecord>,
    /// The last index known to be committed.
    pub committed: Option<LogPoint>,
    /// The last purged entry.
    pub purged: Option<LogPoint>,
    /// The last entry.
    pub last: Option<LogPoint>,
}

/// One record of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// State of the log at the start of a segment.
    Head(LogState),
    Vote(VoteRecord),
    Entry(EntryRecord),
    Committed(Option<LogPoint>),
    /// Drops the entries after this point. `None` drops all.
    Truncate(Option<LogPoint>),
    /// Drops the entries up to this point, inclusive.
    Purge(LogPoint),
}

/// Number of bytes of a record before its payload.
pub(super) const RECORD_HEAD_BYTES: usize = 9;

const HEAD: u8 = 1;
const VOTE: u8 = 2;
const ENTRY: u8 = 3;
const COMMITTED: u8 = 4;
const TRUNCATE: u8 = 5;
const PURGE: u8 = 6;

#[derive(Serialize, Deserialize)]
struct EntryHead {
    point: LogPoint,
    kind: PayloadKind,
}

/// Expected and actual content at one place of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub(super) struct Mismatch {
    pub expected: String,
    pub found: String,
}

pub(super) fn mismatch(expected: impl Into<String>, found: impl Into<String>) -> Mismatch {
    Mismatch { expected: expected.into(), found: found.into() }
}

impl Record {
    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
        let kind = match self {
            Record::Head(state) => put(out, HEAD, state),
            Record::Vote(vote) => put(out, VOTE, vote),
            Record::Entry(entry) => {
                let kind = put(out, ENTRY, &EntryHead { point: entry.point, kind: entry.kind });
                out.extend_from_slice(&entry.bytes);
                kind
            }
            Record::Committed(point) => put(out, COMMITTED, point),
            Record::Truncate(point) => put(out, TRUNCATE, point),
            Record::Purge(point) => put(out, PURGE, point),
        };
        if let Some((head, payload)) = out.get_mut(start..).and_then(|record| record.split_first_chunk_mut()) {
            *head = record_head(kind, payload);
        }
    }

    /// Decodes the record at the start of `bytes`. Returns it with its length in bytes.
    pub fn decode(bytes: &[u8]) -> Result<(Record, usize), Mismatch> {
        let short = || mismatch("a whole record", format!("{} bytes", bytes.len()));
        let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>().ok_or_else(short)?;
        let [kind, l0, l1, l2, l3, ..] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let payload = rest.get(..length).ok_or_else(|| {
            mismatch(format!("a record of {length} bytes"), format!("{} bytes to the end of its batch", rest.len()))
        })?;
        if record_head(kind, payload) != *head {
            return Err(mismatch("a record with a matching checksum", format!("another one over {length} bytes")));
        }
        let record = Record::from_payload(kind, payload)
            .ok_or_else(|| mismatch("a record of a known kind and shape", format!("kind {kind}, {length} bytes")))?;
        Ok((record, RECORD_HEAD_BYTES + length))
    }

    fn from_payload(kind: u8, payload: &[u8]) -> Option<Record> {
        match kind {
            HEAD => whole(payload).map(Record::Head),
            VOTE => whole(payload).map(Record::Vote),
            ENTRY => {
                let (head, bytes) = postcard::take_from_bytes::<EntryHead>(payload).ok()?;
                let bytes = Bytes::copy_from_slice(bytes);
                Some(Record::Entry(EntryRecord { point: head.point, kind: head.kind, bytes }))
            }
            COMMITTED => whole(payload).map(Record::Committed),
            TRUNCATE => whole(payload).map(Record::Truncate),
            PURGE => whole(payload).map(Record::Purge),
            _ => None,
        }
    }
}

fn put<T: Serialize>(out: &mut Vec<u8>, kind: u8, value: &T) -> u8 {
    // Serialising plain integers into memory cannot fail; without the bytes the record would not decode.
    if let Ok(bytes) = postcard::to_stdvec(value) {
        out.extend_from_slice(&bytes);
    }
    kind
}

fn whole<T: for<'de> Deserialize<'de>>(payload: &[u8]) -> Option<T> {
    postcard::take_from_bytes(payload).ok().and_then(|(value, rest)| rest.is_empty().then_some(value))
}

fn record_head(kind: u8, payload: &[u8]) -> [u8; RECORD_HEAD_BYTES] {
    // Payloads are bounded by WAL_PAYLOAD_BYTES_MAX, far below 4 GiB.
    let [l0, l1, l2, l3] = (payload.len() as u32).to_le_bytes();
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&[kind, l0, l1, l2, l3]), payload);
    let [c0, c1, c2, c3] = checksum.to_le_bytes();
    [kind, l0, l1, l2, l3, c0, c1, c2, c3]
}

impl LogState {
    /// Applies a record. The submitter, the writer and the opening scan use this same rule. Fails if the record
    /// contradicts the state.
    pub(super) fn apply(&mut self, record: &Record) -> Result<(), Mismatch> {
        match record {
            Record::Head(state) if state == self => {}
            Record::Head(state) => return Err(mismatch(format!("a head that says {self:?}"), format!("{state:?}"))),
            Record::Vote(vote) => self.vote = Some(*vote),
            Record::Entry(entry) => self.append(entry.point)?,
            Record::Committed(point) => self.committed = *point,
            Record::Truncate(point) => self.truncate(*point),
            Record::Purge(point) => self.purge(*point),
        }
        Ok(())
    }

    /// Appends an entry. An empty log may begin at any index; after that the indexes are consecutive.
    fn append(&mut self, point: LogPoint) -> Result<(), Mismatch> {
        if let Some(last) = self.last
            && last.index.checked_add(1) != Some(point.index)
        {
            return Err(mismatch(format!("an entry behind index {}", last.index), format!("index {}", point.index)));
        }
        self.last = Some(point);
        Ok(())
    }

    fn truncate(&mut self, to: Option<LogPoint>) {
        let to = match (to, self.purged) {
            (Some(to), Some(purged)) if to.index <= purged.index => Some(purged),
            (None, purged) => purged,
            (to, _) => to,
        };
        if index_of(to) < index_of(self.last) {
            self.last = to;
        }
    }

    fn purge(&mut self, upto: LogPoint) {
        if index_of(self.purged) >= Some(upto.index) {
            return;
        }
        self.purged = Some(upto);
        if index_of(self.last) <= Some(upto.index) {
            self.last = Some(upto);
        }
    }
}

/// Returns the index of a point. `None` orders before every index.
pub(super) fn index_of(point: Option<LogPoint>) -> Option<u64> {
    point.map(|point| point.index)
}
