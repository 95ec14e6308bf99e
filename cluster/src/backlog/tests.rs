//! What a node says of a backlog, second by second.

use reveille_ledger::access::Access;
use reveille_ledger::command::{Cause, Command, Entry, EpochStart, Fire, Opening, Reading, Relay, RunPause};
use reveille_ledger::content::Recipient;
use reveille_ledger::ids::{Epoch, Holder, Incarnation, NodeId, Nominal, RunId, ScheduleId};
use reveille_ledger::reply::Outcome;

use super::*;
use crate::samples;

const DUE: Time = Time(60_000);
const RUN: RunId = RunId { index: 5, place: 0 };

fn put(ledger: &mut Ledger, command: Command) -> Outcome {
    let index = ledger.head().applied + 1;
    let epoch = ledger.head().epoch.map_or(Epoch(0), |epoch| epoch.epoch);
    ledger.apply(index, &Entry { epoch, now: DUE, command }).reply.outcome
}

/// A run of `recipients`, opened for this cause, and a relay with a rate.
fn opened(recipients: u32, cause: Cause) -> Ledger {
    let mut ledger = Ledger::new();
    let readings = (1..=2).map(|node| Reading { node: NodeId(node), wall: DUE }).collect();
    let leader = Holder { node: NodeId(1), incarnation: Incarnation(1) };
    put(&mut ledger, Command::EpochStart(EpochStart::new(leader, 2, readings)));
    put(&mut ledger, Command::Tick);
    let relay = Relay {
        name: "main".into(),
        pool: "default".into(),
        host: "127.0.0.1".into(),
        port: 25,
        access: Access::default(),
        rate_milli: 50_000,
        max_sessions: 2,
        late_rate_milli: 0,
        weight: 1,
    };
    put(&mut ledger, Command::RelayPut(relay.into()));
    let recipient = |number: u32| {
        let address = format!("r{number}@example.net");
        Recipient { key: address.clone(), address, values: vec![] }
    };
    put(
        &mut ledger,
        Command::ScheduleCreate(Box::new(samples::schedule(DUE, (0..recipients).map(recipient).collect()))),
    );
    let nominal = Nominal::Instant(DUE);
    let opening = Opening { nominal: nominal.clone(), due: DUE, cause, finish_by: Time(3_600_000) };
    let fire = Fire {
        schedule: ScheduleId(4),
        plan_version: 1,
        from: nominal,
        opened: vec![opening],
        explained: vec![],
        through: DUE,
        next: None,
        tzdb: "test".into(),
    };
    assert_eq!(put(&mut ledger, Command::Fire(vec![fire])), Outcome::Fired(vec![Ok(vec![RUN])]));
    ledger
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn it_has_a_size_an_age_a_rate_and_an_end() {
    let mut watch = Watch::default();
    let first = watch.look(&opened(1_000, Cause::CatchUp), seconds(0));
    let expected = Backlog {
        pool: "default".to_owned(),
        recipients: 1_000,
        oldest: DUE,
        bound_per_second: Some(25.0),
        shrinks_per_second: None,
        eta: None,
        measured: false,
    };
    assert_eq!(first.as_slice(), std::slice::from_ref(&expected), "nobody has looked for long enough");
    let later = watch.look(&opened(900, Cause::Backfill), seconds(10));
    let expected = Backlog { measured: true, ..expected };
    let shrinks =
        Backlog { recipients: 900, shrinks_per_second: Some(10.0), eta: Some(seconds(90)), ..expected.clone() };
    assert_eq!(later, [shrinks]);
    let grown = watch.look(&opened(5_000, Cause::CatchUp), seconds(15));
    assert_eq!(grown, [Backlog { recipients: 5_000, ..expected.clone() }], "what grows has no end");
    let stands = watch.look(&opened(5_000, Cause::CatchUp), seconds(200));
    assert_eq!(stands, [Backlog { recipients: 5_000, ..expected }], "only the last minute counts");
}

#[test]
fn what_is_on_time_or_paused_is_no_backlog() {
    let mut watch = Watch::default();
    assert_eq!(watch.look(&opened(9, Cause::Due), seconds(0)), []);
    assert_eq!(watch.look(&opened(9, Cause::Trigger), seconds(5)), []);
    let mut paused = opened(9, Cause::CatchUp);
    put(&mut paused, Command::RunPause(RunPause { run: RUN, reason: "look".into() }));
    assert_eq!(watch.look(&paused, seconds(10)), []);
}
