//! Commands about claims: what is claimed, and its outcome.

use serde::{Deserialize, Serialize};

use crate::model::Refused;

use crate::model::{Bitmap, ClaimOwner, Fence, OutcomeSource, RelayReply, ReleaseReason, RunId, Unsendable};

/// One slice for one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// The recipients asked for, at most [`Limits::slice`](crate::model::Limits::slice).
    pub slice: Bitmap,
    /// Who works it.
    pub owner: ClaimOwner,
}

/// What became of recipients of one row. A recipient that stands in none of the sets stays in the row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimOutcome {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// The row.
    pub fence: Fence,
    /// Who says so.
    pub source: OutcomeSource,
    /// Answered 250 to the final dot.
    pub accepted: Bitmap,
    /// Definitely not handed off, and why: back, or what the run now demands. Who was being prepared when the
    /// owner died is named as such: only recovery says so, from a journal that proves it (P12).
    pub released: Vec<(ReleaseReason, Bitmap)>,
    /// Definitely not handed off because the recipient opted out.
    pub suppressed: Bitmap,
    /// Definitely refused.
    pub refused: Vec<Refused>,
    /// The terminator may have been written and no answer is known.
    pub in_doubt: Bitmap,
    /// Definitely not handed off, and no relay can be given it: dead at once, with the cause.
    pub unsendable: Vec<(u16, Unsendable)>,
    /// Of those who were being prepared when the owner died: nothing else was on that node then.
    pub alone: bool,
    /// Of a test mail: which relay was asked, and in which words it took the mail.
    pub relay_reply: Option<RelayReply>,
}

impl ClaimOutcome {
    /// An outcome that says nothing yet.
    pub fn empty(page: RunId, chunk: u32, fence: Fence) -> ClaimOutcome {
        ClaimOutcome {
            page,
            chunk,
            fence,
            source: OutcomeSource::Owner,
            accepted: Bitmap::new(),
            released: Vec::new(),
            suppressed: Bitmap::new(),
            refused: Vec::new(),
            in_doubt: Bitmap::new(),
            unsendable: Vec::new(),
            alone: false,
            relay_reply: None,
        }
    }

    /// Adds a recipient that was not handed off.
    pub fn release(&mut self, why: ReleaseReason, slot: u16) {
        match self.released.iter_mut().find(|(known, _)| *known == why) {
            Some((_, slots)) => drop(slots.insert(slot)),
            None => self.released.push((why, [slot].into_iter().collect())),
        }
    }

    /// All who were not handed off, whyever.
    pub fn all_released(&self) -> Bitmap {
        let mut all = Bitmap::new();
        self.released.iter().for_each(|(_, slots)| all.add(slots));
        all
    }

    /// Those who were being prepared when the owner died (P12).
    pub fn was_open(&self) -> Bitmap {
        let open = self.released.iter().filter(|(why, _)| *why == ReleaseReason::OwnerDiedPreparing);
        open.fold(Bitmap::new(), |mut all, (_, slots)| {
            all.add(slots);
            all
        })
    }
}
