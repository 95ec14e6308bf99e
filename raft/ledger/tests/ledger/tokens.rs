//! Entries of operators: the state at their own index permits or refuses them.

use reveille_ledger::Ledger;
use reveille_ledger::command::{Actor, Command};
use reveille_ledger::ids::{Hash, Time, TokenId};
use reveille_ledger::impossible::{Impossible, LimitedQuantity};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::token::{Rights, TenantScope, TokenCreate, TokenGrant};

use crate::leading::{TestLedger, tenant_set};

const VIEW: Rights = Rights(1);
const EDIT: Rights = Rights(2);
const ADMIN: Rights = Rights(4);
const ALL: Rights = Rights(7);
const DAY_MS: i64 = 86_400_000;
/// Tag of the table of audit records, which is the last one.
const AUDIT: u8 = 23;

impl TestLedger {
    fn create(&mut self, actor: Actor, create: TokenCreate) -> CommandOutcome {
        self.put(actor, Command::TokenCreate(Box::new(create)))
    }

    /// Proposes a change of a tenant's limits by the owner of a token.
    fn change(&mut self, token: u64, needs: Rights, tenant: Option<&str>) -> CommandOutcome {
        self.put(operator(token, needs, tenant), tenant_set("acme"))
    }

    fn ids(&self) -> Vec<u64> {
        self.ledger.tokens().iter().map(|(id, _)| id.0).collect()
    }
}

fn operator(token: u64, needs: Rights, tenant: Option<&str>) -> Actor {
    Actor::Operator { token: TokenId(token), needs, tenant: tenant.map(str::to_owned) }
}

fn token(id: u64, rights: Rights, tenants: TenantScope) -> TokenCreate {
    let grant = TokenGrant { name: "ci".into(), hash: Hash::of(&[1]), rights, tenants, expires_at: None };
    TokenCreate { id: TokenId(id), grant, revokes: Rights(0) }
}

fn expiring(id: u64, at: Time) -> TokenCreate {
    let mut create = token(id, VIEW, TenantScope::All);
    create.grant.expires_at = Some(at);
    create
}

fn only(tenants: &[&str]) -> TenantScope {
    TenantScope::Only(tenants.iter().map(|tenant| (*tenant).to_owned()).collect())
}

const NOT_VALID: CommandOutcome = CommandOutcome::Refused(CommandRefusal::TokenNotValid);
const NOT_PERMITTED: CommandOutcome = CommandOutcome::Refused(CommandRefusal::NotPermitted);

#[test]
fn entry_is_permitted_by_rights_and_tenants_of_its_token() {
    let mut test = TestLedger::new();
    assert_eq!(test.create(Actor::System, token(1, EDIT, only(&["acme"]))), CommandOutcome::Done);
    assert_eq!(test.create(Actor::System, token(2, ALL, TenantScope::All)), CommandOutcome::Done);
    assert_eq!(test.change(1, EDIT, Some("acme")), CommandOutcome::Done);
    let before = test.ledger.state_hash();
    assert_eq!(test.change(1, EDIT, Some("globex")), NOT_PERMITTED, "another tenant");
    assert_eq!(test.change(1, EDIT, None), NOT_PERMITTED, "all tenants");
    assert_eq!(test.change(1, VIEW.union(EDIT), Some("acme")), NOT_PERMITTED, "one of two rights");
    assert_eq!(test.change(3, EDIT, Some("acme")), NOT_VALID, "no such token");
    assert_eq!(test.change(2, ALL, None), CommandOutcome::Done);
    assert_ne!(test.ledger.state_hash(), before, "the last one took effect");
}

#[test]
fn refused_entry_changes_nothing_but_the_head_and_leaves_an_audit_record() {
    let mut test = TestLedger::new();
    let rows = |ledger: &Ledger| ledger.all_rows().skip(1).collect::<Vec<_>>();
    let before = rows(&test.ledger);
    assert_eq!(test.change(3, EDIT, None), NOT_VALID);
    let mut after = rows(&test.ledger);
    assert!(after.pop().is_some_and(|(key, _)| key[0] == AUDIT));
    assert_eq!(after, before);
}

#[test]
fn token_permits_nothing_after_its_revocation() {
    let mut test = TestLedger::new();
    test.create(Actor::System, token(1, ALL, TenantScope::All));
    assert_eq!(test.change(1, EDIT, None), CommandOutcome::Done);
    assert_eq!(test.put(operator(1, ADMIN, None), Command::TokenRevoke(TokenId(1))), CommandOutcome::Done);
    assert_eq!(test.change(1, EDIT, None), NOT_VALID);
    assert_eq!(test.put(operator(1, ADMIN, None), Command::TokenRevoke(TokenId(1))), NOT_VALID);
    assert_eq!(test.put(Actor::Insecure, Command::TokenRevoke(TokenId(1))), CommandOutcome::Done, "a repeat");
    let unknown = test.put(Actor::System, Command::TokenRevoke(TokenId(9)));
    assert_eq!(unknown, CommandOutcome::Refused(CommandRefusal::NoSuchToken(TokenId(9))));
}

#[test]
fn token_expires_in_ledger_time() {
    let mut test = TestLedger::new();
    test.create(Actor::System, expiring(1, Time(10_000)));
    test.now = Time(9_999);
    assert_eq!(test.change(1, VIEW, None), CommandOutcome::Done);
    test.now = Time(10_000);
    assert_eq!(test.change(1, VIEW, None), NOT_VALID);
    let ended = test.create(Actor::System, expiring(2, Time(10_000)));
    assert_eq!(ended, CommandOutcome::Refused(Impossible::TokenEnded.into()));
}

#[test]
fn created_token_permits_no_more_than_its_creator() {
    let mut test = TestLedger::new();
    test.create(Actor::System, token(1, ADMIN.union(VIEW), only(&["acme", "globex"])));
    let by = || operator(1, ADMIN, Some("acme"));
    assert_eq!(test.create(by(), token(2, VIEW, only(&["acme"]))), CommandOutcome::Done);
    assert_eq!(test.ledger.tokens().get(&TokenId(2)).and_then(|token| token.creator), Some(TokenId(1)));
    assert_eq!(test.create(by(), token(3, EDIT, only(&["acme"]))), NOT_PERMITTED);
    assert_eq!(test.create(by(), token(3, VIEW, only(&["initech"]))), NOT_PERMITTED);
    assert_eq!(test.create(by(), token(3, VIEW, TenantScope::All)), NOT_PERMITTED);
    assert_eq!(test.ids(), [1, 2]);
}

#[test]
fn repeated_creation_changes_nothing_and_id_is_never_given_twice() {
    let mut test = TestLedger::new();
    let first = token(1, VIEW, TenantScope::All);
    assert_eq!(test.create(Actor::System, first.clone()), CommandOutcome::Done);
    let created = test.ledger.tokens().get(&TokenId(1)).cloned();
    assert_eq!(test.create(Actor::System, first), CommandOutcome::Done);
    assert_eq!(test.ledger.tokens().get(&TokenId(1)).cloned(), created);
    let other = test.create(Actor::System, token(1, EDIT, TenantScope::All));
    assert_eq!(other, CommandOutcome::Refused(CommandRefusal::TokenIdTaken(TokenId(1))));
}

#[test]
fn creation_revokes_other_tokens_with_the_named_rights() {
    let mut test = TestLedger::new();
    test.create(Actor::System, token(1, ALL, TenantScope::All));
    test.create(Actor::System, token(2, VIEW, TenantScope::All));
    let reset = TokenCreate { revokes: ADMIN, ..token(3, ALL, TenantScope::All) };
    assert_eq!(test.create(Actor::System, reset), CommandOutcome::Done);
    assert_eq!(test.change(1, VIEW, None), NOT_VALID);
    assert_eq!(test.change(2, VIEW, None), CommandOutcome::Done);
    assert_eq!(test.change(3, ADMIN, None), CommandOutcome::Done);
}

#[test]
fn ended_tokens_make_room_and_leave_after_a_month() {
    let mut test = TestLedger::new();
    let most = test.ledger.limits().tokens_max as u64;
    for id in 0..most {
        let end = if id == 7 { 1_000 } else { 60 * DAY_MS };
        assert_eq!(test.create(Actor::System, expiring(id, Time(end))), CommandOutcome::Done);
    }
    let full = test.create(Actor::System, token(most, VIEW, TenantScope::All));
    let refused = CommandRefusal::TooLarge { what: LimitedQuantity::Tokens, bound: most };
    assert_eq!(full, CommandOutcome::Refused(refused), "all are valid");
    test.now = Time(2_000);
    assert_eq!(test.create(Actor::System, token(most, VIEW, TenantScope::All)), CommandOutcome::Done);
    assert!(!test.ids().contains(&7) && test.ids().len() as u64 == most, "the expired one made room");
    test.put(Actor::System, Command::TokenRevoke(TokenId(3)));
    test.now = Time(31 * DAY_MS);
    test.lead();
    assert!(test.ids().contains(&3));
    assert_eq!(test.create(Actor::System, token(most + 1, VIEW, TenantScope::All)), CommandOutcome::Done);
    assert!(!test.ids().contains(&3), "it ended a month ago");
    test.now = Time(61 * DAY_MS);
    test.lead();
    test.now = Time(100 * DAY_MS);
    test.lead();
    assert_eq!(test.create(Actor::System, token(most + 2, VIEW, TenantScope::All)), CommandOutcome::Done);
    assert_eq!(test.ids(), [most, most + 1, most + 2]);
}

#[test]
fn names_and_number_of_tenants_are_bounded() {
    let mut test = TestLedger::new();
    let mut long = token(1, VIEW, TenantScope::All);
    long.grant.name = "x".repeat(65);
    let refused = |what| CommandOutcome::Refused(CommandRefusal::TooLarge { what, bound: 64 });
    assert_eq!(test.create(Actor::System, long), refused(LimitedQuantity::TokenNameBytes));
    let many = TenantScope::Only((0..65).map(|number| format!("t{number}")).collect());
    assert_eq!(test.create(Actor::System, token(1, VIEW, many)), refused(LimitedQuantity::TokenTenants));
    let long = TenantScope::Only(["x".repeat(65)].into());
    assert_eq!(test.create(Actor::System, token(1, VIEW, long)), refused(LimitedQuantity::TokenNameBytes));
}
