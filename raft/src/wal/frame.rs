//! Format of a batch on disk: a header of 64 bytes, the records, and zeros up to the next sector.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..8 | magic |
//! | 8..12 | format version |
//! | 12..16 | length of the records in bytes |
//! | 16..24 | identity of the node |
//! | 24..32 | number of the segment |
//! | 32..40 | number of the batch, counted over all segments |
//! | 40..48 | offset in this segment up to which everything was synced before this batch was written |
//! | 48..52 | number of the batch's sectors whose content is all zero |
//! | 52..56 | number of records |
//! | 56..60 | zero |
//! | 60..64 | CRC-32C of bytes 0..60 |
//!
//! These fields prove torn writes. A sector belongs to one batch only. The header counts the sectors whose content is
//! all zero, so an additional zero sector never reached the disk.

use super::SECTOR_BYTES;
use super::record::{Mismatch, Record, mismatch};

pub(super) const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"REVEILLE";

/// Header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub version: u32,
    pub body_bytes: u32,
    pub identity: u64,
    pub segment: u64,
    pub batch: u64,
    /// Offset up to which everything in this segment was synced before this batch was written.
    pub synced: u64,
    pub zero_sectors: u32,
    pub records: u32,
}

impl Header {
    /// Returns the size of the whole frame in bytes, padding included.
    pub fn frame_bytes(&self) -> usize {
        (HEADER_BYTES + self.body_bytes as usize).next_multiple_of(SECTOR_BYTES)
    }

    /// Reads a header. `None` if its checksum or its magic is wrong.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (covered, checksum) = header.split_last_chunk::<4>()?;
        if !covered.starts_with(&MAGIC) || crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut fields = Fields(covered.get(MAGIC.len()..)?);
        Some(Header {
            version: fields.u32()?,
            body_bytes: fields.u32()?,
            identity: fields.u64()?,
            segment: fields.u64()?,
            batch: fields.u64()?,
            synced: fields.u64()?,
            zero_sectors: fields.u32()?,
            records: fields.u32()?,
        })
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.body_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.identity.to_le_bytes());
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&self.batch.to_le_bytes());
        bytes.extend_from_slice(&self.synced.to_le_bytes());
        bytes.extend_from_slice(&self.zero_sectors.to_le_bytes());
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.try_into().unwrap_or([0; HEADER_BYTES])
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*value))
    }

    fn u64(&mut self) -> Option<u64> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*value))
    }
}

/// Position of a batch in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchPosition {
    pub identity: u64,
    pub segment: u64,
    pub batch: u64,
    pub synced: u64,
}

/// Offset and length of a record in its frame, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordSpan {
    pub offset: usize,
    pub length: usize,
}

/// Writes a frame into `frame`, which is cleared first. Returns the span of each record.
pub(super) fn encode<'r>(
    position: BatchPosition,
    records: impl IntoIterator<Item = &'r Record>,
    frame: &mut Vec<u8>,
) -> Vec<RecordSpan> {
    frame.clear();
    frame.resize(HEADER_BYTES, 0);
    let mut spans = Vec::new();
    for record in records {
        let offset = frame.len();
        record.encode(frame);
        spans.push(RecordSpan { offset, length: frame.len() - offset });
    }
    // QUEUE_BYTES_MAX limits a batch and its number of records, far below 2^32.
    let body_bytes = (frame.len() - HEADER_BYTES) as u32;
    frame.resize(frame.len().next_multiple_of(SECTOR_BYTES), 0);
    let BatchPosition { identity, segment, batch, synced } = position;
    let mut header = Header {
        version: VERSION,
        body_bytes,
        identity,
        segment,
        batch,
        synced,
        zero_sectors: 0,
        records: spans.len() as u32,
    };
    put_header(frame, &header);
    header.zero_sectors = zero_sectors(frame);
    put_header(frame, &header);
    spans
}

fn put_header(frame: &mut [u8], header: &Header) {
    if let Some(location) = frame.first_chunk_mut::<HEADER_BYTES>() {
        *location = header.encode();
    }
}

/// Reads all records of a frame whose header is `header`, each with its span. Fails with the offset of the first
/// mismatch.
pub(super) fn decode(header: &Header, frame: &[u8]) -> Result<Vec<(Record, RecordSpan)>, (usize, Mismatch)> {
    let end = HEADER_BYTES + header.body_bytes as usize;
    let mut offset = HEADER_BYTES;
    let mut records = Vec::new();
    while offset < end {
        let rest = frame.get(offset..end).unwrap_or_default();
        let (record, length) = Record::decode(rest).map_err(|mismatch| (offset, mismatch))?;
        records.push((record, RecordSpan { offset, length }));
        offset += length;
    }
    if records.len() != header.records as usize {
        return Err((0, mismatch(format!("{} records", header.records), format!("{}", records.len()))));
    }
    let padding = frame.get(end..).unwrap_or_default();
    match padding.iter().position(|byte| *byte != 0) {
        Some(location) => Err((end + location, mismatch("zeros to the end of the sector", "another byte"))),
        None => Ok(records),
    }
}

/// Returns the number of whole sectors in `bytes` that are all zero.
pub(super) fn zero_sectors(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(SECTOR_BYTES).filter(|sector| is_zero(sector)).count() as u32
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::{EntryRecord, LogPoint, PayloadKind};
    use prost::bytes::Bytes;

    fn entry(index: u64, payload: Vec<u8>) -> Record {
        let point = LogPoint { term: 3, leader: 9, index };
        Record::Entry(EntryRecord { point, kind: PayloadKind::Normal, bytes: Bytes::from(payload) })
    }

    fn framed(records: &[Record]) -> Vec<u8> {
        let mut frame = Vec::new();
        encode(BatchPosition { identity: 1, segment: 2, batch: 3, synced: 1024 }, records, &mut frame);
        frame
    }

    #[test]
    fn batch_is_read_as_it_was_written() {
        let records = [entry(1, vec![7; 700]), Record::Committed(None), entry(2, vec![])];
        let frame = framed(&records);
        let header = Header::decode(&frame).expect("a header");
        assert_eq!(frame.len(), header.frame_bytes());
        assert_eq!((header.identity, header.segment, header.batch, header.synced), (1, 2, 3, 1024));
        let decoded = decode(&header, &frame).expect("whole").into_iter().map(|(record, _)| record);
        assert_eq!(decoded.collect::<Vec<_>>(), records);
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let frame = framed(&[entry(1, vec![7; 300]), Record::Purge(LogPoint { term: 1, leader: 2, index: 3 })]);
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let seen = Header::decode(&damaged).is_none_or(|header| decode(&header, &damaged).is_err());
            assert!(seen, "bit {bit} went unseen");
        }
    }

    #[test]
    fn sectors_with_zero_content_are_counted() {
        let frame = framed(&[entry(1, vec![0; 5000])]);
        let header = Header::decode(&frame).expect("a header");
        assert_eq!(header.zero_sectors, zero_sectors(&frame));
        assert!(header.zero_sectors >= 8);
    }
}
