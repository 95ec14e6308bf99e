//! Validates the limits of a tenant.

use reveille_ledger::limits::LedgerLimits;
use reveille_ledger::tenant::TenantSet;
use reveille_proto::admin::v1::SetTenantRequest;

use super::{Fields, NAME_MAX};
use crate::server::admin::ApiResult;

/// Checks the limits. Limits that the request does not name stay as they are.
pub fn tenant_bounds(asked: SetTenantRequest, limits: &LedgerLimits) -> ApiResult<TenantSet> {
    let SetTenantRequest { name, rate_per_second, concurrency, share, request_id, .. } = asked;
    let mut fields = Fields::default();
    let name = fields.name("name", &name, NAME_MAX);
    let request = fields.request_id(&request_id);
    let most = limits.tenant_rate_milli_max as f64 / 1_000.0;
    if let Some(rate) = rate_per_second
        && (!(0.0..=most).contains(&rate) || (rate > 0.0 && rate < 0.001))
    {
        fields.refuse("rate_per_second", format!("{rate} is not a rate; give 0.001 to {most}, or 0 for no bound"));
    }
    if let Some(share) = share.filter(|share| !(1..=limits.tenant_share_max).contains(share)) {
        fields.refuse("share", format!("{share} is not a share; give 1 to {}", limits.tenant_share_max));
    }
    if rate_per_second.is_none() && concurrency.is_none() && share.is_none() {
        fields.refuse("rate_per_second", "nothing is to be set; give a rate, a concurrency or a share");
    }
    // The rate is bounded above, so it fits.
    let rate_milli = rate_per_second.map(|rate| (rate * 1_000.0).round() as u64);
    fields.done(Some(TenantSet { request, name, rate_milli, concurrency, share }))
}
