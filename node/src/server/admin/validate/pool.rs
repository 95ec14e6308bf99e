//! Validates the settings of a pool and the limits of a tenant.

use std::collections::BTreeSet;

use reveille_ledger::limits::LedgerLimits;
use reveille_ledger::pool::PoolSet;
use reveille_ledger::tenant::TenantSet;
use reveille_proto::admin::v1::{SetPoolRequest, SetTenantRequest};

use super::{Fields, NAME_MAX, day};
use crate::server::admin::ApiResult;

/// Checks the settings. The ledger checks whether the first day has passed, because it has the time.
pub fn pool(requested: SetPoolRequest, limits: &LedgerLimits) -> ApiResult<PoolSet> {
    let SetPoolRequest { name, warm_up: caps, first_day, request_id, reveille_headers, etag, .. } = requested;
    let mut fields = Fields::default();
    let pool = fields.name("name", &name, NAME_MAX);
    let request = fields.request_id(&request_id);
    let expected = fields.etag(&etag);
    let is_kept = caps.is_empty() && reveille_headers.is_some();
    if caps.is_empty() && !is_kept || caps.len() > limits.warm_up_days_max {
        let form = format!("give a cap for each of 1 to {} days", limits.warm_up_days_max);
        fields.refuse("warm_up", format!("has {} days; {form}", caps.len()));
    }
    if caps.contains(&0) {
        fields.refuse("warm_up", "has a day without an email; give 1 at least for each day");
    }
    let first = if first_day.is_empty() { None } else { day::read(&first_day) };
    if first.is_none() && !first_day.is_empty() {
        fields.refuse("first_day", format!("{first_day:?} is not a day; write it as 2026-11-22"));
    }
    if is_kept && !first_day.is_empty() {
        fields.refuse("first_day", "belongs to a warm-up; give its caps too");
    }
    fields.done(Some(PoolSet { request, pool, caps, first, reveille_headers, expected }))
}

/// Checks the limits. Limits that the request does not name stay as they are.
pub fn tenant_bounds(requested: SetTenantRequest, limits: &LedgerLimits) -> ApiResult<TenantSet> {
    let SetTenantRequest { name, rate_per_second, concurrency, share, request_id, etag, pools, all_pools, .. } =
        requested;
    let mut fields = Fields::default();
    let name = fields.name("name", &name, NAME_MAX);
    let request = fields.request_id(&request_id);
    let expected = fields.etag(&etag);
    let most = limits.tenant_rate_milli_max as f64 / 1_000.0;
    if let Some(rate) = rate_per_second
        && (!(0.0..=most).contains(&rate) || (rate > 0.0 && rate < 0.001))
    {
        fields.refuse("rate_per_second", format!("{rate} is not a rate; give 0.001 to {most}, or 0 for no bound"));
    }
    if let Some(share) = share.filter(|share| !(1..=limits.tenant_share_max).contains(share)) {
        fields.refuse("share", format!("{share} is not a share; give 1 to {}", limits.tenant_share_max));
    }
    if all_pools && !pools.is_empty() || pools.len() > limits.tenant_pools_max {
        fields.refuse("pools", format!("give 1 to {}, or all_pools", limits.tenant_pools_max));
    }
    let named = pools.iter().enumerate();
    let pools: BTreeSet<String> =
        named.map(|(at, pool)| fields.name(&format!("pools[{at}]"), pool, NAME_MAX)).collect();
    let pools = (all_pools || !pools.is_empty()).then_some(pools);
    if rate_per_second.is_none() && concurrency.is_none() && share.is_none() && pools.is_none() {
        fields.refuse("rate_per_second", "nothing is to be set; give a rate, a concurrency, a share or pools");
    }
    // The rate is bounded above, so it fits.
    let rate_milli = rate_per_second.map(|rate| (rate * 1_000.0).round() as u64);
    fields.done(Some(TenantSet { request, name, rate_milli, concurrency, share, pools, expected }))
}
