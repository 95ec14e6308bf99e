//! Checks an uploaded audience before it is sealed: each recipient when its part comes, and all
//! of them together when the seal is asked for. So the promises of a sealed audience rest on no client (P20).

use reveille_ledger::address::Address;
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::content::{Recipient, Seal};

use super::{AudienceStore, Keys, PartFault};
use crate::compose::{VALUE_BYTES_MAX, control_in};

/// Why parts cannot become an audience.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AudienceFault {
    /// A part cannot be read here.
    #[error(transparent)]
    Part(#[from] PartFault),
    /// What was asked for is not what the parts hold.
    #[error("{0}")]
    Wrong(String),
    /// The node's disk does not take what is needed to find out.
    #[error("this node cannot look for recipients that are there twice: {0}")]
    Disk(String),
    /// The caller is gone.
    #[error("the caller is gone")]
    Left,
}

/// What is wrong with an uploaded recipient: addresses and values are those that a list would have.
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

impl AudienceStore {
    /// Do these parts hold what the seal says, and no recipient twice? Reads all of it; memory does not grow with it.
    /// `tell` hears how many parts were read, and says whether to go on. A mark a row of a large audience waits in the
    /// folder of the parts, when there is room for all of them.
    ///
    /// # Errors
    /// The first thing that speaks against it.
    pub fn check(&self, seal: &Seal, mut tell: impl FnMut(u32) -> bool) -> Result<(), AudienceFault> {
        let marks = Keys::bytes(seal.rows);
        if marks > 0 {
            // They lie beside the parts, and leave the log as much.
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
