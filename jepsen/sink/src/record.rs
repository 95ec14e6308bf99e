//! Reads a record file: one JSON line for each accept, in the order in which they were accepted. Used to compare
//! what arrived with what a ledger says, and by a sink that continues a file.
//!
//! A line that a crash tore is the last one, and no client was ever answered `250` for it: it is left out, and said
//! so. Damage anywhere else is an error, because then an accept may be missing and no verdict is possible.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::accepted::Accepted;

/// Everything that a record file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFile {
    /// The accepts, in the order of the file, duplicates included.
    pub accepts: Vec<Accepted>,
    /// The torn last line, when there is one.
    pub torn: Option<TornTail>,
}

/// A last line that was not written to its end. Its mail was not answered with `250`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    /// Where it begins, in bytes from the start of the file.
    pub offset: u64,
    /// How many bytes of it there are.
    pub bytes: u64,
}

/// Why a record file gives no truth.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("the record {path} cannot be read", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line that is not the last one is no accept.
    #[error("the record {path} is damaged in line {line}, at byte {offset}", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Where the line begins, in bytes.
        offset: u64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl RecordFile {
    /// Reads a whole file into memory.
    ///
    /// # Errors
    /// [`RecordError`]; a torn last line is none.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RecordError> {
        let mut accepts = Vec::new();
        let torn = Self::visit(path, |accept| accepts.push(accept))?;
        Ok(Self { accepts, torn })
    }

    /// Reads a file accept by accept, for records that are larger than memory; answers with the torn last line.
    ///
    /// # Errors
    /// [`RecordError`]; a torn last line is none. What was visited before stays visited.
    pub fn visit(path: impl AsRef<Path>, mut each: impl FnMut(Accepted)) -> Result<Option<TornTail>, RecordError> {
        let path = path.as_ref();
        let unreadable = |source| RecordError::Unreadable { path: path.to_owned(), source };
        let mut file = BufReader::with_capacity(1 << 16, File::open(path).map_err(unreadable)?);
        let (mut line, mut bytes, mut offset) = (0, Vec::new(), 0_u64);
        loop {
            bytes.clear();
            let length = u64::try_from(file.read_until(b'\n', &mut bytes).map_err(unreadable)?).unwrap_or(u64::MAX);
            if length == 0 {
                return Ok(None);
            }
            line += 1;
            let torn = Some(TornTail { offset, bytes: length });
            let Some(text) = bytes.strip_suffix(b"\n") else { return Ok(torn) };
            match serde_json::from_slice(text) {
                Ok(accept) => each(accept),
                Err(_) if file.fill_buf().map_err(unreadable)?.is_empty() => return Ok(torn),
                Err(source) => return Err(RecordError::Damaged { path: path.to_owned(), line, offset, source }),
            }
            offset += length;
        }
    }
}
