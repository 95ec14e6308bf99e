//! What the dispatcher and its parts hand to each other.

use std::collections::BTreeSet;

use reveille_ledger::ids::{NodeId, RunId, Time};

/// Tenant and pool.
pub(crate) type TenantPool = (String, String);

/// What could be claimed in one chunk by one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whose.
    pub tenant: String,
    /// By which pool it must go.
    pub pool: String,
    /// Higher goes first within the tenant.
    pub priority: u8,
    /// Its runs were missed and are caught up: they go after what is on time (P16).
    pub late: bool,
    /// When its runs were due: older goes first.
    pub due: Time,
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// Recipients that could be claimed now.
    pub claimable: u32,
    /// Nodes that lack what it needs (P20).
    pub barred: BTreeSet<NodeId>,
}

impl Offer {
    /// What it offers, as [`ClaimGrant`] names it.
    pub fn source(&self) -> (RunId, u32, String) {
        (self.page, self.chunk, self.pool.clone())
    }
}

/// What may be claimed for a pool on a node now. Where a tenant has a credit of its own and there is one for
/// all, both bound it; where there is only one, that one; where there is none, nothing is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credit {
    /// For this tenant; or for all tenants together.
    pub tenant: Option<String>,
    /// The pool.
    pub pool: String,
    /// The node.
    pub node: NodeId,
    /// How many recipients. Credits of the same tenant, pool and node add up.
    pub recipients: u32,
}

/// A slice for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimGrant {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// By which pool.
    pub pool: String,
    /// Who shall work it.
    pub node: NodeId,
    /// How many of the chunk's claimable recipients: 1 to the largest claim that `apply` takes.
    pub recipients: u32,
}
