//! Tests of the backlog that a node reports, second by second.

use reveille_ledger::access::Access;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{
    Actor, Command, Entry, EpochStart, Fire, NextInstant, Opening, OpeningCause, Relay, RunPause, ScheduleCreate,
    SchedulePause, VoterClock,
};
use reveille_ledger::content::Recipient;
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId, OccurrenceName, RunId, ScheduleId};
use reveille_ledger::planning::catch_up::plan_fire;
use reveille_ledger::policy::{CatchUp, Overlap, Policies};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{ScheduleSettings, ScheduleTiming};

use super::*;
use crate::samples;

const DUE: Time = Time(60_000);
const RUN: RunId = RunId { index: 5, place: 0 };

fn put(ledger: &mut Ledger, command: Command) -> CommandOutcome {
    put_at(ledger, DUE, command)
}

fn put_at(ledger: &mut Ledger, now: Time, command: Command) -> CommandOutcome {
    let index = ledger.head().applied + 1;
    let epoch = ledger.head().current_epoch().unwrap_or_default();
    ledger.apply(index, &Entry { epoch, now, actor: Actor::System, command }).reply.outcome
}

/// Returns a ledger with a run of `recipients` that was opened for this cause, and a relay with a rate.
fn opened(recipients: u32, cause: OpeningCause) -> Ledger {
    let mut ledger = Ledger::new();
    let readings = (1..=2).map(|node| VoterClock { node: NodeId(node), wall: DUE }).collect();
    let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
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
    let occurrence = OccurrenceName::Instant(DUE);
    let opening = Opening { occurrence: occurrence.clone(), due: DUE, cause, finish_by: Time(3_600_000) };
    let fire = Fire {
        schedule: ScheduleId::new(4, 0),
        plan_version: 1,
        from: occurrence,
        opened: vec![opening],
        explained: vec![],
        through: DUE,
        next: None,
        tzdb: "test".into(),
    };
    assert_eq!(put(&mut ledger, Command::Fire(vec![fire])), CommandOutcome::Fired(vec![Ok(vec![RUN])]));
    ledger
}

fn update(watch: &mut BacklogWatch, ledger: &Ledger, at: Duration) -> Vec<Backlog> {
    let mut seen = BacklogReading::of(ledger);
    add_waiting(&mut seen.late, &seen.missed, &Zones::bundled("test"), seen.now);
    watch.update(seen.late, |pool| seen.bounds.get(pool).copied(), at)
}

/// Returns a ledger with a schedule of ten recipients whose runs do not overlap, opened for the first time after an
/// outage.
fn one_after_the_other(when: When, outage_ms: i64) -> (Ledger, Time) {
    many_after_an_outage(&when, outage_ms, &["default"])
}

/// Returns a ledger with one such schedule for each pool.
fn many_after_an_outage(when: &When, outage_ms: i64, pools: &[&str]) -> (Ledger, Time) {
    let mut ledger = opened(9, OpeningCause::Due);
    let policies = Policies { catch_up: CatchUp::All, overlap: Overlap::BufferOne, ..Policies::default() };
    let next = NextInstant { occurrence: OccurrenceName::Instant(DUE), due: DUE, jitter_ms: 0 };
    let recipients = (0..10).map(|number| samples::recipient(&format!("r{number}@example.net"))).collect();
    let schedule = samples::schedule(DUE, recipients);
    let timing = ScheduleTiming::new(when.clone(), "UTC");
    let often = ScheduleCreate { timing, policies, next: Some(next), ..schedule };
    let ids: Vec<ScheduleId> = pools
        .iter()
        .enumerate()
        .map(|(number, pool)| {
            let create = ScheduleCreate { name: format!("often-{number}"), pool: (*pool).into(), ..often.clone() };
            let outcome = put(&mut ledger, Command::ScheduleCreate(Box::new(create)));
            let CommandOutcome::Schedule(id) = outcome else { panic!("{outcome:?}") };
            id
        })
        .collect();
    let now = DUE.plus_ms(outage_ms);
    let readings = (1..=2).map(|node| VoterClock { node: NodeId(node), wall: now }).collect();
    let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
    put_at(&mut ledger, now, Command::EpochStart(EpochStart::new(leader, 2, readings)));
    put_at(&mut ledger, now, Command::Tick);
    let (zone, pattern) = (Zones::bundled("test").get("UTC").expect("UTC"), Pattern::compile(when).expect("a pattern"));
    for id in ids {
        let fire = plan_fire(&ledger, id, &pattern, &zone, now).expect("it is due");
        let outcome = put_at(&mut ledger, now, Command::Fire(vec![fire]));
        assert!(matches!(&outcome, CommandOutcome::Fired(fired) if fired[0].is_ok()), "{outcome:?}");
    }
    (ledger, DUE)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn backlog_reports_size_age_rate_and_end() {
    let mut watch = BacklogWatch::default();
    let first = update(&mut watch, &opened(1_000, OpeningCause::CatchUp), seconds(0));
    let expected = Backlog {
        pool: "default".to_owned(),
        recipients: 1_000,
        oldest: DUE,
        bound_per_second: Some(25.0),
        shrinks_per_second: None,
        eta: None,
        measured: false,
        waiting: 0,
        is_lower_bound: false,
    };
    assert_eq!(first.as_slice(), std::slice::from_ref(&expected), "it was not measured for long enough");
    let later = update(&mut watch, &opened(900, OpeningCause::Backfill), seconds(10));
    let expected = Backlog { measured: true, ..expected };
    let shrinks =
        Backlog { recipients: 900, shrinks_per_second: Some(10.0), eta: Some(seconds(90)), ..expected.clone() };
    assert_eq!(later, [shrinks]);
    let grown = update(&mut watch, &opened(5_000, OpeningCause::CatchUp), seconds(15));
    assert_eq!(grown, [Backlog { recipients: 5_000, ..expected.clone() }], "what grows has no end");
    let stands = update(&mut watch, &opened(5_000, OpeningCause::CatchUp), seconds(200));
    assert_eq!(stands, [Backlog { recipients: 5_000, ..expected }], "only the last minute counts");
}

#[test]
fn on_time_or_paused_runs_are_no_backlog() {
    let mut watch = BacklogWatch::default();
    assert_eq!(update(&mut watch, &opened(9, OpeningCause::Due), seconds(0)), []);
    assert_eq!(update(&mut watch, &opened(9, OpeningCause::Trigger), seconds(5)), []);
    let mut paused = opened(9, OpeningCause::CatchUp);
    put(&mut paused, Command::RunPause(RunPause { run: RUN, reason: "look".into() }));
    assert_eq!(update(&mut watch, &paused, seconds(10)), []);
}

#[test]
fn waiting_instants_count_as_backlog_from_the_start() {
    let when = When::Every { period_ms: 3_600_000, anchor_ms: DUE.0 };
    let (mut ledger, oldest) = one_after_the_other(when, 3 * 3_600_000 + 600_000);
    let mut watch = BacklogWatch::default();
    let first = update(&mut watch, &ledger, seconds(0));
    let expected = Backlog {
        pool: "default".to_owned(),
        recipients: 40,
        oldest,
        bound_per_second: Some(25.0),
        shrinks_per_second: None,
        eta: None,
        measured: false,
        waiting: 3,
        is_lower_bound: false,
    };
    assert_eq!(first, [expected], "one run of ten is open, and three wait behind it");
    let run = ledger.runs().next_back().map(|(id, ..)| id).expect("a run");
    let now = ledger.head().now;
    put_at(&mut ledger, now, Command::RunCancel(run));
    let second = update(&mut watch, &ledger, seconds(10));
    assert_eq!((second[0].recipients, second[0].eta), (30, Some(seconds(30))), "the end of all, not of one run");
    let schedule = *ledger.schedules().iter().next_back().expect("it").0;
    let pause = SchedulePause { schedule, reason: "rest".into() };
    put_at(&mut ledger, now, Command::SchedulePause(pause));
    assert_eq!(update(&mut watch, &ledger, seconds(15)), [], "what is paused is not caught up");
}

#[test]
fn backlog_above_counting_limit_has_no_expected_end() {
    let when = When::Cron { expression: "* * * * *".into() };
    let (ledger, _) = one_after_the_other(when, 11 * 3_600_000);
    let (BacklogReading { late: mut found, missed, now, .. }, mut watch) =
        (BacklogReading::of(&ledger), BacklogWatch::default());
    let mut many = vec![missed[0].clone(); 100];
    let oldest = oldest_missed(&missed[0], now).expect("it was missed");
    let settings = ScheduleSettings { pool: "last".into(), ..(*missed[0].settings).clone() };
    many.push(Schedule { settings: settings.into(), ..missed[0].clone() });
    add_waiting(&mut found, &many, &Zones::bundled("test"), now);
    let late = found["default"];
    assert_eq!((late.waiting, late.is_all), (WAITING_MAX, false), "and not one more is counted");
    let uncounted = Late { recipients: 0, oldest, waiting: 0, is_all: false };
    assert_eq!(found["last"], uncounted, "of a pool that was not come to it is not said that nothing waits");
    watch.update(found.clone(), |_| None, seconds(0));
    let backlogs = watch.update(found, |_| None, seconds(10));
    assert_eq!((backlogs[0].is_lower_bound, backlogs[0].measured, backlogs[0].eta), (true, false, None));
}

#[test]
fn backlog_looks_at_bounded_schedules_and_says_so() {
    let when = When::Every { period_ms: 3_600_000, anchor_ms: DUE.0 };
    let mut pools = vec!["default"; SCHEDULES_MAX];
    pools.push("other");
    let (ledger, oldest) = many_after_an_outage(&when, 3 * 3_600_000 + 600_000, &pools);
    let mut seen = BacklogReading::of(&ledger);
    assert_eq!(seen.missed.len(), SCHEDULES_MAX);
    add_waiting(&mut seen.late, &seen.missed, &Zones::bundled("test"), seen.now);
    let all = &seen.late["default"];
    assert_eq!((all.waiting, all.is_all), (3 * SCHEDULES_MAX as u64, true), "of these all is counted");
    // The first run has opened. The instants that wait for it are not counted.
    assert_eq!((seen.late["other"].recipients, seen.late["other"].oldest), (10, oldest));
    assert_eq!((seen.late["other"].waiting, seen.late["other"].is_all), (0, false));
}
