//! A missed instant stays missed while it waits for an earlier run, and an instant that only waited was not missed
//! (P16).

use proptest::prelude::*;
use reveille_ledger::LEVEL;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{Command, OpeningCause, SchedulePause, ScheduleResume, Trigger, UnopenedReason};
use reveille_ledger::ids::{Fence, RunId, Time};
use reveille_ledger::invariants::violations;
use reveille_ledger::limits::limits;
use reveille_ledger::planning::overlap::{WaitingInstants, missed_that_wait};
use reveille_ledger::planning::timing::Calendar;
use reveille_ledger::policy::{CatchUp, DAY_MS, HOUR_MS, MINUTE_MS, Overlap, Policies};
use reveille_ledger::reply::CommandOutcome;
use std::collections::BTreeMap;

use super::{ScheduleOptions, ScheduleTest, at};

impl ScheduleTest {
    /// Advances time under a leader whose timer works.
    fn pass(&mut self, ms: i64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(MINUTE_MS);
            left -= step;
            self.wait_until(self.now.plus_ms(step));
            self.catch_up();
        }
    }

    fn trigger(&mut self) {
        let trigger = Trigger::new(self.schedule, "now");
        assert!(matches!(self.put(Command::Trigger(trigger)), CommandOutcome::Run { .. }));
    }

    /// Returns for each run: minutes after the creation at which it was due, why it opened, and the run that it waited
    /// for.
    fn opened_runs(&self) -> Vec<(i64, OpeningCause, Option<RunId>)> {
        let minutes = |due: Time| due.since_ms(self.created) / MINUTE_MS;
        self.ledger.runs().map(|(_, _, run)| (minutes(run.due), run.cause, run.waited_for)).collect()
    }

    /// Returns the missed instants that wait: how many, and when the first was due.
    fn waits(&self, most: u64) -> Option<WaitingInstants> {
        let schedule = self.ledger.schedules().get(&self.schedule).expect("the schedule");
        missed_that_wait(schedule, Calendar { pattern: &self.pattern, zone: &self.zone }, self.now, most)
    }

    fn late_runs(&self) -> usize {
        self.ledger.runs().filter(|(_, _, run)| run.cause == OpeningCause::CatchUp).count()
    }

    fn run_at(&self, place: usize) -> Option<RunId> {
        self.ledger.runs().nth(place).map(|(id, ..)| id)
    }
}

/// Returns a schedule with an instant every `minutes`, whose runs do not overlap.
fn one_by_one(minutes: i64, catch_up: CatchUp) -> ScheduleTest {
    let created = at("2026-03-02T00:00:00Z");
    let when = When::Every { period_ms: (minutes * MINUTE_MS) as u64, anchor_ms: created.0 };
    let policies = Policies { catch_up, overlap: Overlap::BufferOne, ..Policies::default() };
    ScheduleTest::new(when, "UTC", created, &ScheduleOptions { policies, ..ScheduleOptions::default() })
}

#[test]
fn missed_instant_behind_a_run_is_late() {
    let mut test = one_by_one(60, CatchUp::All);
    test.after_outage(3 * HOUR_MS + 10 * MINUTE_MS);
    for _ in 0..3 {
        test.pass(5 * MINUTE_MS);
        test.finish();
    }
    let waited_for = |place| test.run_at(place);
    assert_eq!(
        test.opened_runs(),
        [
            (60, OpeningCause::CatchUp, None),
            (120, OpeningCause::CatchUp, waited_for(0)),
            (180, OpeningCause::CatchUp, waited_for(1)),
        ]
    );
}

#[test]
fn waiting_instants_are_counted_until_they_open() {
    let mut test = one_by_one(60, CatchUp::All);
    assert_eq!(test.waits(100), None);
    test.after_outage(3 * HOUR_MS + 10 * MINUTE_MS);
    for (instants, first) in [(2, 2), (1, 3)] {
        let oldest = test.created.plus_ms(first * HOUR_MS);
        assert_eq!(test.waits(100), Some(WaitingInstants { instants, oldest, is_all: true }));
        test.pass(5 * MINUTE_MS);
        test.finish();
    }
    assert_eq!(test.waits(100), None, "the last one has opened");
}

#[test]
fn truncated_count_of_waiting_instants_is_marked() {
    let created = at("2026-03-02T00:00:00Z");
    let policies = Policies { catch_up: CatchUp::All, overlap: Overlap::BufferOne, ..Policies::default() };
    let options = ScheduleOptions { policies, ..ScheduleOptions::default() };
    let mut test = ScheduleTest::new(super::cron(super::MINUTELY), "UTC", created, &options);
    test.after_outage(11 * MINUTE_MS);
    let oldest = created.plus_ms(2 * MINUTE_MS);
    assert_eq!(test.waits(4), Some(WaitingInstants { instants: 4, oldest, is_all: false }));
    // The last two are on time: the one a minute ago, and the present one.
    assert_eq!(test.waits(100), Some(WaitingInstants { instants: 8, oldest, is_all: true }));
    let mut last = ScheduleTest::new(
        super::cron(super::MINUTELY),
        "UTC",
        created,
        &ScheduleOptions { max_runs: Some(3), ..options },
    );
    last.after_outage(11 * MINUTE_MS);
    assert_eq!(last.waits(2), Some(WaitingInstants { instants: 2, oldest, is_all: true }), "no more than may open");
}

#[test]
fn instant_due_behind_the_backlog_is_not_missed() {
    let mut test = one_by_one(5, CatchUp::All);
    // 5 and 10 are missed; 15 and 20 are due while their runs are open.
    test.after_outage(13 * MINUTE_MS);
    for _ in 0..4 {
        test.pass(4 * MINUTE_MS);
        test.finish();
    }
    let (causes, waited): (Vec<_>, Vec<_>) =
        test.opened_runs().into_iter().take(4).map(|(due, cause, waited)| ((due, cause), waited)).unzip();
    assert_eq!(
        causes,
        [(5, OpeningCause::CatchUp), (10, OpeningCause::CatchUp), (15, OpeningCause::Due), (20, OpeningCause::Due)]
    );
    assert_eq!(waited, [None, test.run_at(0), test.run_at(1), test.run_at(2)]);
}

#[test]
fn instant_due_during_outage_is_missed() {
    for (catch_up, expected, explained) in [
        (CatchUp::All, vec![120, 180], vec![]),
        (CatchUp::One, vec![180], vec![(UnopenedReason::Coalesced, 1)]),
        (CatchUp::None, vec![], vec![(UnopenedReason::NoCatchUp, 2)]),
    ] {
        let mut test = one_by_one(60, catch_up);
        test.pass(HOUR_MS + MINUTE_MS);
        // The run of the first hour is open: it was claimed when all nodes failed, and is given up later.
        test.leap_to(test.created.plus_ms(3 * HOUR_MS + 10 * MINUTE_MS));
        for _ in 0..3 {
            test.finish();
        }
        let late: Vec<_> = test.opened_runs().into_iter().skip(1).map(|(due, cause, _)| (due, cause)).collect();
        assert_eq!(
            late,
            expected.into_iter().map(|due| (due, OpeningCause::CatchUp)).collect::<Vec<_>>(),
            "{catch_up:?}"
        );
        assert_eq!(test.explained(), explained.into_iter().collect::<BTreeMap<_, _>>(), "{catch_up:?}");
    }
}

#[test]
fn triggered_run_before_timer_keeps_missed_instants() {
    let mut test = one_by_one(60, CatchUp::One);
    test.leap_to(test.created.plus_ms(3 * HOUR_MS + 10 * MINUTE_MS));
    test.trigger();
    test.pass(5 * MINUTE_MS);
    test.finish();
    assert_eq!(test.opened_runs()[1..], [(180, OpeningCause::CatchUp, None)]);
    assert_eq!(test.explained(), BTreeMap::from([(UnopenedReason::Coalesced, 2)]));
}

/// The run of the first hour is claimed, and the instant of the second has waited for it for five minutes.
fn second_hour_behind_the_first() -> (ScheduleTest, (RunId, Fence)) {
    let mut test = one_by_one(60, CatchUp::None);
    test.pass(HOUR_MS);
    let claimed = test.claim();
    test.pass(HOUR_MS + 5 * MINUTE_MS);
    assert_eq!(test.opened_runs().len(), 1, "the second waits");
    (test, claimed)
}

#[test]
fn instant_that_waited_and_then_could_have_opened_was_missed() {
    let (mut test, claimed) = second_hour_behind_the_first();
    test.send(claimed);
    // The leader that applied this is gone before it fires.
    test.after_outage(30 * MINUTE_MS);
    assert_eq!(test.opened_runs().len(), 1, "{:?}", test.opened_runs());
    assert_eq!(test.explained(), BTreeMap::from([(UnopenedReason::NoCatchUp, 1)]));
}

#[test]
fn instant_that_waits_through_a_fail_over_was_not_missed() {
    let (mut test, claimed) = second_hour_behind_the_first();
    test.leap_to(test.now.plus_ms(30_000));
    test.send(claimed);
    test.after_outage(30_000);
    assert_eq!(test.opened_runs()[1..], [(120, OpeningCause::Due, test.run_at(0))]);
}

/// A pause of an hour, begun a minute before the instant, ends before the run: the instant in it was missed. A pause of
/// ten seconds that begins after the instant does not change its wait.
#[test]
fn instant_that_came_in_a_pause_was_missed_also_behind_a_run() {
    for (before, lasting, expected) in [(-MINUTE_MS, HOUR_MS, vec![]), (10_000, 10_000, vec![(120, OpeningCause::Due)])]
    {
        let mut test = one_by_one(60, CatchUp::None);
        test.pass(HOUR_MS);
        let claimed = test.claim();
        test.pass(HOUR_MS + before);
        let pause = SchedulePause { schedule: test.schedule, reason: "rest".into() };
        assert_eq!(test.put(Command::SchedulePause(pause)), CommandOutcome::Done);
        test.pass(lasting);
        let resume = ScheduleResume { schedule: test.schedule, plan_version: 2 };
        assert_eq!(test.put(Command::ScheduleResume(resume)), CommandOutcome::Done);
        test.send(claimed);
        test.catch_up();
        let opened: Vec<(i64, OpeningCause)> =
            test.opened_runs()[1..].iter().map(|(due, cause, _)| (*due, *cause)).collect();
        assert_eq!(opened, expected, "paused {before} ms after the instant for {lasting} ms");
        assert_eq!(test.explained().len(), usize::from(expected.is_empty()));
    }
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Time passes under a leader.
    Pass(i64),
    /// Time passes without a leader.
    Leap(i64),
    Trigger,
    /// All open runs are cancelled.
    Finish,
}

fn turn() -> impl Strategy<Value = Turn> {
    let spans = || prop::sample::select(vec![20_000, MINUTE_MS, 3 * MINUTE_MS, 11 * MINUTE_MS, HOUR_MS]);
    prop_oneof![
        3 => spans().prop_map(Turn::Pass),
        2 => spans().prop_map(Turn::Leap),
        1 => Just(Turn::Trigger),
        4 => Just(Turn::Finish),
    ]
}

proptest! {
    #![proptest_config(reveille_fuzz::cases(200))]

    /// A run is late if no leader opened it in time: an outage of more than a minute ended between its instant and its
    /// run. All other runs are on time, or name the run that they waited for.
    #[test]
    fn only_instants_during_an_outage_are_late(
        minutes in prop::sample::select(vec![2, 7, 60]),
        catch_up in prop::sample::select(vec![CatchUp::One, CatchUp::All, CatchUp::None]),
        turns in prop::collection::vec(turn(), 1..20),
    ) {
        let mut test = one_by_one(minutes, catch_up);
        let mut outages: Vec<Time> = vec![];
        let mut triggers = 0;
        for turn in turns {
            match turn {
                Turn::Pass(ms) => test.pass(ms),
                Turn::Leap(ms) => {
                    test.leap_to(test.now.plus_ms(ms));
                    outages.extend((ms > limits(LEVEL).on_time_ms).then_some(test.now));
                    prop_assert_eq!(violations(&test.ledger), []);
                    test.catch_up();
                }
                Turn::Trigger => {
                    triggers += 1;
                    let trigger = Trigger::new(test.schedule, triggers.to_string());
                    test.put(Command::Trigger(trigger));
                    prop_assert_eq!(violations(&test.ledger), []);
                }
                Turn::Finish => test.finish(),
            }
        }
        for (id, page, run) in test.ledger.runs().filter(|(_, _, run)| run.cause != OpeningCause::Trigger) {
            let missed = outages.iter().any(|end| *end <= page.opened_at && end.since_ms(run.due) > limits(LEVEL).on_time_ms && *end > run.due);
            prop_assert_eq!(run.cause == OpeningCause::CatchUp, missed, "{} due {} opened {}", id, run.due, page.opened_at);
            let on_time = page.opened_at.since_ms(run.due) <= limits(LEVEL).on_time_ms;
            prop_assert!(on_time || missed || run.waited_for.is_some(), "{id} says not why it is late");
            prop_assert!(missed || catch_up != CatchUp::None || run.cause == OpeningCause::Due);
            if let Some(former) = run.waited_for {
                let former = test.ledger.run(former).expect("it is kept");
                prop_assert!(former.finished_at.is_some_and(|at| at >= run.due && at <= page.opened_at));
            }
        }
        prop_assert!(test.now.since_ms(test.created) < 2 * DAY_MS);
        // The instants that are reported as waiting are those that open late when it is their turn.
        let (waits, before) = (test.waits(u64::MAX).map_or(0, |waits| waits.instants), test.late_runs());
        while !test.unfinished().is_empty() {
            test.finish();
        }
        prop_assert_eq!(waits as usize, test.late_runs() - before);
    }
}
