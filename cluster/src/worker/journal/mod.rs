//! The journal: a node writes to it what it is about to do for each recipient, before it does it (P11).
//!
//! The ledger is the first source of evidence, the journal the second. After `kill -9` it separates recipients past the
//! gate from all others ([`Reading`]), and names those that were being composed. After a power cut only the
//! ledger counts.
//! - One file for each incarnation, meant for memory (`/dev/shm`): a record costs at most one `write`, never a sync.
//! - When [`Journal::append`] returns `Ok`, the record survives this process. After an error the node must not
//!   take the step, and stops.
//! - One `handoff` for each recipient of a claim (P5). A second `handoff` is refused here.
//! - Bounded: a rewrite of the file drops the records of closed claims.
//!
//! No other process reads a journal while its owner runs (P10). Read `record.rs`, `journaled_claims.rs`, `reading.rs`.

mod folder;
mod journaled_claims;
mod reading;
mod record;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use reveille_ledger::ids::{ChunkKey, ClaimOwner, Fence};
use reveille_raft::crash;

pub use folder::{boot_id, delete, in_memory, leftovers};
pub use journaled_claims::JournaledClaims;
pub use reading::Reading;
pub use record::{ClaimedSlot, JournalStep, Record};

use record::{FORMAT, Header, write_frame};

/// Minimum size at which the file is rewritten. Above it the file is rewritten when it has four times the size that the
/// last rewrite left.
const REWRITE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// The process that writes a journal: one incarnation of one node of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOwner {
    /// Id of the cluster.
    pub cluster: u128,
    /// The node and its incarnation.
    pub process: ClaimOwner,
}

/// Reason why a journal operation failed.
#[derive(Debug, thiserror::Error)]
pub enum JournalFault {
    /// This append or an earlier one failed. The gate stays closed, and the process ends (P11).
    #[error("the journal is broken, nothing more is handed off: {0}")]
    Broken(String),
    /// A second `handoff` for a recipient of a claim, which is a bug of the caller. Nothing was written, and the caller
    /// must not write the final dot.
    #[error("a second handoff of slot {} under fence {} was stopped", .0.slot, .0.fence)]
    HandedOffTwice(ClaimedSlot),
}

/// The journal of this incarnation.
///
/// - `chain` is the checksum after the last frame.
/// - `unwritten` are frames that the next write begins with. `chain` and `claims` include them.
/// - `claims` is what a reader would read from the file, without the claims that were forgotten.
/// - Once `broken` is set, nothing more is written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    header: Header,
    file: File,
    chain: u32,
    unwritten: Vec<u8>,
    bytes: u64,
    rewrite_at: u64,
    claims: JournaledClaims,
    broken: Option<String>,
}

impl Journal {
    /// Creates the file of an incarnation in `folder`, and the folder if it is missing. `boot` is the [`boot_id`].
    ///
    /// # Errors
    /// [`JournalFault::Broken`] if the file cannot be created. An existing file is an error too, since each incarnation
    /// runs only once.
    pub fn create(folder: &Path, owner: &JournalOwner, boot: &str) -> Result<Journal, JournalFault> {
        let path = folder::path(folder, owner.process);
        let header = Header { format: FORMAT, cluster: owner.cluster, process: owner.process, boot: boot.to_owned() };
        let create = || {
            folder::prepare(folder)?;
            create_file(&path, &header)
        };
        match create() {
            Ok((file, chain, bytes)) => {
                let (unwritten, claims, rewrite_at) = (Vec::new(), JournaledClaims::default(), REWRITE_BYTES_MIN);
                Ok(Journal { path, header, file, chain, unwritten, bytes, rewrite_at, claims, broken: None })
            }
            Err(error) => Err(JournalFault::Broken(format!("{} cannot be created: {error}", path.display()))),
        }
    }

    /// Reads the journal of `owner` in `folder` and returns what it proves.
    pub fn read(folder: &Path, owner: &JournalOwner, boot: &str) -> Reading {
        reading::read(&folder::path(folder, owner.process), owner, boot)
    }

    /// Writes a record with one `write`. The caller takes the announced step afterwards.
    ///
    /// # Errors
    /// [`JournalFault`]: the announced step must not be taken.
    pub fn append(&mut self, record: &Record) -> Result<(), JournalFault> {
        if let Some(cause) = &self.broken {
            return Err(JournalFault::Broken(cause.clone()));
        }
        if record.step == JournalStep::Handoff && self.claims.has_handoff(&record.claimed_slot) {
            return Err(JournalFault::HandedOffTwice(record.claimed_slot));
        }
        crash::point("journal.before-append");
        self.append_with_next(record);
        if let Err(error) = write_once(&mut self.file, &self.unwritten) {
            let cause = error.to_string();
            self.broken = Some(cause.clone());
            return Err(JournalFault::Broken(cause));
        }
        crash::point("journal.after-append");
        self.bytes += self.unwritten.len() as u64;
        self.unwritten.clear();
        if self.bytes >= self.rewrite_at {
            self.rewrite();
        }
        Ok(())
    }

    /// Adds a record that the next [`Journal::append`] writes together with its own. A crash before it loses the
    /// record, which must be safe.
    pub fn append_with_next(&mut self, record: &Record) {
        self.chain = write_frame(&mut self.unwritten, self.chain, record);
        self.claims.append(record);
    }

    /// Returns the page and chunk of a claim; `None` if the journal has no records of it.
    pub fn chunk(&self, fence: Fence) -> Option<ChunkKey> {
        self.claims.chunk(fence)
    }

    /// Forgets a claim, whose records the next rewrite drops. The caller has seen that it is closed in the applied
    /// state.
    pub fn forget(&mut self, fence: Fence) {
        self.claims.forget(fence);
    }

    /// Replaces the file by one with the open claims only. The new file is complete before it takes the old one's name,
    /// so a reader finds one of the two. If the rewrite fails, the old file stays in use and grows.
    fn rewrite(&mut self) {
        let next = folder::unfinished(&self.path);
        match self.write_anew(&next) {
            Ok((file, chain, bytes)) => {
                (self.file, self.chain, self.bytes) = (file, chain, bytes);
                self.rewrite_at = REWRITE_BYTES_MIN.max(4 * bytes);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the journal could not be written anew");
                // A partial file is never read, and the next attempt replaces it.
                let _ = std::fs::remove_file(&next);
                self.rewrite_at = self.rewrite_at.saturating_mul(2);
            }
        }
    }

    fn write_anew(&self, next: &Path) -> io::Result<(File, u32, u64)> {
        let (mut file, chain, header_bytes) = create_file(next, &self.header)?;
        let mut frames = Vec::new();
        let chain = self.claims.records().fold(chain, |chain, record| write_frame(&mut frames, chain, &record));
        file.write_all(&frames)?;
        std::fs::rename(next, &self.path)?;
        Ok((file, chain, header_bytes + frames.len() as u64))
    }
}

/// Creates a file with a header. Returns the file, the checksum after the header, and the length of the header in
/// bytes.
fn create_file(path: &Path, header: &Header) -> io::Result<(File, u32, u64)> {
    // Relay replies in the file may contain addresses, so only its owner may read it.
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    let mut frame = Vec::new();
    let chain = write_frame(&mut frame, 0, header);
    write_once(&mut file, &frame)?;
    Ok((file, chain, frame.len() as u64))
}

/// Writes all bytes with one `write`. A short write is an error, because a second `write` would not be part of the same
/// append.
fn write_once(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    loop {
        match file.write(bytes) {
            Ok(written) if written == bytes.len() => return Ok(()),
            Ok(written) => {
                let cause = format!("only {written} of {} bytes were written", bytes.len());
                return Err(io::Error::new(io::ErrorKind::WriteZero, cause));
            }
            // A signal interrupted the call before the first byte was written.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
