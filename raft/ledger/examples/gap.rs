//! Measures the cost of `min_gap` for an entry (P17).
//!
//! `cargo run --release -p reveille-ledger --example gap`
//!
//! Three schedules make the check read many rows: many runs that sent nothing, an edited list of 10,000, and a gap that
//! was set after a thousand emails. A fourth is beside many open runs of another schedule. The output is in
//! `docs/performance.md`.
#![allow(clippy::print_stdout, clippy::disallowed_types)]

#[path = "../tests/ledger/plain/mod.rs"]
mod plain;

use std::time::Instant;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{
    Actor, Backfill, ClaimOutcome, ClaimRequest, Command, Entry, EpochStart, Fire, NextInstant, NodeUp, Opening,
    OpeningCause, ScheduleCreate, ScheduleEdit, Trigger, VoterClock,
};
use reveille_ledger::content::{Audience, AudienceChoice, Recipient};
use reveille_ledger::ids::{ClaimOwner, Fence, Hash, Incarnation, NodeId, Nominal, PageId, RunId, ScheduleId, Time};
use reveille_ledger::limits::limits;
use reveille_ledger::policy::{HOUR_MS, MINUTE_MS, Overlap, Policies};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{LEVEL, Ledger};

const OWNER: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
const SLICE: u32 = limits(LEVEL).slice_recipients_max;
const NOW: Time = Time(1_800_000_000_000);

struct TestLedger {
    ledger: Ledger,
}

impl TestLedger {
    fn new() -> TestLedger {
        let mut test = TestLedger { ledger: Ledger::new() };
        let readings = vec![VoterClock { node: OWNER.node, wall: NOW }];
        test.put(Command::EpochStart(EpochStart::new(OWNER, 1, readings)));
        test.put(Command::NodeUp(NodeUp { owner: OWNER, name: "one".into(), level: LEVEL, process_nonce: 1 }));
        test
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        self.ledger.apply(head.applied + 1, &Entry { epoch, now: NOW, actor: Actor::System, command }).reply.outcome
    }

    fn timed(&mut self, what: &str, command: Command) -> CommandOutcome {
        let begun = Instant::now();
        let outcome = self.put(command);
        println!("  {what}: {:.3} ms", begun.elapsed().as_secs_f64() * 1_000.0);
        outcome
    }

    fn create(&mut self, name: &str, people: std::ops::Range<u32>, min_gap_ms: i64) -> ScheduleId {
        self.create_before(name, people, min_gap_ms, 0)
    }

    /// Creates a schedule whose first instant is `minutes - 1` minutes ago.
    fn create_before(&mut self, name: &str, people: std::ops::Range<u32>, min_gap_ms: i64, minutes: i64) -> ScheduleId {
        let policies = Policies { min_gap_ms, overlap: Overlap::Allow, ..Policies::default() };
        let next = Some(next_at(instant(minutes - 1)));
        let create = ScheduleCreate { policies, next, ..plain::schedule(name, audience(people), instant(minutes)) };
        match self.put(Command::ScheduleCreate(Box::new(create))) {
            CommandOutcome::Schedule(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn edit(&mut self, schedule: ScheduleId, people: Option<std::ops::Range<u32>>, min_gap_ms: Option<i64>) {
        let present = self.ledger.schedules().get(&schedule).expect("the schedule");
        let policies = min_gap_ms.map(|min_gap_ms| Policies { min_gap_ms, ..(*present.settings.policies).clone() });
        let edit = ScheduleEdit {
            request: None,
            body: Hash([0; 32]),
            schedule,
            plan_version: present.plan.version,
            timing: None,
            policies,
            pool: None,
            priority: None,
            content: None,
            audience: people.map(audience),
            labels: None,
        };
        assert_eq!(self.put(Command::ScheduleEdit(Box::new(edit))), CommandOutcome::Schedule(schedule));
    }

    /// Returns claims for all recipients of the runs, one whole slice each, in entries of 256 claims.
    fn claims(&self, runs: impl Iterator<Item = (RunId, u32)>) -> Vec<ClaimRequest> {
        let slices = runs.flat_map(|(page, count)| {
            (0..count).step_by(SLICE as usize).map(move |first| ClaimRequest {
                chunk: PageId(page).chunk(0),
                slice: Bitmap::range(first, SLICE.min(count - first)),
                owner: OWNER,
            })
        });
        slices.collect()
    }

    fn send(&mut self, run: RunId, count: u32) {
        let claims = self.claims([(run, count)].into_iter());
        let CommandOutcome::Claimed(fences) = self.put(Command::Claim(claims.clone())) else { panic!("no claims") };
        let settle = |(claim, fence): (&ClaimRequest, &Result<Fence, _>)| {
            let fence = *fence.as_ref().ok()?;
            Some(ClaimOutcome { accepted: claim.slice.clone(), ..ClaimOutcome::empty(PageId(run).chunk(0), fence) })
        };
        let settles = claims.iter().zip(&fences).filter_map(settle).collect();
        self.put(Command::Settle(settles));
    }

    /// Opens one instant a minute with a fire each; the last one is `before` minutes ago. Uses fires, because the
    /// instants of one backfill would suppress each other. The last fire moves the plan beyond all instants up to now.
    fn open(&mut self, schedule: ScheduleId, before: i64, count: i64) {
        for minute in (before..before + count).rev() {
            let plan = &self.ledger.schedules().get(&schedule).expect("the schedule").plan;
            let due = instant(minute);
            let finish_by = NOW.plus_ms(HOUR_MS);
            let opened = vec![Opening { nominal: Nominal::Instant(due), due, cause: OpeningCause::CatchUp, finish_by }];
            let (through, next) = if minute == before { (NOW, -1) } else { (due, minute - 1) };
            let fire = Fire {
                schedule,
                plan_version: plan.version,
                from: plan.next.as_ref().expect("an instant").nominal.clone(),
                through,
                opened,
                explained: vec![],
                next: Some(next_at(instant(next))),
                tzdb: "test".into(),
            };
            let outcome = self.put(Command::Fire(vec![fire]));
            assert!(matches!(&outcome, CommandOutcome::Fired(answers) if answers[0].is_ok()), "{outcome:?}");
        }
    }

    /// Returns the pages of a schedule's runs, with their number of recipients.
    fn runs(&self, schedule: ScheduleId) -> Vec<(RunId, u32)> {
        self.ledger.runs().filter(|(_, _, run)| run.schedule == schedule).map(|(id, _, run)| (id, run.count)).collect()
    }
}

fn audience(people: std::ops::Range<u32>) -> AudienceChoice {
    let one = |number: u32| {
        let address = format!("recipient.{number}@example.org");
        Recipient { key: address.clone(), address, values: vec![] }
    };
    AudienceChoice::Listed(Audience { columns: vec![], recipients: people.map(one).collect() })
}

fn instant(before: i64) -> Time {
    NOW.plus_ms(-before * MINUTE_MS)
}

fn next_at(due: Time) -> NextInstant {
    NextInstant { nominal: Nominal::Instant(due), due, jitter_ms: 0 }
}

/// Returns a backfill with one instant a minute; the last one is `before` minutes ago.
fn minutes(schedule: ScheduleId, before: i64, count: i64) -> Command {
    let opening = |minute: i64| {
        let due = instant(before + minute);
        let finish_by = NOW.plus_ms(HOUR_MS);
        Opening { nominal: Nominal::Instant(due), due, cause: OpeningCause::Backfill, finish_by }
    };
    let openings = (0..count).rev().map(opening).collect();
    Command::Backfill(Backfill { request: None, body: Hash([0; 32]), schedule, openings, known: 0, rest: None })
}

fn first_run(outcome: &CommandOutcome) -> RunId {
    match outcome {
        CommandOutcome::Backfilled { first: Some(run), .. } | CommandOutcome::Run { run, .. } => *run,
        other => panic!("{other:?}"),
    }
}

fn main() {
    println!("by the minute, one recipient, a gap of 20 h; two days of runs, of which three sent an email");
    let mut test = TestLedger::new();
    let minutely = test.create_before("minutely", 0..1, 20 * HOUR_MS, 6_000);
    test.open(minutely, 3_000, 3_000);
    let runs = test.runs(minutely);
    for (page, count) in [runs[0], runs[1_300], runs[2_600]] {
        test.send(page, count);
    }
    for (number, claims) in test.claims(runs.into_iter()).chunks(256).enumerate() {
        let command = Command::Claim(claims.to_vec());
        if number == 5 {
            test.timed("an entry of 256 claims", command)
        } else {
            test.put(command)
        };
    }
    test.timed("a backfill of 1,000 instants, beside those that were suppressed", minutes(minutely, 2_000, 1_000));
    test.timed("a backfill of 1,000 instants, all inside the gap", minutes(minutely, 6_000, 1_000));
    test.timed("a trigger", Command::Trigger(Trigger::new(minutely, "again")));

    println!("10,000 recipients, a gap of 20 h; the list was edited after it was sent");
    let mut test = TestLedger::new();
    let large = test.create("large", 0..10_000, 20 * HOUR_MS);
    let first = test.put(minutes(large, 60, 1));
    test.edit(large, Some(1..10_001), None);
    let beside = test.put(minutes(large, 59, 1));
    test.send(first_run(&first), 10_000);
    let claims = test.claims([(first_run(&beside), 10_000)].into_iter());
    test.timed("an entry of 40 claims, 256 recipients each, which grants one", Command::Claim(claims));
    let opened = test.timed("a trigger, which opens for one of them", Command::Trigger(Trigger::new(large, "one")));
    let claims = test.claims([(first_run(&opened), 10_000)].into_iter());
    test.timed("an entry of 40 claims, of which one finds a pending recipient", Command::Claim(claims));
    test.timed("a backfill of 100 instants", minutes(large, 100, 100));
    test.timed("a backfill of 1,000 instants", minutes(large, 210, 1_000));

    println!("10,000 recipients, no gap; 1,200 runs by the minute that mailed all but one; then a gap of 20 h");
    let mut test = TestLedger::new();
    let late = test.create("late", 0..10_000, 0);
    test.timed("a backfill of 960 instants, without a gap", minutes(late, 240, 960));
    test.put(minutes(late, 0, 240));
    for (run, count) in test.runs(late) {
        test.send(run, count - 1);
    }
    test.edit(late, None, Some(20 * HOUR_MS));
    let opened = test.timed("a trigger, which opens for one of them", Command::Trigger(Trigger::new(late, "one")));
    let claims = test.claims([(first_run(&opened), 10_000)].into_iter());
    test.timed("an entry of 40 claims, of which one finds a pending recipient", Command::Claim(claims));
    test.timed("a backfill of 100 instants", minutes(late, 1_200, 100));

    println!("one recipient, a gap of 20 h, beside 200,000 open runs of another schedule");
    let mut test = TestLedger::new();
    let other = test.create("other", 0..1, 0);
    for thousand in 0..200 {
        test.put(minutes(other, 1_000 * thousand, 1_000));
    }
    let beside = test.create("beside", 0..1, 20 * HOUR_MS);
    test.timed("a backfill of one instant", minutes(beside, 60, 1));
}
