//! Checks the segments of a running log, piece by piece: reads what was synced, and changes nothing.

use super::SECTOR_BYTES;
use super::disk::DiskFile;
use super::frame::{self, Header, VERSION};
use super::record::{Mismatch, mismatch};

/// Bytes that one piece has at least, unless the segment ends before.
const PIECE_BYTES: u64 = 1024 * 1024;

/// How far a segment is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedTo {
    /// Offset in bytes.
    pub offset: u64,
    next_batch: Option<u64>,
}

/// A piece of a file that is intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedPiece {
    /// Its size in bytes.
    pub bytes: u64,
    /// Where the next piece begins. `None`: the file ends.
    pub next: Option<CheckedTo>,
}

/// One segment, to be checked up to `end`.
pub(super) struct SyncedSegment<'a> {
    pub file: &'a dyn DiskFile,
    pub number: u64,
    pub end: u64,
}

impl SyncedSegment<'_> {
    /// Checks the batches of a piece from `from` on. Fails with the offset of the first bad batch.
    pub fn check_piece(&self, from: CheckedTo) -> Result<CheckedPiece, (u64, Mismatch)> {
        if from.offset == 0 {
            self.file.forget_cached();
        }
        let (until, mut checked) = (self.end.min(from.offset + PIECE_BYTES), from);
        while checked.offset < until {
            checked = self.check_batch(checked).map_err(|mismatch| (checked.offset, mismatch))?;
        }
        let next = Some(checked).filter(|checked| checked.offset < self.end);
        Ok(CheckedPiece { bytes: checked.offset - from.offset, next })
    }

    fn check_batch(&self, CheckedTo { offset, next_batch }: CheckedTo) -> Result<CheckedTo, Mismatch> {
        let header = Header::decode(&self.read(offset, SECTOR_BYTES)?);
        let header = header.ok_or_else(|| mismatch("the header of a batch", "bytes that are none"))?;
        let expected = next_batch.unwrap_or(header.batch);
        if (header.segment, header.batch, header.version) != (self.number, expected, VERSION) {
            let found = format!("batch {} of segment {}, version {}", header.batch, header.segment, header.version);
            return Err(mismatch(format!("batch {expected} of segment {}", self.number), found));
        }
        let frame = self.read(offset, header.frame_bytes())?;
        frame::decode(&header, &frame).map_err(|(_, mismatch)| mismatch)?;
        Ok(CheckedTo { offset: offset + frame.len() as u64, next_batch: Some(header.batch + 1) })
    }

    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, Mismatch> {
        let needed = || format!("{bytes} bytes");
        // Checked before the allocation: the length comes from the file.
        if offset + bytes as u64 > self.end {
            return Err(mismatch(needed(), format!("the end of the segment at byte {}", self.end)));
        }
        let mut buffer = vec![0; bytes];
        let read = self.file.read_at(offset, &mut buffer);
        read.map_err(|error| mismatch(needed(), error.to_string()))?;
        Ok(buffer)
    }
}
