//! Tokens of the admin API: what their owners may do.
//!
//! A token's text contains a secret; the state has only its hash. Rights are bits, and the node that proposes says
//! which of them a command needs: `apply` compares bits and has no table of rights (P2).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::{Hash, Time, TokenId};

/// A set of rights, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights(pub u32);

impl Rights {
    /// True if every right of `other` is in this set.
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if a right is in both sets.
    pub const fn overlaps(self, other: Rights) -> bool {
        self.0 & other.0 != 0
    }

    /// The rights of both sets.
    pub const fn union(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// The tenants that a token reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TenantScope {
    /// All tenants, and what belongs to the cluster as a whole.
    All,
    /// These tenants.
    Only(BTreeSet<String>),
}

impl TenantScope {
    /// True if the scope includes this tenant. `None` stands for the cluster as a whole.
    pub fn includes(&self, tenant: Option<&str>) -> bool {
        match (self, tenant) {
            (TenantScope::All, _) => true,
            (TenantScope::Only(tenants), Some(tenant)) => tenants.contains(tenant),
            (TenantScope::Only(_), None) => false,
        }
    }

    /// True if this scope includes all tenants of the other one.
    pub fn includes_all(&self, other: &TenantScope) -> bool {
        match (self, other) {
            (TenantScope::All, _) => true,
            (TenantScope::Only(_), TenantScope::All) => false,
            (TenantScope::Only(own), TenantScope::Only(tenants)) => tenants.is_subset(own),
        }
    }
}

/// What a token permits, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenGrant {
    /// Name for people. Several tokens may have the same name.
    pub name: String,
    /// `blake3::derive_key` of the secret.
    pub hash: Hash,
    /// Its rights.
    pub rights: Rights,
    /// Its tenants.
    pub tenants: TenantScope,
    /// Ledger time from which it is no longer valid; `None`: it does not expire.
    pub expires_at: Option<Time>,
}

/// A token of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminToken {
    /// What it permits.
    pub grant: TokenGrant,
    /// The token whose owner created it; `None`: a node itself or a caller without a token did.
    pub creator: Option<TokenId>,
    /// When it was created.
    pub created_at: Time,
    /// Log index of the entry that created it.
    pub index: u64,
    /// When it was revoked.
    pub revoked_at: Option<Time>,
}

impl AdminToken {
    /// When it stopped being valid, or will; `None`: it is valid until it is revoked.
    pub fn ends_at(&self) -> Option<Time> {
        self.revoked_at.into_iter().chain(self.grant.expires_at).min()
    }

    /// True if it was not revoked and has not expired.
    pub fn is_valid(&self, now: Time) -> bool {
        self.ends_at().is_none_or(|end| now < end)
    }
}

/// Arguments of [`crate::command::Command::TokenCreate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCreate {
    /// Id of the token.
    pub id: TokenId,
    /// What it permits.
    pub grant: TokenGrant,
    /// The same entry revokes all other tokens that have one of these rights.
    pub revokes: Rights,
}
