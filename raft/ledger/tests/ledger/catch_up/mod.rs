//! Proposals of a leader after an outage (P8, P16): each instant is opened or explained, and nothing opens that the
//! policy forbids.
//!
//! Each test drives a ledger through `plan_fire` and `apply` as the timer does, in real zones around their clock
//! changes. It compares the result with a simple implementation of the policy.

mod backfilled;
mod behind_a_run;

use std::collections::BTreeMap;

use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::calendar::{Pattern, Step, When, steps_after};
use reveille_ledger::command::{
    Actor, ClaimOutcome, ClaimRequest, Command, ENTRY_BYTES_MAX, Entry, EpochStart, NextInstant, NodeUp, OpeningCause,
    Replan, ScheduleCreate, UnopenedReason, VoterClock,
};
use reveille_ledger::content::{Audience, Recipient};
use reveille_ledger::ids::{
    ClaimOwner, Epoch, Fence, Incarnation, NodeId, OccurrenceName, PageId, RunId, ScheduleId, Time,
};
use reveille_ledger::invariants::violations;
use reveille_ledger::limits::limits;
use reveille_ledger::planning::catch_up::{STEPS_MAX, plan_fire, plan_last_fire_of_old_timing};
use reveille_ledger::planning::replan::{outdated, replan};
use reveille_ledger::planning::timing::{Calendar, Jitter, Zone, first_instant_after};
use reveille_ledger::policy::{CatchUp, DAY_MS, HOUR_MS, MINUTE_MS, Overlap, Policies};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{InstantOutcome, LEVEL, Ledger, ScheduleState, ScheduleTiming};

use crate::plain;

/// A ledger with one schedule, fired as a timer does.
struct ScheduleTest {
    ledger: Ledger,
    schedule: ScheduleId,
    pattern: Pattern,
    zone: Zone,
    created: Time,
    now: Time,
}

/// Differences of a schedule from the default.
#[derive(Clone, Debug)]
struct ScheduleOptions {
    policies: Policies,
    start: Option<Time>,
    end: Option<Time>,
    max_runs: Option<u32>,
}

/// Returns the jitter window of the test's schedule.
fn jitter(policies: &Policies) -> Jitter<'static> {
    Jitter { tenant: "default", name: "drill", window_ms: policies.jitter_ms }
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions { policies: side_by_side(), start: None, end: None, max_runs: None }
    }
}

/// Policies with which no run waits for another, so that each instant is judged by itself.
fn side_by_side() -> Policies {
    Policies { overlap: Overlap::Allow, ..Policies::default() }
}

fn cron(expression: &str) -> When {
    When::Cron { expression: expression.into() }
}

fn zone(name: &str) -> Zone {
    Zone { rules: TimeZoneDatabase::bundled().get(name).expect(name), tzdb: name.into() }
}

fn at(text: &str) -> Time {
    text.parse::<jiff::Timestamp>().expect(text).into()
}

impl ScheduleTest {
    fn new(when: When, zone_name: &str, created: Time, options: &ScheduleOptions) -> ScheduleTest {
        let (pattern, zone) = (Pattern::compile(&when).expect("a pattern"), zone(zone_name));
        let next = first_instant_after(
            Calendar { pattern: &pattern, zone: &zone },
            &options.policies.dst,
            created,
            (options.start, options.end),
            jitter(&options.policies),
        );
        let mut test = ScheduleTest {
            ledger: Ledger::new(),
            schedule: ScheduleId::new(2, 0),
            pattern,
            zone,
            created,
            now: created,
        };
        test.leap_to(created);
        let recipient = Recipient { address: "a@x.org".into(), key: "a@x.org".into(), values: vec![] };
        let create = ScheduleCreate {
            timing: ScheduleTiming {
                when,
                zone: zone_name.into(),
                start: options.start,
                end: options.end,
                max_runs: options.max_runs,
            },
            policies: options.policies.clone(),
            next,
            tzdb: zone_name.into(),
            ..plain::schedule("drill", Audience { columns: vec![], recipients: vec![recipient] }, created)
        };
        assert_eq!(test.put(Command::ScheduleCreate(Box::new(create))), CommandOutcome::Schedule(test.schedule));
        test
    }

    /// Advances time without a leader; then a new leader begins an epoch.
    fn leap_to(&mut self, now: Time) {
        self.now = now;
        let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        let readings = vec![VoterClock { node: NodeId(1), wall: now }];
        self.put(Command::EpochStart(EpochStart::new(leader, 1, readings)));
    }

    /// Advances time under a leader whose timer has nothing to do.
    fn wait_until(&mut self, then: Time) {
        while self.now < then {
            self.now = then.min(self.now.plus_ms(MINUTE_MS));
            assert_eq!(self.put(Command::Tick), CommandOutcome::Done);
        }
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        let entry = Entry { epoch, now: self.now, actor: Actor::System, command };
        self.ledger.apply(head.applied + 1, &entry).reply.outcome
    }

    /// Does what the timer does: fires until nothing is due. Returns the number of entries.
    fn catch_up(&mut self) -> usize {
        for turn in 0..100 {
            let Some(fire) = plan_fire(&self.ledger, self.schedule, &self.pattern, &self.zone, self.now) else {
                let stuck = self.ledger.due().next().filter(|(due, _)| *due <= self.now);
                assert_eq!(stuck, None, "something is due, and no fire comes");
                return turn;
            };
            match self.put(Command::Fire(vec![fire.clone()])) {
                CommandOutcome::Fired(answers) => assert!(answers[0].is_ok(), "{answers:?} to {fire:?}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(violations(&self.ledger), []);
        }
        panic!("a hundred fires, and more is due");
    }

    /// Does what the timer does when nothing is due: replans with the present rules.
    fn replan(&mut self) -> CommandOutcome {
        let (found, rest) = outdated(&self.ledger, None, &self.zone.tzdb, self.now);
        assert_eq!(rest, None);
        let plan_of = |id: &ScheduleId| {
            replan(*id, self.ledger.schedules().get(id).expect("it was found"), &self.pattern, &self.zone)
        };
        let replans = found.iter().filter_map(plan_of).collect();
        let outcome = self.put(Command::Replan(replans));
        assert_eq!(violations(&self.ledger), []);
        outcome
    }

    fn after_outage(&mut self, lasting_ms: i64) {
        self.leap_to(self.now.plus_ms(lasting_ms));
        self.catch_up();
    }

    /// Claims the recipient of the open run. A claimed run delays the next instant even after its deadline.
    fn claim(&mut self) -> (RunId, Fence) {
        let owner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        self.put(Command::NodeUp(NodeUp { owner, name: "one".into(), level: LEVEL, process_nonce: 1 }));
        let page = self.unfinished()[0];
        let claimed = self.put(Command::Claim(vec![ClaimRequest {
            chunk: PageId(page).chunk(0),
            slice: Bitmap::range(0, 1),
            owner,
        }]));
        match claimed {
            CommandOutcome::Claimed(fences) => (page, *fences[0].as_ref().expect("granted")),
            other => panic!("{other:?}"),
        }
    }

    /// Sends the claimed recipient, so its run delays nothing any more.
    fn send(&mut self, (page, fence): (RunId, Fence)) {
        let outcome =
            ClaimOutcome { accepted: Bitmap::range(0, 1), ..ClaimOutcome::empty(PageId(page).chunk(0), fence) };
        assert_eq!(self.put(Command::Settle(vec![outcome])), CommandOutcome::Changed(1));
        assert_eq!(violations(&self.ledger), []);
    }

    /// Returns the unfinished runs.
    fn unfinished(&self) -> Vec<RunId> {
        self.ledger.runs().filter(|(_, _, run)| !run.counts.is_finished()).map(|(id, ..)| id).collect()
    }

    /// Cancels all unfinished runs, and fires what waited for them.
    fn finish(&mut self) {
        for run in self.unfinished() {
            assert!(matches!(self.put(Command::RunCancel(run)), CommandOutcome::Changed(_)), "{run}");
        }
        self.catch_up();
    }

    /// Repeats this until nothing is open and nothing waits. Each turn ends at least one run, and no instant has two.
    fn finish_all(&mut self) {
        let due = self.steps(self.created, self.now).len();
        for _ in 0..=due {
            if self.unfinished().is_empty() {
                return;
            }
            self.finish();
        }
        panic!("more than the {due} instants that were due");
    }

    fn opened(&self) -> Vec<(OccurrenceName, Time, OpeningCause)> {
        self.ledger.runs().map(|(_, _, run)| (run.occurrence.clone(), run.due, run.cause)).collect()
    }

    fn explained(&self) -> BTreeMap<UnopenedReason, u64> {
        let mut counts = BTreeMap::new();
        for (_, history) in self.ledger.history().iter() {
            if let InstantOutcome::Explained { reason, instants, .. } = history {
                *counts.entry(*reason).or_default() += u64::from(instants.count());
            }
        }
        counts
    }

    fn state(&self) -> &ScheduleState {
        &self.ledger.schedules().get(&self.schedule).expect("the schedule").state
    }

    /// Returns all steps of the calendar in `(after, through]`.
    fn steps(&self, after: Time, through: Time) -> Vec<Step> {
        let dst = side_by_side().dst;
        let all = steps_after(&self.pattern, &self.zone.rules, &dst, after.timestamp());
        all.take_while(|step| Time::from(step.instant()) <= through).collect()
    }
}

const MINUTELY: &str = "* * * * *";
const OUTAGES: [(&str, i64); 4] =
    [("1 min", MINUTE_MS), ("11 min", 11 * MINUTE_MS), ("23 h", 23 * HOUR_MS), ("4 days", 4 * DAY_MS)];

/// Returns the opened and explained instants of a schedule with one instant a minute after an outage.
fn minutely_after(outage_ms: i64, catch_up: CatchUp, start_within_ms: i64) -> (usize, BTreeMap<UnopenedReason, u64>) {
    let options = ScheduleOptions {
        policies: Policies { catch_up, start_within_ms, ..side_by_side() },
        ..ScheduleOptions::default()
    };
    let mut test = ScheduleTest::new(cron(MINUTELY), "UTC", at("2026-03-02T00:00:00Z"), &options);
    test.after_outage(outage_ms);
    (test.opened().len(), test.explained())
}

#[test]
fn one_opens_the_latest_missed_instant_and_explains_the_others() {
    use UnopenedReason::{Coalesced, TooLate};
    let expected = [
        // An instant that is at most a minute late is on time.
        (1, vec![]),
        // The last two are on time: the one a minute ago, and the present one.
        (2, vec![(Coalesced, 9)]),
        (2, vec![(Coalesced, 12 * 60 - 1), (TooLate, 11 * 60 - 1)]),
        (2, vec![(Coalesced, 12 * 60 - 1), (TooLate, 84 * 60 - 1)]),
    ];
    for ((name, outage), (opened, explained)) in OUTAGES.into_iter().zip(expected) {
        let explained: BTreeMap<UnopenedReason, u64> = explained.into_iter().collect();
        assert_eq!(minutely_after(outage, CatchUp::One, 12 * HOUR_MS), (opened, explained), "{name}");
    }
}

#[test]
fn catch_up_one_opens_one_run_over_many_explanation_entries() {
    let mut test = {
        let policies = Policies { start_within_ms: 30 * DAY_MS, ..side_by_side() };
        let when = When::Every { period_ms: 7 * 60_000, anchor_ms: at("2026-03-02T00:00:00Z").0 };
        ScheduleTest::new(
            when,
            "UTC",
            at("2026-03-02T00:00:00Z"),
            &ScheduleOptions { policies, ..ScheduleOptions::default() },
        )
    };
    // 23 days have 4,731 instants, the last one three minutes before the end.
    test.leap_to(test.now.plus_ms(23 * DAY_MS));
    assert!(test.catch_up() > 1, "more than one entry was needed");
    assert_eq!(test.opened().len(), 1);
    assert_eq!(test.explained(), BTreeMap::from([(UnopenedReason::Coalesced, 4_730)]));
}

#[test]
fn all_opens_each_within_start_within() {
    let expected = [(1, 0), (11, 0), (12 * 60 + 1, 11 * 60 - 1), (12 * 60 + 1, 84 * 60 - 1)];
    for ((name, outage), (opened, too_late)) in OUTAGES.into_iter().zip(expected) {
        let (runs, explained) = minutely_after(outage, CatchUp::All, 12 * HOUR_MS);
        assert_eq!((runs, explained.values().sum::<u64>()), (opened, too_late), "{name}");
        assert!(explained.keys().all(|reason| *reason == UnopenedReason::TooLate), "{name}: {explained:?}");
    }
}

#[test]
fn catch_up_none_opens_only_on_time_instants() {
    for ((name, outage), (opened, missed)) in OUTAGES.into_iter().zip([(1, 0), (2, 9), (2, 1_378), (2, 5_758)]) {
        let (runs, explained) = minutely_after(outage, CatchUp::None, 100 * DAY_MS);
        assert_eq!((runs, explained.get(&UnopenedReason::NoCatchUp).copied().unwrap_or(0)), (opened, missed), "{name}");
    }
}

#[test]
fn schedule_with_later_start_fires_at_its_start() {
    let created = at("2026-03-02T00:00:00Z");
    let options = ScheduleOptions { start: Some(created.plus_ms(30 * DAY_MS)), ..ScheduleOptions::default() };
    let mut test = ScheduleTest::new(cron(MINUTELY), "UTC", created, &options);
    test.after_outage(30 * DAY_MS);
    assert_eq!(test.opened().len(), 1);
    assert!(test.explained().is_empty(), "what comes before the start is not an instant: {:?}", test.explained());
}

#[test]
fn schedule_ended_during_outage_opens_last_instant() {
    let created = at("2026-03-02T00:00:00Z");
    let options = ScheduleOptions { end: Some(created.plus_ms(HOUR_MS)), ..ScheduleOptions::default() };
    let mut test = ScheduleTest::new(cron(MINUTELY), "UTC", created, &options);
    test.after_outage(3 * HOUR_MS);
    assert_eq!(
        test.opened(),
        [(OccurrenceName::Instant(created.plus_ms(HOUR_MS)), created.plus_ms(HOUR_MS), OpeningCause::CatchUp)]
    );
    assert_eq!(test.explained(), BTreeMap::from([(UnopenedReason::Coalesced, 59)]));
    assert_eq!(*test.state(), ScheduleState::Done);
}

#[test]
fn max_runs_ends_a_schedule_in_the_middle_of_a_backlog() {
    let created = at("2026-03-02T00:00:00Z");
    let policies = Policies { catch_up: CatchUp::All, ..side_by_side() };
    let options = ScheduleOptions { policies, max_runs: Some(7), ..ScheduleOptions::default() };
    let mut test = ScheduleTest::new(cron(MINUTELY), "UTC", created, &options);
    test.after_outage(3 * MINUTE_MS);
    test.after_outage(10 * MINUTE_MS);
    let dues: Vec<i64> = test.opened().iter().map(|(_, due, _)| due.since_ms(created) / MINUTE_MS).collect();
    assert_eq!(dues, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(*test.state(), ScheduleState::Done);
    assert!(test.explained().is_empty());
}

#[test]
fn run_deadline_is_next_instant_and_at_least_ten_minutes() {
    let created = at("2026-03-02T00:00:00Z");
    let finish_of = |expression: &str, outage_ms: i64| {
        let mut test = ScheduleTest::new(cron(expression), "UTC", created, &ScheduleOptions::default());
        test.after_outage(outage_ms);
        let last = test.ledger.runs().next_back().map(|(_, _, run)| run.finish_by).expect("a run");
        last.since_ms(test.now)
    };
    assert_eq!(finish_of("0 9 * * 1", 9 * HOUR_MS), DAY_MS, "24 h where the next instant is a week away");
    assert_eq!(finish_of("0 * * * *", HOUR_MS), HOUR_MS, "the next instant");
    assert_eq!(finish_of("0 * * * *", HOUR_MS + 55 * MINUTE_MS), 10 * MINUTE_MS, "ten minutes at least");
}

#[test]
fn clock_gap_is_explained_and_overlap_fires_once() {
    let spring = at("2026-03-07T12:00:00Z");
    let mut test = ScheduleTest::new(
        cron("30 2,9 * * *"),
        "America/New_York",
        spring,
        &ScheduleOptions {
            policies: Policies { catch_up: CatchUp::All, ..side_by_side() },
            ..ScheduleOptions::default()
        },
    );
    for _ in 0..96 {
        test.after_outage(30 * MINUTE_MS);
    }
    let dues: Vec<String> = test.opened().iter().map(|(_, due, _)| due.to_string()).collect();
    // 02:30 does not exist on the 8th and moves to 03:00 EDT, which is 07:00 UTC.
    let expected = ["2026-03-07T14:30:00Z", "2026-03-08T07:00:00Z", "2026-03-08T13:30:00Z", "2026-03-09T06:30:00Z"];
    assert_eq!(dues, expected);
    let missing = at("2011-12-29T00:00:00Z");
    let mut test = ScheduleTest::new(cron("0 9 * * *"), "Pacific/Apia", missing, &ScheduleOptions::default());
    for _ in 0..72 {
        test.after_outage(HOUR_MS);
    }
    assert_eq!(test.explained(), BTreeMap::from([(UnopenedReason::DoesNotExist, 1)]), "30 December never was");
}

#[test]
fn new_rules_that_move_the_planned_instant_later_do_not_block_the_schedule() {
    // The plan has 09:00 in Athens (07:00 UTC); by the new rules, those of London, it is 09:00 UTC.
    let mut test =
        ScheduleTest::new(cron("0 9 * * *"), "Europe/Athens", at("2026-01-10T00:00:00Z"), &ScheduleOptions::default());
    test.zone = zone("Europe/London");
    test.after_outage(7 * HOUR_MS);
    assert_eq!((test.state(), test.opened().len()), (&ScheduleState::Active, 0));
    test.after_outage(2 * HOUR_MS);
    let dues: Vec<String> = test.opened().iter().map(|(_, due, _)| due.to_string()).collect();
    assert_eq!(dues, ["2026-01-10T09:00:00Z"]);
    // An instant that is named by its time does not occur again, so it is explained.
    let mut test =
        ScheduleTest::new(cron("0 */6 * * *"), "Asia/Kolkata", at("2026-01-10T00:00:00Z"), &ScheduleOptions::default());
    test.zone = zone("Europe/London");
    test.after_outage(35 * MINUTE_MS);
    assert_eq!(test.state(), &ScheduleState::Active);
    assert_eq!(test.explained(), BTreeMap::from([(UnopenedReason::DoesNotExist, 1)]));
}

#[test]
fn zone_rules_that_move_instant_earlier_open_it_late_and_once() {
    let mut test =
        ScheduleTest::new(cron("0 9 * * *"), "Europe/London", at("2026-01-10T00:00:00Z"), &ScheduleOptions::default());
    test.zone = zone("Europe/Athens");
    test.after_outage(9 * HOUR_MS);
    assert_eq!(test.opened().len(), 1, "07:00 UTC, found at 09:00");
    test.after_outage(DAY_MS);
    assert_eq!(test.opened().len(), 2);
}

#[test]
fn opened_occurrence_does_not_open_again_under_new_rules() {
    let mut test =
        ScheduleTest::new(cron("0 9 * * *"), "Europe/Athens", at("2026-01-10T00:00:00Z"), &ScheduleOptions::default());
    test.after_outage(7 * HOUR_MS);
    assert_eq!(test.opened().len(), 1);
    test.zone = zone("Europe/London");
    test.after_outage(2 * HOUR_MS);
    test.after_outage(DAY_MS);
    let dues: Vec<String> = test.opened().iter().map(|(_, due, _)| due.to_string()).collect();
    assert_eq!(dues, ["2026-01-10T07:00:00Z", "2026-01-11T09:00:00Z"]);
}

fn daily_in_a_window_of_a_day(catch_up: CatchUp) -> ScheduleTest {
    let policies = Policies { catch_up, jitter_ms: DAY_MS, start_within_ms: 2 * DAY_MS, ..side_by_side() };
    ScheduleTest::new(
        cron("0 0 * * *"),
        "UTC",
        at("2026-03-01T12:00:00Z"),
        &ScheduleOptions { policies, ..ScheduleOptions::default() },
    )
}

fn next_of(test: &ScheduleTest) -> NextInstant {
    test.ledger.schedules().get(&test.schedule).and_then(|known| known.plan.next.clone()).expect("a next instant")
}

/// Only an instant that can open replaces missed ones, not one that still waits for its jitter (P16).
#[test]
fn missed_instant_is_caught_up_while_next_one_waits_for_its_place() {
    let mut test = daily_in_a_window_of_a_day(CatchUp::One);
    let mut missed = 0;
    for _ in 0..20 {
        let before = next_of(&test);
        test.leap_to(before.due.plus_ms(DAY_MS + 2 * MINUTE_MS));
        test.catch_up();
        let after = next_of(&test);
        if after.due == before.due.plus_ms(DAY_MS) {
            missed += 1;
            assert!(test.ledger.has_opened(&(test.schedule, before.occurrence.clone())), "{before:?} then {after:?}");
        }
    }
    assert!(missed > 10, "{missed}");
}

/// An edit opens the due instant of the former timing, whatever its jitter, and this is on time (P8).
#[test]
fn edit_before_spread_place_opens_instant_on_time() {
    let mut test = daily_in_a_window_of_a_day(CatchUp::None);
    let next = next_of(&test);
    let now = next.due.plus_ms(5 * MINUTE_MS);
    assert!(next.opens() > now, "{next:?}");
    test.leap_to(now);
    let fire =
        plan_last_fire_of_old_timing(&test.ledger, test.schedule, &test.pattern, &test.zone, now).expect("a fire");
    let causes: Vec<OpeningCause> = fire.opened.iter().map(|opening| opening.cause).collect();
    assert_eq!((causes, fire.explained), (vec![OpeningCause::Due], vec![]));
}

/// No entry exceeds 1 MiB, although a thousand schedules catch up four days together, or one opens all that it missed
/// (P8).
#[test]
fn fires_after_long_outage_fit_into_an_entry() {
    let size_of = |catch_up, overlap| {
        let policies = Policies { catch_up, overlap, start_within_ms: 100 * DAY_MS, ..side_by_side() };
        let mut test = ScheduleTest::new(
            cron("30 1,2,9 * * *"),
            "America/New_York",
            at("2026-03-01T00:00:00Z"),
            &ScheduleOptions { policies, ..ScheduleOptions::default() },
        );
        test.leap_to(test.now.plus_ms(400 * DAY_MS));
        let fire = plan_fire(&test.ledger, test.schedule, &test.pattern, &test.zone, test.now).expect("a fire");
        assert!(fire.opened.len() + fire.explained.len() <= STEPS_MAX + 1);
        // The timer limits the openings, ranges and distances of an entry to this number.
        let weight =
            fire.opened.len() + fire.explained.iter().map(|range| 1 + range.instants.stored_distances()).sum::<usize>();
        let fires = (limits(LEVEL).entry_openings_max / weight + 1).min(1_024);
        let entry =
            Entry { epoch: Epoch(1), now: test.now, actor: Actor::System, command: Command::Fire(vec![fire; fires]) };
        entry.to_bytes().len()
    };
    let size = size_of(CatchUp::One, Overlap::Allow);
    assert!(size < ENTRY_BYTES_MAX / 2, "{size}");
    // One instant opens, and all others are explained.
    let size = size_of(CatchUp::All, Overlap::Skip);
    assert!(size < ENTRY_BYTES_MAX / 2, "{size}");
    // All instants open.
    let size = size_of(CatchUp::All, Overlap::Allow);
    assert!(size < ENTRY_BYTES_MAX / 2, "{size}");
}

/// Patterns of both kinds, and zones with different rules. The drills include the clock changes of 2026.
fn anywhere() -> impl Strategy<Value = (When, &'static str, &'static str)> {
    let when = prop::sample::select(vec![
        cron("0 2 * * *"),
        cron("30 1,2,9 * * *"),
        cron("0 0 * * *"),
        cron("*/15 * * * *"),
        cron("0 9 * * 1"),
        When::Every { period_ms: 7 * 60_000 + 13_000, anchor_ms: 1_000 },
        When::At { instant_ms: 1_774_000_000_000 },
    ]);
    let place = prop::sample::select(vec![
        ("America/New_York", "2026-03-07T00:00:00Z"),
        ("America/New_York", "2026-10-31T00:00:00Z"),
        ("Europe/Berlin", "2026-03-28T00:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-02T00:00:00Z"),
        ("Africa/Cairo", "2026-04-23T00:00:00Z"),
        ("America/Santiago", "2026-09-05T00:00:00Z"),
        ("Asia/Kolkata", "2026-05-01T00:00:00Z"),
    ]);
    (when, place).prop_map(|(when, (zone, start))| (when, zone, start))
}

/// P16 in simple form: whether an instant that is `late_ms` late opens.
fn opens(policies: &Policies, late_ms: i64, is_latest: bool) -> Result<(), UnopenedReason> {
    match policies.catch_up {
        _ if late_ms > policies.start_within_ms => Err(UnopenedReason::TooLate),
        _ if late_ms <= limits(LEVEL).on_time_ms => Ok(()),
        CatchUp::All => Ok(()),
        CatchUp::One if is_latest => Ok(()),
        CatchUp::One => Err(UnopenedReason::Coalesced),
        CatchUp::None => Err(UnopenedReason::NoCatchUp),
    }
}

proptest! {
    #![proptest_config(reveille_fuzz::cases(120))]

    #[test]
    fn every_instant_is_opened_or_explained_whatever_the_outage(
        (when, zone, start) in anywhere(),
        catch_up in prop::sample::select(vec![CatchUp::One, CatchUp::All, CatchUp::None]),
        start_within_ms in prop::sample::select(vec![10 * MINUTE_MS, 12 * HOUR_MS, 100 * DAY_MS]),
        outages in prop::collection::vec(
            prop::sample::select(vec![20_000, MINUTE_MS, 11 * MINUTE_MS, HOUR_MS, 23 * HOUR_MS, 4 * DAY_MS, 20 * DAY_MS]),
            1..8,
        ),
    ) {
        let policies = Policies { catch_up, start_within_ms, ..side_by_side() };
        let mut test = ScheduleTest::new(when, zone, at(start), &ScheduleOptions { policies: policies.clone(), ..ScheduleOptions::default() });
        let mut opened: Vec<(OccurrenceName, Time)> = vec![];
        let mut explained: BTreeMap<UnopenedReason, u64> = BTreeMap::new();
        let mut through = test.created;
        for outage in outages {
            test.after_outage(outage);
            let steps = test.steps(through, test.now);
            through = test.now;
            let latest = steps.iter().rposition(|step| matches!(step, Step::Fires(_)));
            // Steps after the last firing are explained when the next one is due.
            for (place, step) in steps.iter().enumerate() {
                let due = Time::from(step.instant());
                let verdict = match step {
                    Step::Absent(_) => Err(UnopenedReason::DoesNotExist),
                    Step::Fires(_) => opens(&policies, test.now.since_ms(due), Some(place) == latest),
                };
                match verdict {
                    Ok(()) => opened.push((step.occurrence().into(), due)),
                    Err(reason) => *explained.entry(reason).or_default() += 1,
                }
            }
        }
        let found: Vec<(OccurrenceName, Time)> = test.opened().into_iter().map(|(name, due, _)| (name, due)).collect();
        prop_assert_eq!(found, opened);
        let mut explained_counts = test.explained();
        // Absent names are explained together with the next firing, so some may not be explained yet.
        let absent = (explained_counts.remove(&UnopenedReason::DoesNotExist), explained.remove(&UnopenedReason::DoesNotExist));
        prop_assert!(absent.0.unwrap_or(0) <= absent.1.unwrap_or(0));
        prop_assert_eq!(explained_counts, explained);
    }

    /// With each `overlap`, each instant is opened or explained exactly once in the end. Meanwhile no two runs overlap
    /// where the policy forbids it.
    #[test]
    fn waiting_instants_are_opened_or_explained(
        (when, zone, start) in anywhere(),
        overlap in prop::sample::select(vec![Overlap::BufferOne, Overlap::Skip, Overlap::CancelOther]),
        catch_up in prop::sample::select(vec![CatchUp::One, CatchUp::All, CatchUp::None]),
        start_within_ms in prop::sample::select(vec![10 * MINUTE_MS, 2 * HOUR_MS]),
        turns in prop::collection::vec(
            (prop::sample::select(vec![20_000, MINUTE_MS, 11 * MINUTE_MS, HOUR_MS, 23 * HOUR_MS]), any::<bool>()),
            1..12,
        ),
    ) {
        let policies = Policies { catch_up, start_within_ms, overlap, ..Policies::default() };
        let mut test = ScheduleTest::new(when, zone, at(start), &ScheduleOptions { policies, ..ScheduleOptions::default() });
        for (passes, finishes) in turns {
            test.leap_to(test.now.plus_ms(passes));
            test.catch_up();
            prop_assert!(test.unfinished().len() <= 1, "{:?}", test.unfinished());
            if finishes {
                test.finish();
            }
        }
        test.finish_all();
        let fires = |step: &Step| matches!(step, Step::Fires(_));
        let due = test.steps(test.created, test.now).iter().filter(|step| fires(step)).count();
        let explained_counts = test.explained().into_iter().filter(|(reason, _)| *reason != UnopenedReason::DoesNotExist);
        let explained_counts: u64 = explained_counts.map(|(_, count)| count).sum();
        prop_assert_eq!(test.opened().len() as u64 + explained_counts, due as u64);
        let opened: std::collections::BTreeSet<_> = test.opened().into_iter().map(|(name, ..)| name).collect();
        prop_assert_eq!(opened.len(), test.opened().len(), "none twice");
    }

    /// Each instant opens at its time in the window or later, and none is lost because the next one came first.
    #[test]
    fn spread_window_opens_no_instant_early_and_loses_none(
        (when, zone, start) in anywhere(),
        jitter_ms in prop::sample::select(vec![1_000, 5 * MINUTE_MS, 6 * HOUR_MS, DAY_MS]),
        overlap in prop::sample::select(vec![Overlap::Allow, Overlap::BufferOne, Overlap::Skip]),
        catch_up in prop::sample::select(vec![CatchUp::One, CatchUp::All, CatchUp::None]),
        start_within_ms in prop::sample::select(vec![10 * MINUTE_MS, 100 * DAY_MS]),
        turns in prop::collection::vec(
            (prop::sample::select(vec![20_000, MINUTE_MS, 11 * MINUTE_MS, HOUR_MS, 23 * HOUR_MS, 4 * DAY_MS]), any::<bool>()),
            1..6,
        ),
    ) {
        let policies = Policies { jitter_ms, catch_up, start_within_ms, overlap, ..Policies::default() };
        let mut test = ScheduleTest::new(when, zone, at(start), &ScheduleOptions { policies: policies.clone(), ..ScheduleOptions::default() });
        for (passes, finishes) in turns {
            test.after_outage(passes);
            if finishes {
                test.finish();
            }
        }
        test.finish_all();
        let calendar = Calendar { pattern: &test.pattern, zone: &test.zone };
        let mut places: BTreeMap<OccurrenceName, Time> = BTreeMap::new();
        let mut last = test.created;
        for step in test.steps(test.created, test.now) {
            let Step::Fires(firing) = &step else { continue };
            let due = Time::from(firing.instant);
            prop_assert!(last < due, "{last} is not before the next instant, {due}");
            let delay_ms = jitter(&policies).delay_ms(calendar, &policies.dst, firing);
            prop_assert!((0..jitter_ms).contains(&delay_ms));
            last = due.plus_ms(delay_ms);
            places.insert(step.occurrence().into(), last);
        }
        for (id, page, run) in test.ledger.runs() {
            prop_assert!(page.opened_at >= places[&run.occurrence], "{id} opened before {}", places[&run.occurrence]);
        }
        let ripe = places.values().filter(|opens| **opens <= test.now).count() as u64;
        let explained_counts = test.explained().into_iter().filter(|(reason, _)| *reason != UnopenedReason::DoesNotExist);
        let explained_counts: u64 = explained_counts.map(|(_, count)| count).sum();
        prop_assert_eq!(test.opened().len() as u64 + explained_counts, ripe);
    }
}

/// A schedule for nine o'clock daily, planned with rules two hours ahead of UTC on the first of March. Then a node with
/// newer rules, with another offset, becomes leader.
fn nine_by_other_rules(rules: &str, catch_up: CatchUp) -> ScheduleTest {
    let options =
        ScheduleOptions { policies: Policies { catch_up, ..Policies::default() }, ..ScheduleOptions::default() };
    let mut test = ScheduleTest::new(cron("0 9 * * *"), "Etc/GMT-2", at("2026-03-01T12:00:00Z"), &options);
    test.zone = zone(rules);
    test.leap_to(at("2026-03-02T01:00:00Z"));
    test
}

#[test]
fn new_zone_rules_move_future_instant_and_it_opens_on_time() {
    for (rules, due) in [("Etc/GMT-3", "2026-03-02T06:00:00Z"), ("Etc/GMT-1", "2026-03-02T08:00:00Z")] {
        let mut test = nine_by_other_rules(rules, CatchUp::None);
        assert_eq!(test.replan(), CommandOutcome::Changed(1), "{rules}");
        assert_eq!(test.replan(), CommandOutcome::Changed(0), "{rules}: once");
        test.leap_to(at(due).plus_ms(-1));
        assert_eq!(test.catch_up(), 0, "{rules}: not early");
        test.leap_to(at(due));
        test.catch_up();
        let nine = OccurrenceName::Civil { civil_ms: at("2026-03-02T09:00:00Z").0, fold: 0 };
        assert_eq!(test.opened(), [(nine, at(due), OpeningCause::Due)], "{rules}");
        assert!(test.explained().is_empty(), "{rules}: {:?}", test.explained());
    }
}

#[test]
fn unmoved_instant_under_new_rules_keeps_schedule_version() {
    let mut test = nine_by_other_rules("Etc/GMT-2", CatchUp::One);
    test.zone.tzdb = "another release".into();
    let plan = |test: &ScheduleTest| test.ledger.schedules().get(&test.schedule).expect("it is there").plan.clone();
    let before = plan(&test);
    assert_eq!(test.replan(), CommandOutcome::Changed(0));
    assert_eq!(plan(&test), reveille_ledger::Plan { tzdb: "another release".into(), ..before });
}

#[test]
fn advanced_or_due_plan_is_not_replanned() {
    let mut test = nine_by_other_rules("Etc/GMT-3", CatchUp::One);
    let known = test.ledger.schedules().get(&test.schedule).expect("it is there").clone();
    let right = replan(test.schedule, &known, &test.pattern, &test.zone).expect("it is planned");
    let elsewhere = NextInstant { due: at("2026-03-02T07:30:00Z"), ..right.from.clone() };
    let fired = NextInstant { due: known.plan.fired_through, ..right.from.clone() };
    for wrong in [
        Replan { plan_version: 2, ..right.clone() },
        Replan { from: elsewhere, ..right.clone() },
        Replan { next: Some(fired), ..right.clone() },
        Replan { schedule: ScheduleId::new(77, 0), ..right.clone() },
    ] {
        let before = test.ledger.schedules().get(&test.schedule).cloned();
        assert_eq!(test.put(Command::Replan(vec![wrong])), CommandOutcome::Changed(0));
        assert_eq!(test.ledger.schedules().get(&test.schedule), before.as_ref(), "nothing has changed");
    }
    // It is seven o'clock UTC: the fire considers all instants since the last one, by the present rules.
    test.leap_to(at("2026-03-02T07:00:00Z"));
    assert_eq!(test.put(Command::Replan(vec![right])), CommandOutcome::Changed(0));
    test.catch_up();
    assert_eq!(test.opened().len(), 1);
}

/// Nine o'clock of the second of March waits for the run of the day before, whose recipient is still claimed. It is
/// seven o'clock UTC by the rules of [`nine_by_other_rules`].
fn nine_behind_a_run() -> (ScheduleTest, (RunId, Fence)) {
    let options = ScheduleOptions {
        policies: Policies { catch_up: CatchUp::None, ..Policies::default() },
        ..ScheduleOptions::default()
    };
    let mut test = ScheduleTest::new(cron("0 9 * * *"), "Etc/GMT-2", at("2026-03-01T06:00:00Z"), &options);
    test.wait_until(at("2026-03-01T07:00:00Z"));
    test.catch_up();
    let claimed = test.claim();
    test.leap_to(at("2026-03-02T06:30:00Z"));
    (test, claimed)
}

/// Checks that nine o'clock of each of three days opens once, wherever it is on the second and third day, and nothing
/// else.
fn assert_each_nine_opens_once(mut test: ScheduleTest, second: &str, rules: &str) {
    for time in ["2026-03-02T08:00:00Z", "2026-03-03T06:00:00Z", "2026-03-03T07:00:00Z", "2026-03-03T08:00:00Z"] {
        test.leap_to(at(time));
        test.catch_up();
        test.finish();
    }
    let nine = |day: &str| OccurrenceName::Civil { civil_ms: at(&format!("2026-03-{day}T09:00:00Z")).0, fold: 0 };
    let opened = test.opened();
    let names: Vec<OccurrenceName> = opened.iter().map(|(name, ..)| name.clone()).collect();
    assert_eq!(names, [nine("01"), nine("02"), nine("03")], "{rules}");
    assert_eq!((opened[1].1, opened[1].2), (at(second), OpeningCause::Due), "{rules}");
    assert!(test.explained().is_empty(), "{rules}: {:?}", test.explained());
}

#[test]
fn replan_of_waiting_instant_opens_it_once_by_new_rules() {
    for (rules, due) in [
        ("Etc/GMT-2", "2026-03-02T07:00:00Z"),
        ("Etc/GMT-3", "2026-03-02T06:00:00Z"),
        ("Etc/GMT-1", "2026-03-02T08:00:00Z"),
    ] {
        let (mut test, claimed) = nine_behind_a_run();
        test.wait_until(at("2026-03-02T07:15:00Z"));
        assert_eq!(test.catch_up(), 0, "{rules}: it waits");
        let waiting = test.ledger.schedules().get(&test.schedule).cloned().expect("the schedule");
        test.zone = Zone { tzdb: "another release".into(), ..zone(rules) };
        assert_eq!(test.replan(), CommandOutcome::Changed(0), "{rules}");
        assert_eq!(test.ledger.schedules().get(&test.schedule), Some(&waiting), "{rules}: it still waits");
        // Nor does a replan that was computed before the instant was due change anything.
        let early = replan(test.schedule, &waiting, &test.pattern, &test.zone).expect("it is planned");
        assert_eq!(test.put(Command::Replan(vec![early])), CommandOutcome::Changed(0), "{rules}");
        assert_eq!(test.ledger.schedules().get(&test.schedule), Some(&waiting), "{rules}: it waits all the same");
        test.send(claimed);
        test.catch_up();
        assert_each_nine_opens_once(test, due, rules);
    }
}

#[test]
fn replan_of_instant_behind_run_waits_at_its_new_time() {
    for (rules, due) in [("Etc/GMT-3", "2026-03-02T06:00:00Z"), ("Etc/GMT-1", "2026-03-02T08:00:00Z")] {
        let (mut test, claimed) = nine_behind_a_run();
        test.zone = zone(rules);
        assert_eq!(test.replan(), CommandOutcome::Changed(1), "{rules}");
        for time in ["2026-03-02T07:15:00Z", "2026-03-02T08:00:00Z"] {
            test.wait_until(at(time));
            test.catch_up();
            assert_eq!(test.opened().len(), 1, "{rules}: it is to come, or waits");
            assert_eq!(test.replan(), CommandOutcome::Changed(0), "{rules}");
        }
        assert_eq!(test.ledger.waits_for(test.schedule), test.unfinished().first().copied(), "{rules}");
        test.send(claimed);
        test.catch_up();
        assert_each_nine_opens_once(test, due, rules);
    }
}
