//! Validates what a new token permits, and how long a token is valid.

use std::time::Duration;

use reveille_ledger::ids::{Hash, Time};
use reveille_ledger::policy::MINUTE_MS;
use reveille_ledger::token::{Rights, TenantScope, TokenGrant};
use reveille_proto::admin::v1::CreateTokenRequest;

use super::{ApiResult, DurationBounds, Fields, NAME_MAX};
use crate::server::admin::access::ROLES;

const CENTURY_MS: i64 = 36_525 * 24 * 60 * MINUTE_MS;
const VALID_FOR: DurationBounds = DurationBounds { least_ms: MINUTE_MS, most_ms: CENTURY_MS, default_ms: MINUTE_MS };
/// One hour by default: long enough to start a machine, short enough for a secret that lies in a terminal.
const JOIN_WITHIN: DurationBounds =
    DurationBounds { least_ms: MINUTE_MS, most_ms: 7 * 24 * 60 * MINUTE_MS, default_ms: 60 * MINUTE_MS };

/// Checks the request, and returns what the token permits.
pub fn token_grant(request: CreateTokenRequest, hash: Hash, now: Time) -> ApiResult<TokenGrant> {
    let CreateTokenRequest { name, roles, tenants, all_tenants, valid_for } = request;
    let mut fields = Fields::default();
    let name = fields.name("name", &name, NAME_MAX);
    let mut rights = Rights::default();
    for (place, role) in roles.iter().enumerate() {
        match ROLES.iter().find(|(known, _)| i32::from(*known) == *role) {
            Some((_, of_role)) => rights = rights.union(*of_role),
            None => {
                let known: Vec<&str> = ROLES.iter().map(|(known, _)| known.as_str_name()).collect();
                fields.refuse(format!("roles[{place}]"), format!("is not a role; give {}", known.join(", ")));
            }
        }
    }
    if roles.is_empty() {
        fields.refuse("roles", "is empty; give one role at least");
    }
    let tenants = match (all_tenants, tenants.is_empty()) {
        (true, true) => TenantScope::All,
        (false, false) => {
            let name = |(place, tenant): (usize, &String)| fields.name(&format!("tenants[{place}]"), tenant, NAME_MAX);
            TenantScope::Only(tenants.iter().enumerate().map(name).collect())
        }
        (true, false) => {
            fields.refuse("tenants", "names some, and all_tenants is true; choose one");
            TenantScope::All
        }
        (false, true) => {
            fields.refuse("tenants", "is empty; name some, or say that you mean all");
            TenantScope::All
        }
    };
    let expires_at = valid_for.map(|valid_for| {
        if valid_for.seconds == 0 && valid_for.nanos == 0 {
            fields.refuse("valid_for", "is zero; leave it out for a token that does not expire");
        }
        now.plus_ms(fields.length("valid_for", Some(valid_for), VALID_FOR))
    });
    fields.done(Some(TokenGrant { name, hash, rights, tenants, expires_at }))
}

/// Returns the time for which a join token is valid.
pub fn join_token_valid_for(requested: Option<prost_types::Duration>) -> ApiResult<Duration> {
    let mut fields = Fields::default();
    let valid_for_ms = fields.length("valid_for", requested, JOIN_WITHIN);
    fields.done(Some(Duration::from_millis(valid_for_ms.unsigned_abs())))
}
