//! Data types that the dispatcher and its parts exchange.

use std::collections::BTreeSet;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::ids::{ChunkKey, NodeId, Time};

/// Name of a tenant, and name of a pool.
pub(crate) type TenantPool = (String, String);

/// Where claimable recipients are: a chunk, and the pool that must send them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSource {
    /// The chunk.
    pub chunk: ChunkKey,
    /// Pool that must send the recipients.
    pub pool: String,
}

/// Recipients of one chunk that one pool could claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Tenant of the page.
    pub tenant: String,
    /// Priority within the tenant; a higher one goes first.
    pub priority: u8,
    /// True if its runs were missed and are caught up. They go after runs that are on time (P16).
    pub late: bool,
    /// Due time of its runs; the oldest goes first.
    pub due: Time,
    /// Where the recipients are.
    pub source: ClaimSource,
    /// Number of recipients that could be claimed now.
    pub claimable: u32,
    /// The slots that are left to claim.
    pub slots: ClaimableSlots,
    /// Nodes that lack a file of its runs (P20).
    pub excluded: BTreeSet<NodeId>,
}

/// Slots that are left to claim in a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimableSlots {
    /// Slots that may be claimed in slices of any size.
    pub plain: Bitmap,
    /// At most one crash suspect, for a claim of its own. Suspects are rare: at most as many as were composed at once.
    pub suspect: Bitmap,
}

impl ClaimableSlots {
    /// Returns the number of slots.
    pub fn len(&self) -> u32 {
        self.plain.len() + self.suspect.len()
    }

    /// Returns true if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Number of recipients that may be claimed for a pool on a node. If there is a credit for the tenant and one for all
/// tenants, both apply. If there is only one of them, that one applies; without any, nothing is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Tenant of the credit; `None` for all tenants together.
    pub tenant: Option<String>,
    /// Pool whose relays send the recipients.
    pub pool: String,
    /// Node that may claim them.
    pub node: NodeId,
    /// Number of recipients. Credits with the same tenant, pool and node add up.
    pub recipients: u32,
}

/// A slice of one offer for one node. The dispatcher proposes it as claims, and `apply` grants what is still pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSlice {
    /// Position of the offer among those that the fair queue got.
    pub offer: usize,
    /// Tenant of the offer.
    pub tenant: String,
    /// True if the offer is late.
    pub late: bool,
    /// Where the recipients are.
    pub source: ClaimSource,
    /// Node that gets the claim.
    pub node: NodeId,
    /// Number of recipients, from 1 to the largest claim that `apply` accepts.
    pub recipients: u32,
}
