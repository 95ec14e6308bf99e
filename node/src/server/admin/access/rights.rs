//! Rights, and the roles that are names of sets of rights.
//!
//! The ledger stores the bits, so a bit never gets another meaning. Roles are words of the API only.

use reveille_ledger::token::Rights;

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

/// Roles by name, the smallest first. The owner of an admin token can create any token, so it has all rights.
pub const ROLES: &[(&str, Rights)] = &[
    ("viewer", VIEW),
    ("pii", VIEW.and(PII)),
    ("editor", VIEW.and(EDIT).and(PAUSE)),
    ("sender", VIEW.and(SEND).and(PAUSE).and(CANCEL)),
    ("operator", VIEW.and(PAUSE).and(CANCEL).and(OPERATE)),
    ("admin", all_rights()),
];

/// Returns the rights of an admin.
pub const fn all_rights() -> Rights {
    VIEW.and(PII).and(EDIT).and(SEND).and(PAUSE).and(CANCEL).and(OPERATE).and(ADMIN)
}

/// Returns the names of the roles whose rights are all in the set, without those that another one includes.
pub fn role_names(rights: Rights) -> Vec<String> {
    let within: Vec<_> = ROLES.iter().filter(|(_, role)| rights.contains(*role)).collect();
    let is_part = |role: Rights| within.iter().any(|(_, other)| *other != role && other.contains(role));
    within.iter().filter(|(_, role)| !is_part(*role)).map(|(name, _)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_names_the_largest_roles() {
        for (name, rights) in ROLES {
            assert_eq!(role_names(*rights), [*name]);
        }
        assert_eq!(role_names(VIEW.and(PII).and(EDIT).and(PAUSE)), ["pii", "editor"]);
        assert_eq!(role_names(NONE), Vec::<String>::new());
    }
}
