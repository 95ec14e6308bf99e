//! Checks an uploaded audience before it is sealed: each recipient when its part arrives, and all of them together when
//! the seal is requested. So the guarantees of a sealed audience do not depend on the client (P20).

use reveille_ledger::address::Address;
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::{Recipient, Seal};

use super::{FileStore, FileStoreError, Keys};
use crate::compose::{VALUE_BYTES_MAX, control_in};

/// Reason why parts cannot become an audience.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AudienceFault {
    /// This node cannot read a part.
    #[error(transparent)]
    Part(#[from] FileStoreError),
    /// The parts do not match the seal.
    #[error("{0}")]
    Wrong(String),
    /// The disk of this node has no space for the check, or failed.
    #[error("this node cannot look for recipients that are there twice: {0}")]
    Disk(String),
    /// The caller stopped waiting.
    #[error("the caller is gone")]
    Left,
}

/// Returns what is wrong with an uploaded recipient, if anything. The rules are those for the recipients of a
/// schedule's list.
pub(super) fn objection(recipient: &Recipient) -> Option<String> {
    let address = match Address::parse(&recipient.address) {
        Ok(address) => address,
        Err(error) => return Some(error.to_string()),
    };
    if address.as_given() != recipient.address {
        return Some(format!("{:?} has blanks around it", recipient.address));
    }
    if address.key() != recipient.key {
        return Some(format!("{:?} is not the key of {:?}", recipient.key, recipient.address));
    }
    recipient.values.iter().zip(1..).find_map(|(value, number)| {
        let why = match value.len() > VALUE_BYTES_MAX {
            true => Some(format!("is longer than {VALUE_BYTES_MAX} bytes")),
            false => control_in(value),
        };
        why.map(|why| format!("value {number} of {} {why}", recipient.address))
    })
}

impl FileStore {
    /// Checks that the parts match the seal and contain no recipient twice. Reads every part with bounded memory.
    /// `tell` receives the number of parts read, and returns false to end the check. For a large audience it writes a
    /// hash of each recipient to the parts folder, if there is space for all of them.
    ///
    /// # Errors
    /// Returns the first problem.
    pub fn check(&self, seal: &Seal, mut tell: impl FnMut(u32) -> bool) -> Result<(), AudienceFault> {
        let marks = Keys::bytes(seal.rows);
        if marks > 0 {
            // The marks are on the volume of the parts, and must leave the log the same space.
            self.room_for(marks).map_err(|error| AudienceFault::Disk(error.to_string()))?;
        }
        let mut keys = Keys::new(self.folder.clone());
        let mut left = seal.rows;
        for (number, part) in (1..).zip(&seal.parts) {
            let rows = left.min(CHUNK);
            left -= rows;
            let mut found = 0;
            let mut wrong = None;
            self.each(*part, |recipient| {
                found += 1;
                if recipient.values.len() != seal.columns.len() && wrong.is_none() {
                    let (has, columns) = (recipient.values.len(), seal.columns.len());
                    let message = format!("{} has {has} values for {columns} columns", recipient.address);
                    wrong = Some(AudienceFault::Wrong(message));
                }
                if let Err(error) = keys.push(&recipient.key) {
                    wrong = Some(AudienceFault::Disk(error.to_string()));
                }
            })?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            if found != rows {
                return Err(AudienceFault::Wrong(format!("part {number} has {found} recipients, not {rows}")));
            }
            if !tell(number) {
                return Err(AudienceFault::Left);
            }
        }
        let repeats = keys.repeats().map_err(|error| AudienceFault::Disk(error.to_string()))?;
        match repeats.first() {
            None => Ok(()),
            Some((first, again)) => {
                let message = format!("recipients {first} and {again} are one by their address; leave one out");
                Err(AudienceFault::Wrong(message))
            }
        }
    }
}
