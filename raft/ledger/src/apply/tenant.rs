//! Limits of tenants: set, removed, and enforced at the claim (P12).
//!
//! The ledger limits how many recipients of a tenant are claimed at once. The dispatcher limits the rate, because only
//! it proposes claims (P25).

use super::Context;
use super::bounds::{bounded, refuse_if};
use crate::command::Removal;
use crate::model::{
    Bitmap, CommandOutcome, CommandRefusal, EtagKind, Impossible, Ledger, LimitedQuantity, PageId, Tenant, TenantSet,
    check_etag,
};

impl Ledger {
    pub(super) fn tenant_set(&mut self, context: &Context, set: &TenantSet) -> Result<CommandOutcome, CommandRefusal> {
        let (name, known) = (&set.name, self.tenant(&set.name));
        let wanted = wanted(known, set);
        let limits = self.limits();
        bounded(LimitedQuantity::TenantRate, wanted.rate_milli as usize, limits.tenant_rate_milli_max as usize)?;
        bounded(LimitedQuantity::TenantShare, wanted.share as usize, limits.tenant_share_max as usize)?;
        refuse_if(wanted.share == 0, Impossible::NoShare)?;
        bounded(LimitedQuantity::TenantPools, wanted.pools.len(), limits.tenant_pools_max)?;
        if wanted != *known || known.index == 0 {
            self.tenants.put(name.clone(), Tenant { index: context.index, ..wanted });
        }
        Ok(CommandOutcome::Done)
    }

    /// Checks the etag. A repeat is answered like the first request, which has made the etag another one.
    pub(super) fn check_tenant_set(&self, set: &TenantSet) -> Result<(), CommandRefusal> {
        let known = self.tenant(&set.name);
        if known.index > 0 && wanted(known, set) == *known {
            return Ok(());
        }
        check_etag(set.expected.as_deref(), (EtagKind::Tenant, &set.name), &self.tenant_etag(&set.name))
    }

    /// Checks the etag, unless the limits were removed before.
    pub(super) fn check_tenant_remove(&self, Removal { name, expected }: &Removal) -> Result<(), CommandRefusal> {
        match self.tenant(name).index {
            0 => Ok(()),
            _ => check_etag(expected.as_deref(), (EtagKind::Tenant, name), &self.tenant_etag(name)),
        }
    }

    /// Removes the limits of a tenant. If there are none it changes nothing, so a client that lost the answer may
    /// repeat it.
    pub(super) fn tenant_remove(&mut self, name: &str) -> CommandOutcome {
        self.tenants.remove(&name.to_owned());
        CommandOutcome::Done
    }

    /// Refuses a pool that the tenant may not name like one without a relay: the tenant learns nothing of it.
    pub(super) fn check_pool(&self, tenant: &str, pool: &str) -> Result<(), CommandRefusal> {
        refuse_if(!self.tenant(tenant).may_use(pool), Impossible::PoolWithoutRelay(pool.to_owned()))
    }

    /// Returns the first of these slots, as many as the tenant may claim in addition (P12). Refuses if it may claim none.
    pub(super) fn within_concurrency(&self, page: PageId, slots: Bitmap) -> Result<Bitmap, CommandRefusal> {
        let Some(tenant) = self.pages.get(&page).map(|page| &*page.tenant) else { return Ok(slots) };
        let Some(most) = self.tenant(tenant).at_once() else { return Ok(slots) };
        match most.saturating_sub(self.claimed_by_tenant(tenant)) {
            0 => Err(CommandRefusal::AtConcurrency { tenant: tenant.to_owned(), most }),
            remaining => Ok(slots.first(remaining)),
        }
    }
}

/// Returns the limits that the command leaves.
fn wanted(known: &Tenant, set: &TenantSet) -> Tenant {
    Tenant {
        rate_milli: set.rate_milli.unwrap_or(known.rate_milli),
        concurrency: set.concurrency.unwrap_or(known.concurrency),
        share: set.share.unwrap_or(known.share),
        pools: set.pools.as_ref().unwrap_or(&known.pools).clone(),
        index: known.index,
    }
}
