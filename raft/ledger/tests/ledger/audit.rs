//! Audit records: one for each entry of an operator, in a chain that replicas share and that nothing breaks.

use reveille_ledger::audit::{AuditCaller, AuditObject, AuditOutcome, AuditRecord, CommandKind, RefusalKind};
use reveille_ledger::command::{Actor, Command, OptOut, PickedRecipients, RunPause, ScheduleCreate, ScheduleDelete};
use reveille_ledger::ids::{Hash, RunId, TokenId};
use reveille_ledger::invariants::violations;
use reveille_ledger::planning::archive::{ArchiveCursor, next_batch};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::storage::unpack_block;
use reveille_ledger::token::Rights;
use reveille_ledger::{Ledger, PartContent};

use crate::leading::{TestLedger, tenant_set};
use crate::samples;

const DAY_MS: i64 = 86_400_000;

impl TestLedger {
    /// Sets the share of a tenant, `count` times.
    fn set_share(&mut self, count: u64) {
        for _ in 0..count {
            assert_eq!(self.put(Actor::Insecure, tenant_set("acme")), CommandOutcome::Done);
        }
    }

    fn last(&self) -> &AuditRecord {
        self.ledger.audit().iter().next_back().expect("a record").1
    }
}

fn operator(token: u64, tenant: Option<&str>) -> Actor {
    Actor::Operator { token: TokenId(token), needs: Rights(1), tenant: tenant.map(str::to_owned) }
}

/// Returns all records of the parts and of the state, oldest first.
fn records(ledger: &Ledger) -> Vec<AuditRecord> {
    let mut all = Vec::new();
    for (_, part) in ledger.audit_parts() {
        let rows = part.blocks().iter().flat_map(|block| {
            let bytes = ledger.unsaved_block(&block.hash).expect("the bytes of a block");
            unpack_block(&bytes).expect("rows")
        });
        let opened = Ledger::from_rows(rows).expect("a part");
        let of_part: Vec<_> = opened.audit().iter().map(|(_, record)| record.clone()).collect();
        let PartContent::Audit { first, last, from, to } = part.content else { panic!("records") };
        let (lowest, highest) = (&of_part[0], &of_part[of_part.len() - 1]);
        assert_eq!((first, last, from, to), (lowest.index, highest.index, lowest.at, highest.at));
        all.extend(of_part);
    }
    all.extend(ledger.audit().iter().map(|(_, record)| record.clone()));
    all
}

/// Checks that the records are a chain from `before` to the head.
fn check_chain(ledger: &Ledger, before: Hash) {
    let last = records(ledger).iter().fold(before, |previous, record| {
        assert_eq!(record.previous, previous, "record {}", record.index);
        assert_eq!(AuditRecord::from_bytes(&record.to_bytes()).as_ref(), Ok(record));
        record.hash()
    });
    assert_eq!(last, ledger.head().audit);
}

/// The samples have at least one of each command: a new one does not compile without a sample.
#[test]
fn each_command_of_operator_makes_exactly_one_record() {
    for (name, command) in samples::commands() {
        for actor in [Actor::Insecure, Actor::Local, operator(7, Some("acme"))] {
            let mut test = TestLedger::at(samples::ledger());
            let before = (test.ledger.audit().len(), test.ledger.head().audit);
            let outcome = test.put(actor.clone(), command.clone());
            assert_eq!(test.ledger.audit().len(), before.0 + 1, "{name}");
            let record = test.last();
            assert_eq!((record.previous, record.index), (before.1, test.ledger.head().applied), "{name}");
            assert!(name.starts_with(&format!("{:?}", record.command)), "{name}: {record:?}");
            let is_refused = matches!(outcome, CommandOutcome::Refused(_));
            assert_eq!(matches!(record.outcome, AuditOutcome::Refused(_)), is_refused, "{name}: {outcome:?}");
            assert_ne!(test.ledger.head().audit, before.1, "{name}");
        }
        let mut test = TestLedger::at(samples::ledger());
        let before = test.ledger.head().audit;
        test.put(Actor::System, command);
        assert_eq!(test.ledger.head().audit, before, "{name} of the cluster itself");
    }
}

#[test]
fn record_has_caller_object_reason_and_outcome() {
    let mut test = TestLedger::new();
    test.put(operator(9, Some("acme")), tenant_set("acme"));
    let refused = test.last();
    assert_eq!(refused.caller, AuditCaller::Token(TokenId(9)));
    assert_eq!((refused.tenant.as_deref(), refused.command), (Some("acme"), CommandKind::TenantSet));
    assert_eq!(refused.object, AuditObject::Name("acme".into()));
    assert_eq!(refused.outcome, AuditOutcome::Refused(RefusalKind::TokenNotValid), "there is no such token");

    let (creation, again) = two_of("report");
    test.put(Actor::Local, Command::ScheduleCreate(Box::new(creation.clone())));
    let (first, request) = (test.ledger.head().applied, test.last().request.clone());
    assert_eq!((test.last().caller, test.last().outcome), (AuditCaller::Local, AuditOutcome::Done));
    assert_eq!(request, creation.request);
    test.put(Actor::Insecure, Command::ScheduleCreate(Box::new(creation)));
    assert_eq!(test.last().outcome, AuditOutcome::Repeats(first));
    test.put(Actor::Insecure, Command::SchedulesCreate(again));
    assert_eq!(test.last().object, AuditObject::Items(3));
    assert_eq!(test.last().outcome, AuditOutcome::Partly { done: 2, refused: 1 });

    let (id, _) = test.ledger.schedule_named("default", "report").expect("a schedule");
    test.put(Actor::Insecure, Command::ScheduleDelete(ScheduleDelete { schedule: id, expected: None }));
    assert_eq!(test.last().object, AuditObject::Schedule(id, Some("report".into())), "its name before it was deleted");
    let run = RunId { index: 1, place: 0 };
    test.put(Actor::Insecure, Command::RunPause(RunPause { run, reason: "ä".repeat(200) }));
    assert_eq!(test.last().reason.as_deref(), Some("ä".repeat(128).as_str()), "cut between characters");
    assert_eq!(test.last().outcome, AuditOutcome::Refused(RefusalKind::NoSuchRun));
    let picked = vec![PickedRecipients { run, recipients: vec![3, 4] }];
    test.put(Actor::Insecure, Command::Discard(picked.into()));
    assert_eq!(test.last().object, AuditObject::Recipients(run, 2));
    check_chain(&test.ledger, Hash::default());
}

/// Returns a creation, and a batch in which one name is taken by another body.
fn two_of(name: &str) -> (ScheduleCreate, Vec<ScheduleCreate>) {
    let sample = samples::commands().into_iter().find_map(|(_, command)| match command {
        Command::SchedulesCreate(creates) => creates.into_iter().next(),
        _ => None,
    });
    let sample = sample.expect("a creation");
    let named = |name: &str| ScheduleCreate { request: None, name: name.into(), ..sample.clone() };
    let first = ScheduleCreate { request: Some("once".into()), tenant: "default".into(), ..named(name) };
    let taken = ScheduleCreate { priority: first.priority + 1, request: None, ..first.clone() };
    (first, vec![named("second"), taken, named("third")])
}

#[test]
fn record_has_no_address() {
    let mut test = TestLedger::new();
    let keys = vec!["canary@example.org".to_owned(), "second-canary@example.org".to_owned()];
    test.put(Actor::Insecure, Command::OptOut(OptOut { tenant: "acme".into(), keys }));
    assert_eq!(test.last().object, AuditObject::Items(2));
    for (_, command) in samples::commands() {
        test.put(Actor::Insecure, command);
    }
    for record in records(&test.ledger) {
        let text = format!("{record:?}");
        assert!(!text.contains('@') && !text.contains("canary"), "{text}");
    }
}

#[test]
fn replayed_and_restored_ledgers_have_the_same_head() {
    let mut test = TestLedger::new();
    test.set_share(5_000);
    let mut replayed = Ledger::new();
    for (index, entry) in (1..).zip(&test.entries) {
        replayed.apply(index, entry);
    }
    assert_eq!((replayed.head(), replayed.state_hash()), (test.ledger.head(), test.ledger.state_hash()));
    let rows: Vec<_> = test.ledger.all_rows().collect();
    let mut restored = TestLedger { ledger: Ledger::from_rows(rows).expect("a state"), ..TestLedger::new() };
    assert_eq!(restored.ledger.head().audit, test.ledger.head().audit);
    // Both go on, and archive again at the same entry.
    test.set_share(5_000);
    restored.set_share(5_000);
    assert_eq!(restored.ledger.state_hash(), test.ledger.state_hash());
    assert_eq!(restored.ledger.audit_parts().count(), 2);
}

#[test]
fn full_records_leave_the_state_and_the_chain_goes_on() {
    let mut test = TestLedger::new();
    test.set_share(4_095);
    assert_eq!((test.ledger.audit().len(), test.ledger.audit_parts().count()), (4_095, 0));
    test.set_share(1);
    assert_eq!((test.ledger.audit().len(), test.ledger.audit_parts().count()), (0, 1));
    test.set_share(6_000);
    assert_eq!((test.ledger.audit().len(), test.ledger.audit_parts().count()), (1_904, 2));
    assert_eq!(records(&test.ledger).len(), 10_096);
    check_chain(&test.ledger, Hash::default());
    assert_eq!(violations(&test.ledger), []);
    println!("{} bytes for a part", test.ledger.unsaved_bytes() / 2);

    let first_part = records(&test.ledger)[4_095].hash();
    test.now = test.now.plus_ms(400 * DAY_MS - 1);
    test.lead();
    test.set_share(3_000);
    let archive = |test: &mut TestLedger| {
        let (batch, _) = next_batch(&test.ledger, &ArchiveCursor::default(), test.now, 0);
        let parts = batch.parts.len();
        test.put(Actor::System, Command::Archive(batch));
        parts
    };
    assert_eq!(archive(&mut test), 0, "none is old enough");
    test.now = test.now.plus_ms(1);
    assert_eq!(archive(&mut test), 2, "the last one ends later");
    assert_eq!((test.ledger.audit_parts().count(), records(&test.ledger).len()), (1, 4_904));
    let before = records(&test.ledger)[0].previous;
    assert_ne!(before, first_part, "the second part has left too");
    check_chain(&test.ledger, before);
}

#[cfg(feature = "next-level")]
#[test]
fn oldest_part_leaves_when_there_are_too_many() {
    use crate::leading;
    use reveille_ledger::command::{NodeUp, RaiseLevel};
    use reveille_ledger::level::KNOWN;

    let mut test = TestLedger::new();
    let up = NodeUp { owner: leading::LEADER, name: "one".into(), level: KNOWN, process_nonce: 1 };
    test.put(Actor::System, Command::NodeUp(up));
    let raise = Command::RaiseLevel(RaiseLevel { level: KNOWN, voters: vec![leading::LEADER.node] });
    assert_eq!(test.put(Actor::Insecure, raise), CommandOutcome::Done);
    assert_eq!(test.last().object, AuditObject::Level(KNOWN));
    test.set_share(8 * 6 + 2);
    assert_eq!((test.ledger.audit_parts().count(), test.ledger.audit().len()), (4, 3));
    let kept = records(&test.ledger);
    assert_eq!(kept.len(), 4 * 8 + 3);
    check_chain(&test.ledger, kept[0].previous);
    assert_eq!(test.ledger.parts().iter().count(), 4);
    assert_eq!(violations(&test.ledger), []);
}
