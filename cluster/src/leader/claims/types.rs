//! Data types that the dispatcher and its parts exchange.

use std::collections::BTreeSet;

use reveille_ledger::ids::{NodeId, RunId, Time};

/// Name of a tenant, and name of a pool.
pub(crate) type TenantPool = (String, String);

/// Recipients of one chunk that one pool could claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Tenant of the page.
    pub tenant: String,
    /// Pool that must send the recipients.
    pub pool: String,
    /// Priority within the tenant; a higher one goes first.
    pub priority: u8,
    /// True if its runs were missed and are caught up. They go after runs that are on time (P16).
    pub late: bool,
    /// Due time of its runs; the oldest goes first.
    pub due: Time,
    /// Page, named by its first run.
    pub page: RunId,
    /// Number of the chunk in the page.
    pub chunk: u32,
    /// Number of recipients that could be claimed now.
    pub claimable: u32,
    /// Nodes that lack its audience part (P20).
    pub barred: BTreeSet<NodeId>,
}

impl Offer {
    /// Returns the chunk and pool of the offer.
    pub fn source(&self) -> (RunId, u32, String) {
        (self.page, self.chunk, self.pool.clone())
    }
}

/// Number of recipients that may be claimed for a pool on a node. If there is a credit for the tenant and one for all
/// tenants, both apply. If there is only one of them, that one applies; without any, nothing is granted.
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

/// A slice of one offer for one node; the dispatcher proposes it as claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimGrant {
    /// Page, named by its first run.
    pub page: RunId,
    /// Number of the chunk in the page.
    pub chunk: u32,
    /// Pool of the slice.
    pub pool: String,
    /// Node that gets the claim.
    pub node: NodeId,
    /// Number of recipients, from 1 to the largest claim that `apply` accepts.
    pub recipients: u32,
}
