//! Validates what a new token permits.

use reveille_ledger::ids::{Hash, Time};
use reveille_ledger::token::{Rights, TenantScope, TokenGrant};
use reveille_proto::admin::v1::CreateTokenRequest;

use super::{ApiResult, DurationBounds, Fields, NAME_MAX};
use crate::server::admin::access::ROLES;

const MINUTE_MS: i64 = 60_000;
const CENTURY_MS: i64 = 36_525 * 24 * 60 * MINUTE_MS;
const VALID_FOR: DurationBounds = DurationBounds { least_ms: MINUTE_MS, most_ms: CENTURY_MS, default_ms: MINUTE_MS };

/// Checks the request, and returns what the token permits.
pub fn token_grant(request: CreateTokenRequest, hash: Hash, now: Time) -> ApiResult<TokenGrant> {
    let CreateTokenRequest { name, roles, tenants, all_tenants, valid_for } = request;
    let mut fields = Fields::default();
    let name = fields.name("name", &name, NAME_MAX);
    let mut rights = Rights::default();
    for (place, role) in roles.iter().enumerate() {
        match ROLES.iter().find(|(known, _)| known == role) {
            Some((_, of_role)) => rights = rights.and(*of_role),
            None => {
                let known: Vec<&str> = ROLES.iter().map(|(known, _)| *known).collect();
                fields.refuse(format!("roles[{place}]"), format!("{role:?} is not a role; give {}", known.join(", ")));
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
