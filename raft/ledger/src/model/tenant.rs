//! What a tenant may take of what all tenants share (P12, P25).
//!
//! A tenant is a name that schedules have. It needs no object: one without has the defaults, which bind nothing.

use serde::{Deserialize, Serialize};

use crate::injected_bugs::{self, Bug};
#[cfg(doc)]
use crate::model::Limits;

/// The bounds of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Emails a second over the whole cluster, in thousandths; zero means no bound (P25).
    pub rate_milli: u64,
    /// Recipients that are claimed at once over the whole cluster, and so its dialogues; zero means no bound (P12).
    pub concurrency: u32,
    /// Its weight among tenants that wait for the same pool: 1 to [`Limits::tenant_share`].
    pub share: u32,
    /// Log index of the entry that set it last; zero if it was never set.
    pub index: u64,
}

impl Default for Tenant {
    fn default() -> Tenant {
        Tenant { rate_milli: 0, concurrency: 0, share: 1, index: 0 }
    }
}

impl Tenant {
    /// Emails a second, at most; none where there is no bound.
    pub fn rate(&self) -> Option<f64> {
        (self.rate_milli > 0 && !injected_bugs::is(Bug::NoTenantRate)).then(|| self.rate_milli as f64 / 1_000.0)
    }

    /// Recipients that are claimed at once, at most; none where there is no bound.
    pub fn at_once(&self) -> Option<u32> {
        (self.concurrency > 0).then_some(self.concurrency)
    }
}

/// See [`crate::command::Command::TenantSet`]: what is not named stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSet {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Its name.
    pub name: String,
    /// As [`Tenant::rate_milli`].
    pub rate_milli: Option<u64>,
    /// As [`Tenant::concurrency`].
    pub concurrency: Option<u32>,
    /// As [`Tenant::share`].
    pub share: Option<u32>,
}
