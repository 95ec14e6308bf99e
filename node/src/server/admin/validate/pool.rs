//! Validates the settings of a pool.

use reveille_ledger::limits::LedgerLimits;
use reveille_ledger::pool::PoolSet;
use reveille_proto::admin::v1::SetPoolRequest;

use super::{Fields, NAME_MAX, day};
use crate::server::admin::ApiResult;

/// Checks the settings. The ledger checks whether the first day has passed, because it has the time.
pub fn pool(asked: SetPoolRequest, limits: &LedgerLimits) -> ApiResult<PoolSet> {
    let SetPoolRequest { name, warm_up: caps, first_day, request_id, reveille_headers, .. } = asked;
    let mut fields = Fields::default();
    let pool = fields.name("name", &name, NAME_MAX);
    let request = fields.request_id(&request_id);
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
    fields.done(Some(PoolSet { request, pool, caps, first, reveille_headers }))
}
