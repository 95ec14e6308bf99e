//! Commands about claims: requests for claims, and their outcomes.

use serde::{Deserialize, Serialize};

use crate::model::{
    Bitmap, ChunkKey, ClaimOwner, Fence, OutcomeSource, RelayRefusal, RelayReply, ReleaseReason, Unsendable,
};

/// A request for one slice for one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// Chunk that has the slots.
    pub chunk: ChunkKey,
    /// Requested slots, at most
    /// [`LedgerLimits::slice_recipients_max`](crate::model::LedgerLimits::slice_recipients_max).
    pub slice: Bitmap,
    /// Owner that will work on the claim.
    pub owner: ClaimOwner,
}

/// Outcomes of recipients of one claim. A recipient that is in none of the sets stays claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimOutcome {
    /// Chunk of the claim.
    pub chunk: ChunkKey,
    /// Fence of the claim.
    pub fence: Fence,
    /// Source of the outcomes.
    pub source: OutcomeSource,
    /// A relay answered 250 to the final dot.
    pub accepted: Bitmap,
    /// Definitely not handed off, with the reason. The recipients become pending, or what the state of the run demands.
    /// `OwnerCrashedComposing` comes only from recovery, with a journal that proves it (P12).
    pub released: Vec<(ReleaseReason, Bitmap)>,
    /// Definitely not handed off, because the recipient opted out.
    pub suppressed: Bitmap,
    /// Definitely refused by a relay.
    pub refused: Vec<RelayRefusal>,
    /// The final dot may have been sent, and no answer is known.
    pub in_doubt: Bitmap,
    /// Definitely not handed off, and no relay can be given the email: dead at once, with the cause.
    pub unsendable: Vec<(u16, Unsendable)>,
    /// True if, when the owner crashed, its node prepared the email of exactly one recipient: the released one (P12).
    pub alone: bool,
    /// Only for a test email: the relay that was asked, and its reply.
    pub relay_reply: Option<RelayReply>,
}

impl ClaimOutcome {
    /// Returns an outcome with empty sets, reported by the owner.
    pub fn empty(chunk: ChunkKey, fence: Fence) -> ClaimOutcome {
        ClaimOutcome {
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

    /// Returns the recipients whose emails were being prepared when the owner crashed (P12).
    pub fn interrupted(&self) -> Bitmap {
        let open = self.released.iter().filter(|(why, _)| *why == ReleaseReason::OwnerCrashedComposing);
        open.flat_map(|(_, slots)| slots.iter()).collect()
    }
}
