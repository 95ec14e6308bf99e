//! The journal: what a node is about to do for each recipient, written before it does it (P11).
//!
//! It is the second tier of evidence after the ledger. After `kill -9` it tells recipients past the gate from all
//! others ([`Reading`]), and names those that were being composed. After a power cut only the ledger counts. It
//! promises:
//! - One file an incarnation, meant to lie in memory (`/dev/shm`): a record costs one `write`, never a sync.
//! - [`Journal::append`] returned: the records survive this process. It failed: the act may not be done, and the node
//!   stops.
//! - One `begin` for each recipient of a claim (P5): a second one is refused here.
//! - Bounded: records of closed claims go when the file is rewritten.
//!
//! No other process reads it while its own lives (P10). Reading order: `record.rs`, `journaled_claims.rs`,
//! `reading.rs`.

mod folder;
mod journaled_claims;
mod reading;
mod record;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use reveille_ledger::ids::{ClaimOwner, Fence, RunId};
use reveille_raft::crash;

pub use folder::{Leftover, boot_id, delete, in_memory, leftovers};
pub use journaled_claims::JournaledClaims;
pub use reading::Reading;
pub use record::{Act, Place, Record, TEXT_BYTES_MAX};

use record::{FORMAT, Header, write_frame};

/// The file is written anew when it has grown to four times what it must hold, but not below this.
const REWRITE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// Whose journal it is: one life of one node of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOwner {
    /// The cluster.
    pub cluster: u128,
    /// The node and its life.
    pub process: ClaimOwner,
}

/// Why a journal could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum JournalFault {
    /// It could not be created: the node must not send.
    #[error("the journal {} cannot be created: {source}", path.display())]
    Create {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An append failed, now or before: the gate stays closed, and the process ends (P11).
    #[error("the journal is broken, nothing more is handed off: {0}")]
    Broken(String),
    /// A second `begin` for a recipient of a claim: a defect of the caller. Nothing was written, and the
    /// terminator must not be.
    #[error("a second hand-off of slot {} under fence {} was stopped", .0.slot, .0.fence)]
    BegunTwice(Place),
}

/// The journal of this incarnation.
///
/// - `chain` is the check after the last frame that was written whole.
/// - `claims` is what a reader would make of the file, without the claims that were forgotten.
/// - Once `broken` is set, nothing is written any more.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    header: Header,
    file: File,
    chain: u32,
    bytes: u64,
    rewrite_at: u64,
    claims: JournaledClaims,
    broken: Option<String>,
}

impl Journal {
    /// Creates the file of an incarnation in `folder`, which is made if need be. `boot` is [`boot_id`].
    ///
    /// # Errors
    /// [`JournalFault::Create`], also when the file exists: an incarnation is one life only.
    pub fn create(folder: &Path, owner: &JournalOwner, boot: &str) -> Result<Journal, JournalFault> {
        let path = folder::path(folder, owner.process);
        let header = Header { format: FORMAT, cluster: owner.cluster, process: owner.process, boot: boot.to_owned() };
        let create = || {
            folder::prepare(folder)?;
            begin_file(&path, &header)
        };
        match create() {
            Ok((file, chain, bytes)) => {
                let claims = JournaledClaims::default();
                Ok(Journal { path, header, file, chain, bytes, rewrite_at: REWRITE_BYTES_MIN, claims, broken: None })
            }
            Err(source) => Err(JournalFault::Create { path, source }),
        }
    }

    /// What the journal of `owner` in `folder` proves.
    pub fn read(folder: &Path, owner: &JournalOwner, boot: &str) -> Reading {
        reading::read(&folder::path(folder, owner.process), owner, boot)
    }

    /// Writes records, one or a group, with one `write`, before what they announce is done.
    ///
    /// # Errors
    /// [`JournalFault`]: nothing that was announced may be done.
    pub fn append(&mut self, records: &[Record]) -> Result<(), JournalFault> {
        if let Some(cause) = &self.broken {
            return Err(JournalFault::Broken(cause.clone()));
        }
        self.refuse_second_begin(records)?;
        crash::point("journal.before-append");
        let records: Vec<Record> = records.iter().cloned().map(Record::cut).collect();
        let mut frames = Vec::with_capacity(64 * records.len());
        let chain = records.iter().fold(self.chain, |chain, record| write_frame(&mut frames, chain, record));
        if let Err(error) = write_once(&mut self.file, &frames) {
            let cause = error.to_string();
            self.broken = Some(cause.clone());
            return Err(JournalFault::Broken(cause));
        }
        crash::point("journal.after-append");
        self.chain = chain;
        self.bytes += frames.len() as u64;
        for record in &records {
            self.claims.note(record);
        }
        if self.bytes >= self.rewrite_at {
            self.rewrite();
        }
        Ok(())
    }

    /// Page and chunk of a claim that it has records of.
    pub fn chunk(&self, fence: Fence) -> Option<(RunId, u32)> {
        self.claims.chunk(fence)
    }

    /// The claim is closed in the state that this node has applied: its records are needed no more.
    pub fn forget(&mut self, fence: Fence) {
        self.claims.forget(fence);
    }

    fn refuse_second_begin(&self, records: &[Record]) -> Result<(), JournalFault> {
        let begins = records.iter().filter(|record| record.act == Act::Begin).map(|record| record.place);
        let mut begins: Vec<Place> = begins.collect();
        begins.sort_unstable();
        let again = begins.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first());
        match again.or_else(|| begins.iter().find(|place| self.claims.has_begun(place))) {
            Some(place) => Err(JournalFault::BegunTwice(*place)),
            None => Ok(()),
        }
    }

    /// Replaces the file by one that has the open claims only. The new file takes the old one's name when
    /// it is whole, so that a reader finds one or the other. If it fails, the old one goes on and grows.
    fn rewrite(&mut self) {
        let next = folder::unfinished(&self.path);
        match self.write_anew(&next) {
            Ok((file, chain, bytes)) => {
                (self.file, self.chain, self.bytes) = (file, chain, bytes);
                self.rewrite_at = REWRITE_BYTES_MIN.max(4 * bytes);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the journal could not be written anew");
                // What is left over counts for nothing, and the next attempt replaces it.
                let _ = std::fs::remove_file(&next);
                self.rewrite_at = self.rewrite_at.saturating_mul(2);
            }
        }
    }

    fn write_anew(&self, next: &Path) -> io::Result<(File, u32, u64)> {
        let (mut file, chain, header_bytes) = begin_file(next, &self.header)?;
        let mut frames = Vec::new();
        let chain = self.claims.records().fold(chain, |chain, record| write_frame(&mut frames, chain, &record));
        file.write_all(&frames)?;
        std::fs::rename(next, &self.path)?;
        Ok((file, chain, header_bytes + frames.len() as u64))
    }
}

/// Creates a file that holds a header; the file, the check after it, and its length.
fn begin_file(path: &Path, header: &Header) -> io::Result<(File, u32, u64)> {
    // Names and answers of recipients stand in it: for its owner alone.
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    let mut frame = Vec::new();
    let chain = write_frame(&mut frame, 0, header);
    write_once(&mut file, &frame)?;
    Ok((file, chain, frame.len() as u64))
}

/// One `write` of all bytes. A short one is a failure: a second one would not be part of the same act.
fn write_once(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    loop {
        match file.write(bytes) {
            Ok(written) if written == bytes.len() => return Ok(()),
            Ok(written) => {
                let cause = format!("only {written} of {} bytes were written", bytes.len());
                return Err(io::Error::new(io::ErrorKind::WriteZero, cause));
            }
            // A signal came before the first byte.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
