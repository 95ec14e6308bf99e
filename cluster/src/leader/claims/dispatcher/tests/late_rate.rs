//! Tests of the rate at which late emails are claimed (P16).

use reveille_ledger::policy::Overlap;

use super::*;

#[test]
fn late_emails_are_claimed_at_half_of_relay_rate_or_late_rate() {
    for cause in [OpeningCause::CatchUp, OpeningCause::Backfill] {
        for ((rate, late), per_second) in
            [((50_000, 0), 25), ((50_000, 10_000), 10), ((0, 7_000), 7), ((4_000, 9_000), 4)]
        {
            let mut test = DispatcherTest::opened(2_000, cause, (rate, late));
            let claimed: u32 = (0..10).map(|_| claimed_in_a_second(&mut test)).sum();
            // A bucket that starts empty gives nothing in its first second.
            assert!((9 * per_second..=10 * per_second).contains(&claimed), "{cause:?}, {rate}, {late}: {claimed}");
        }
    }
}

#[test]
fn slow_backlog_costs_one_entry_per_second() {
    let mut test = DispatcherTest::opened(2_000, OpeningCause::CatchUp, (0, 5_000));
    let mut entries = Vec::new();
    for _ in 0..62 {
        test.boot += SLEEP_FOR_CREDIT;
        let claims = test.dispatch();
        entries.extend((!claims.is_empty()).then(|| claims.iter().map(|claim| claim.slice.len()).sum::<u32>()));
    }
    assert_eq!(entries, [5, 5, 5]);
}

#[test]
fn dispatcher_sleeps_until_late_rate_allows_a_claim() {
    for per_second in [2, 5, 1_000] {
        let mut test = DispatcherTest::opened(9_000, OpeningCause::CatchUp, (0, per_second * 1_000));
        let (mut wakes, mut claimed, mut in_vain) = (0, 0, 0);
        while test.boot < Duration::from_secs(10) {
            let (claims, sleep) = test.plan_claims();
            assert!(sleep <= SLEEP_MAX, "other work is checked as ever: {sleep:?}");
            wakes += 1;
            in_vain += u32::from(claims.is_empty());
            claimed += claims.iter().map(|claim| u64::from(claim.slice.len())).sum::<u64>();
            test.settle();
            test.boot += sleep;
        }
        let bound = 10 * per_second;
        match per_second {
            // The nodes' caps are the lower limit here, and recipients that wait for them are checked often.
            1_000 => assert!(wakes > 100, "{wakes} wakes"),
            _ => assert!(wakes <= 52 && in_vain <= 42, "{per_second} a second: {wakes} wakes, {in_vain} in vain"),
        }
        assert!(claimed <= bound && (per_second == 1_000 || claimed >= bound * 8 / 10), "{claimed} of {bound}");
    }
    let mut test = DispatcherTest::opened(2_000, OpeningCause::Due, (50_000, 1_000));
    assert_eq!(test.plan_claims().1, SLEEP_FOR_CREDIT, "what is on time waits for claims that end");
    let mut test = DispatcherTest::opened(1, OpeningCause::Due, (50_000, 1_000));
    assert_eq!(test.plan_claims().1, SLEEP_MAX, "nothing waits");
}

#[test]
fn unlimited_or_on_time_emails_are_not_held_back() {
    for (cause, rates) in [
        (OpeningCause::CatchUp, (0, 0)),
        (OpeningCause::Due, (50_000, 1_000)),
        (OpeningCause::Trigger, (50_000, 1_000)),
    ] {
        let mut test = DispatcherTest::opened(2_000, cause, rates);
        let claimed = claimed_in_a_second(&mut test);
        assert!(claimed >= 200, "{cause:?}: all that the nodes' caps let through, not {claimed}");
    }
}

/// A backlog of many pages without credit does not crowd out email that is on time (P16).
#[test]
fn on_time_emails_are_offered_beside_any_backlog() {
    let mut test = DispatcherTest::opened(20, OpeningCause::CatchUp, (50_000, 1));
    test.now = OPENED_AT.plus_ms(1_000);
    for (name, cause, count) in [("missed", OpeningCause::CatchUp, 300), ("today", OpeningCause::Due, 1)] {
        let policies = Policies { overlap: Overlap::Allow, ..Policies::default() };
        let create = ScheduleCreate { name: name.into(), policies, ..schedule(20) };
        let CommandOutcome::Schedule(id) = test.put(Command::ScheduleCreate(Box::new(create))) else {
            panic!("{name}")
        };
        let instants = (0..count).map(|number| OPENED_AT.plus_ms(number));
        let finish_by = Time(3_600_000);
        let opening = |due| Opening { occurrence: OccurrenceName::Instant(due), due, cause, finish_by };
        let fired = test.put(Command::Fire(vec![Fire {
            schedule: id,
            plan_version: 1,
            from: OccurrenceName::Instant(OPENED_AT),
            opened: instants.map(opening).collect(),
            explained: vec![],
            through: OPENED_AT.plus_ms(1_000),
            next: None,
            tzdb: "test".into(),
        }]));
        assert!(matches!(fired, CommandOutcome::Fired(ref answers) if answers[0].is_ok()), "{fired:?}");
    }
    test.boot += SLEEP_FOR_CREDIT;
    let claimed: u32 = test.dispatch().iter().map(|claim| claim.slice.len()).sum();
    assert!(claimed > 0, "some of today, as many as the nodes' caps let through");
}

#[test]
fn new_leader_restarts_late_rate_and_never_exceeds_it() {
    let mut test = DispatcherTest::opened(2_000, OpeningCause::CatchUp, (50_000, 0));
    assert!((0..4).map(|_| claimed_in_a_second(&mut test)).sum::<u32>() > 0);
    test.dispatcher.rates = ClaimRates::default();
    assert_eq!(claimed_in_a_second(&mut test), 0, "its bucket is empty");
    assert!((1..=50).contains(&claimed_in_a_second(&mut test)), "what two seconds bring");
}
