//! Reads a record file: one JSON line for each accept, in the order of acceptance. It is used to compare received
//! emails with a ledger, and by a sink that continues a file.
//!
//! A crash can only leave an incomplete last line, and no client got a `250` for it. That line is left out and
//! reported. Damage anywhere else is an error, because an accept may be missing and no verdict is possible.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::accepted::Accepted;

/// The content of a record file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFile {
    /// The accepts, in the order of the file, duplicates included.
    pub accepts: Vec<Accepted>,
    /// The incomplete last line; `None` if the last line is complete.
    pub torn: Option<TornTail>,
}

/// A last line that was not written completely. Its email was not answered with `250`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    /// Offset of its beginning, in bytes from the start of the file.
    pub offset: u64,
    /// Length of the line in bytes.
    pub bytes: u64,
}

impl RecordFile {
    /// Reads a whole file into memory.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged before its last line (`InvalidData`).
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut accepts = Vec::new();
        let torn = Self::visit(path.as_ref(), |accept| accepts.push(accept))?;
        Ok(Self { accepts, torn })
    }

    /// Reads a file and calls `each` for each accept. Returns the incomplete last line, if any.
    pub(crate) fn visit(path: &Path, mut each: impl FnMut(Accepted)) -> io::Result<Option<TornTail>> {
        let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
        let (mut line, mut bytes, mut offset) = (0, Vec::new(), 0_u64);
        loop {
            bytes.clear();
            let length = file.read_until(b'\n', &mut bytes)? as u64;
            if length == 0 {
                return Ok(None);
            }
            line += 1;
            let torn = Some(TornTail { offset, bytes: length });
            let Some(text) = bytes.strip_suffix(b"\n") else { return Ok(torn) };
            match serde_json::from_slice(text) {
                Ok(accept) => each(accept),
                Err(_) if file.fill_buf()?.is_empty() => return Ok(torn),
                Err(error) => {
                    let path = path.display();
                    let what = format!("the record {path} is damaged in line {line}, at byte {offset}: {error}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
            offset += length;
        }
    }
}
