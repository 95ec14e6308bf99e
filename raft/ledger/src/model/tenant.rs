//! Limits of a tenant on resources that all tenants share (P12, P25), and the pools that it may name.
//!
//! A tenant is a name that schedules have, and needs no row of its own. A tenant without a row has the defaults, which
//! limit nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::injected_bugs::{self, Bug};
#[cfg(doc)]
use crate::model::LedgerLimits;

/// Limits of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Rate limit of the whole cluster, in thousandths of an email a second; 0: no limit (P25).
    pub rate_milli: u64,
    /// Recipients, and so dialogues, that may be claimed at once in the whole cluster; 0: no limit (P12).
    pub concurrency: u32,
    /// Its weight among tenants that wait for the same pool: 1 to [`LedgerLimits::tenant_share_max`].
    pub share: u32,
    /// The pools that it may name; empty: all.
    pub pools: BTreeSet<String>,
    /// Log index of the entry that set it last; 0 if it was never set.
    pub index: u64,
}

impl Tenant {
    /// A tenant without a row: it is limited by nothing.
    pub const DEFAULT: Tenant = Tenant { rate_milli: 0, concurrency: 0, share: 1, pools: BTreeSet::new(), index: 0 };

    /// Rate limit in emails a second; `None`: no limit.
    pub fn rate(&self) -> Option<f64> {
        (self.rate_milli > 0 && !injected_bugs::is(Bug::NoTenantRate)).then(|| self.rate_milli as f64 / 1_000.0)
    }

    /// True if it may name the pool.
    pub fn may_use(&self, pool: &str) -> bool {
        self.pools.is_empty() || self.pools.contains(pool)
    }

    /// Recipients that may be claimed at once; `None`: no limit.
    pub fn at_once(&self) -> Option<u32> {
        (self.concurrency > 0).then_some(self.concurrency)
    }
}

/// Arguments of [`crate::command::Command::TenantSet`]. `None`: the value does not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSet {
    /// Request id; `None` if the caller gave none.
    pub request: Option<String>,
    /// Name of the tenant.
    pub name: String,
    /// New [`Tenant::rate_milli`].
    pub rate_milli: Option<u64>,
    /// New [`Tenant::concurrency`].
    pub concurrency: Option<u32>,
    /// New [`Tenant::share`].
    pub share: Option<u32>,
    /// New [`Tenant::pools`].
    pub pools: Option<BTreeSet<String>>,
    /// Etag that the tenant must have, if it is to change. `None`: any.
    pub expected: Option<String>,
}
