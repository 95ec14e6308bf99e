//! Reads what the journal of an earlier process proves.
//!
//! Called at start, once `NodeUp` is applied, for each earlier incarnation of this node with open claims or a leftover
//! file (P10). The file counts if it names this incarnation and this boot of the machine, and its chain is unbroken.
//! Then every record counts, **and so does the absence of a record** (P11). Otherwise the file proves nothing, and all
//! recipients that are still claimed are in doubt.
//!
//! **Truncated end.** A process that is killed inside `write` leaves at most one unfinished frame. Its append did not
//! return, so its step was not taken, and the frame is dropped. Any other deviation is damage, and nothing counts.
//! **Power cut.** A file in memory is gone, and a file on a disk may have any content. The header carries the kernel's
//! boot id, so a file from before a reboot proves nothing.

use std::io;
use std::path::Path;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{ClaimOutcome, OutcomeSource};
use reveille_ledger::ids::{ChunkKey, Fence};
use reveille_ledger::injected_bugs::{self, Bug};

use super::JournalOwner;
use super::journaled_claims::JournaledClaims;
use super::record::{FORMAT, Frame, Header, Record, read_body, read_frame};

/// Proof that a journal file gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The file is intact. A recipient with a record reached that step; a recipient without one reached none.
    Whole(JournaledClaims),
    /// The file proves nothing, for this reason.
    Nothing(String),
}

impl Reading {
    /// Returns the outcome of an open claim whose recipients `slots` are still claimed (P10, P11). Without a journal
    /// all of them are in doubt.
    pub fn outcome(&self, chunk: ChunkKey, fence: Fence, slots: &Bitmap) -> ClaimOutcome {
        match self {
            Reading::Whole(claims) => claims.outcome(chunk, fence, slots),
            Reading::Nothing(_) => ClaimOutcome {
                source: OutcomeSource::NoJournal,
                in_doubt: slots.clone(),
                ..ClaimOutcome::empty(chunk, fence)
            },
        }
    }
}

/// Reads the journal at `path`. It proves nothing unless `owner` wrote it during this `boot` of the machine.
pub(super) fn read(path: &Path, owner: &JournalOwner, boot: &str) -> Reading {
    match std::fs::read(path) {
        Ok(bytes) => prove(&bytes, owner, boot).map_or_else(Reading::Nothing, Reading::Whole),
        Err(error) if error.kind() == io::ErrorKind::NotFound && injected_bugs::is(Bug::TrustLostJournal) => {
            Reading::Whole(JournaledClaims::default())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Nothing("there is no journal".to_owned()),
        Err(error) => Reading::Nothing(format!("the journal cannot be read: {error}")),
    }
}

/// Returns what the bytes of a file prove, or the reason why they prove nothing.
pub(super) fn prove(bytes: &[u8], owner: &JournalOwner, boot: &str) -> Result<JournaledClaims, String> {
    let Frame::Whole { body, mut chain, mut rest } = read_frame(bytes, 0) else {
        return Err("the journal has no header".to_owned());
    };
    check_header(read_body(body), owner, boot)?;
    let mut claims = JournaledClaims::default();
    loop {
        match read_frame(rest, chain) {
            Frame::Whole { body, chain: next, rest: after } => {
                let record: Record = read_body(body).ok_or("the journal holds a record of another build")?;
                claims.append(&record);
                (chain, rest) = (next, after);
            }
            Frame::End | Frame::Torn => return Ok(claims),
            Frame::Damaged => return Err(format!("the journal is damaged at byte {}", bytes.len() - rest.len())),
        }
    }
}

fn check_header(header: Option<Header>, owner: &JournalOwner, boot: &str) -> Result<(), String> {
    let header = header.filter(|header| header.format == FORMAT).ok_or("the journal is of another build")?;
    if header.cluster != owner.cluster || header.process != owner.process {
        return Err(format!("the journal belongs to {} of cluster {:x}", header.process, header.cluster));
    }
    if header.boot != boot {
        return Err("the machine was started anew since the journal was written".to_owned());
    }
    Ok(())
}
