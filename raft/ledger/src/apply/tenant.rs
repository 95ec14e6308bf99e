//! Limits of tenants: set, removed, and enforced at the claim (P12).
//!
//! The ledger limits how many recipients of a tenant are claimed at once. The dispatcher limits the rate, because only
//! it proposes claims (P25).

use super::Context;
use super::bounds::{bounded, refuse_if};
use crate::model::{Bitmap, Bounded, CommandOutcome, CommandRefusal, Impossible, Ledger, PageId, Tenant, TenantSet};

impl Ledger {
    pub(super) fn tenant_set(&mut self, context: &Context, set: &TenantSet) -> Result<CommandOutcome, CommandRefusal> {
        let TenantSet { name, rate_milli, concurrency, share, .. } = set;
        let known = self.tenant(name);
        let wanted = Tenant {
            rate_milli: rate_milli.unwrap_or(known.rate_milli),
            concurrency: concurrency.unwrap_or(known.concurrency),
            share: share.unwrap_or(known.share),
            ..known
        };
        let limits = self.limits();
        bounded(Bounded::TenantRate, wanted.rate_milli as usize, limits.tenant_rate_milli_max as usize)?;
        bounded(Bounded::TenantShare, wanted.share as usize, limits.tenant_share_max as usize)?;
        refuse_if(wanted.share == 0, Impossible::NoShare)?;
        if wanted != known || known.index == 0 {
            self.tenants.put(name.clone(), Tenant { index: context.index, ..wanted });
        }
        Ok(CommandOutcome::Done)
    }

    /// Removes the limits of a tenant. If there are none it changes nothing, so a client that lost the answer may
    /// repeat it.
    pub(super) fn tenant_remove(&mut self, name: &str) -> CommandOutcome {
        self.tenants.remove(&name.to_owned());
        CommandOutcome::Done
    }

    /// Limits the slots that could be granted to what the tenant may still have claimed at once (P12).
    pub(super) fn within_concurrency(&self, page: PageId, granted: Bitmap) -> Result<Bitmap, CommandRefusal> {
        let Some(tenant) = self.pages.get(&page).map(|page| &*page.tenant) else { return Ok(granted) };
        let Some(most) = self.tenant(tenant).at_once() else { return Ok(granted) };
        match most.saturating_sub(self.claimed_by_tenant(tenant)) {
            0 => Err(CommandRefusal::AtConcurrency { tenant: tenant.to_owned(), most }),
            remaining => Ok(granted.first(remaining)),
        }
    }
}
