//! A backfill removes what it opens from the explained ranges, wherever in a range it is (P1, P7).

use reveille_ledger::calendar::{self, DstGap, DstOverlap};
use reveille_ledger::command::{Backfill, Opening};
use reveille_ledger::ids::Hash;

use super::*;

/// Returns every name in the history, as often as it occurs.
fn explained_names(test: &ScheduleTest) -> Vec<OccurrenceName> {
    let names = test.ledger.history().iter().flat_map(|((_, first), row)| match row {
        InstantOutcome::Opened(_) | InstantOutcome::ArchivedTrigger { .. } => vec![first.clone()],
        InstantOutcome::Explained { instants, .. } | InstantOutcome::Archived { instants, .. } => {
            let alone = |place| instants.part(first, place, place + 1).map(|(name, _)| name);
            (0..instants.count()).filter_map(alone).collect()
        }
    });
    let mut names: Vec<OccurrenceName> = names.collect();
    names.sort();
    names
}

fn backfill(test: &mut ScheduleTest, openings: Vec<Opening>) {
    let (request, body_hash) = (None, Hash([0; 32]));
    let asked = openings.len() as u32;
    assert!(openings.len() <= limits(LEVEL).backfill_openings_max);
    let backfill = Backfill { request, body_hash, schedule: test.schedule, openings, known: 0, rest: None };
    let outcome = test.put(Command::Backfill(backfill));
    assert!(matches!(outcome, CommandOutcome::Backfilled { opened, .. } if opened == asked), "{outcome:?}");
}

#[test]
fn backfill_of_any_part_lists_every_instant_once() {
    let every = When::Every { period_ms: 1_200_000, anchor_ms: 0 };
    let cases = [
        (every, "UTC", "2026-03-02T00:00:00Z"),
        (cron("0 9,17 * * 1-5"), "UTC", "2026-03-02T00:00:00Z"),
        // Clocks go forward, and back; both change the order of names.
        (cron("5,25,45 0,1,2,3,4 * * *"), "America/New_York", "2026-03-06T12:00:00Z"),
        (cron("5,25,45 0,1,2,3,4 * * *"), "America/New_York", "2026-10-30T12:00:00Z"),
    ];
    let clocks = [(DstGap::After, DstOverlap::First), (DstGap::Shift, DstOverlap::Both)];
    for ((when, zone, created), (gap, overlap)) in cases.iter().flat_map(|case| clocks.map(|clock| (case, clock))) {
        let dst = calendar::DstPolicies { gap, overlap };
        let (catch_up, start_within_ms) = (CatchUp::None, 30 * DAY_MS);
        let policies = Policies { catch_up, start_within_ms, dst, ..side_by_side() };
        let options = ScheduleOptions { policies, ..ScheduleOptions::default() };
        let mut test = ScheduleTest::new(when.clone(), zone, at(created), &options);
        test.after_outage(12 * DAY_MS);
        let through = test.ledger.schedules().get(&test.schedule).expect("the schedule").plan.fired_through;
        let steps = steps_after(&test.pattern, &test.zone.rules, &dst, test.created.timestamp());
        let steps: Vec<Step> = steps.take_while(|step| Time::from(step.instant()) <= through).collect();
        let mut expected: Vec<OccurrenceName> = steps.iter().map(|step| step.occurrence().into()).collect();
        expected.sort();
        assert!(expected.len() > 15, "{expected:?}");
        assert_eq!(explained_names(&test), expected, "{when:?} {dst:?}");
        // Opens a few of them, then more, then all.
        for part in [5, 3, 2, 1] {
            let finish_by = test.now.plus_ms(HOUR_MS);
            let opening = |step: &Step| {
                let (occurrence, due) = (OccurrenceName::from(step.occurrence()), Time::from(step.instant()));
                let fresh =
                    matches!(step, Step::Fires(_)) && !test.ledger.has_opened(&(test.schedule, occurrence.clone()));
                fresh.then_some(Opening { occurrence, due, cause: OpeningCause::Backfill, finish_by })
            };
            let openings = steps.iter().step_by(part).filter_map(opening).collect();
            backfill(&mut test, openings);
            assert_eq!(explained_names(&test), expected, "{when:?} {dst:?}, one of {part}");
            assert_eq!(violations(&test.ledger), []);
        }
    }
}
