//! Rights, and the roles that are names of sets of rights.
//!
//! The ledger stores the bits, so a bit never gets another meaning. Roles are words of the API only.

use reveille_ledger::token::Rights;
use reveille_proto::admin::v1::Role;

/// Needed by calls that every valid token may make.
pub const NONE: Rights = Rights(0);
/// May read, without addresses of recipients.
pub const VIEW: Rights = Rights(1);
/// May read addresses of recipients, and texts of relays, which contain them.
pub const PII: Rights = Rights(1 << 1);
/// May change schedules, drafts, audiences and opt-outs.
pub const EDIT: Rights = Rights(1 << 2);
/// May let emails go out: launch, trigger, resume, requeue, resolve.
pub const SEND: Rights = Rights(1 << 3);
/// May pause.
pub const PAUSE: Rights = Rights(1 << 4);
/// May cancel runs and campaigns.
pub const CANCEL: Rights = Rights(1 << 5);
/// May change relays, pools, limits of tenants, leadership and the test clock.
pub const OPERATE: Rights = Rights(1 << 6);
/// May change tokens, members and the level of the ledger.
pub const ADMIN: Rights = Rights(1 << 7);

/// Rights of the roles, the smallest first. The owner of an admin token can create any token, so it has all rights.
pub const ROLES: &[(Role, Rights)] = &[
    (Role::Viewer, VIEW),
    (Role::Pii, VIEW.union(PII)),
    (Role::Editor, VIEW.union(EDIT).union(PAUSE)),
    (Role::Sender, VIEW.union(SEND).union(PAUSE).union(CANCEL)),
    (Role::Operator, VIEW.union(PAUSE).union(CANCEL).union(OPERATE)),
    (Role::Admin, all_rights()),
];

/// Returns the rights of an admin.
pub const fn all_rights() -> Rights {
    VIEW.union(PII).union(EDIT).union(SEND).union(PAUSE).union(CANCEL).union(OPERATE).union(ADMIN)
}

/// Returns the roles whose rights are all in the set, without those that another one includes.
pub fn roles_of(rights: Rights) -> Vec<Role> {
    let within: Vec<_> = ROLES.iter().filter(|(_, role)| rights.contains(*role)).collect();
    let is_part = |role: Rights| within.iter().any(|(_, other)| *other != role && other.contains(role));
    within.iter().filter(|(_, role)| !is_part(*role)).map(|(role, _)| *role).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_names_the_largest_roles() {
        for (role, rights) in ROLES {
            assert_eq!(roles_of(*rights), [*role]);
        }
        assert_eq!(roles_of(VIEW.union(PII).union(EDIT).union(PAUSE)), [Role::Pii, Role::Editor]);
        assert_eq!(roles_of(NONE), []);
    }
}
