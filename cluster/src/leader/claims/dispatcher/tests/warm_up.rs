//! Tests of a pool with warm-up: the number of emails that it sends in a day.

use reveille_ledger::pool::PoolSet;

use super::*;

const DAY_MS: i64 = 86_400_000;

impl DispatcherTest {
    fn warm_up(&mut self, caps: &[u32]) {
        let (pool, caps) = ("default".into(), caps.to_vec());
        let set = PoolSet { request: None, pool, caps, first: None, reveille_headers: None, expected: None };
        assert_eq!(self.put(Command::PoolSet(set)), CommandOutcome::Done);
    }

    /// Advances ledger time in steps of at most a minute, the maximum that the ledger allows.
    fn wait(&mut self, mut left_ms: i64) {
        while left_ms > 0 {
            let step = left_ms.min(60_000);
            self.now = self.now.plus_ms(step);
            left_ms -= step;
            assert_eq!(self.put(Command::Tick), CommandOutcome::Done);
        }
    }

    /// Claims and settles all that can be claimed now; returns the number of recipients.
    fn sent(&mut self) -> u32 {
        let mut sent = 0;
        loop {
            self.boot += SLEEP_FOR_CREDIT;
            let claims = self.dispatch();
            if claims.is_empty() {
                return sent;
            }
            sent += self.held().values().sum::<u32>();
            self.settle();
        }
    }
}

#[test]
fn ramp_day_has_its_cap_and_none_after_the_last() {
    let finish_by_ms = 5 * DAY_MS;
    let mut test = DispatcherTest::with(2_000);
    let run = test.ledger.runs().next().expect("a run").0;
    test.put(Command::RunCancel(run));
    let policies = Policies { finish_by_ms, ..Policies::default() };
    let create = ScheduleCreate { name: "long".into(), policies, ..schedule(2_000) };
    let CommandOutcome::Schedule(id) = test.put(Command::ScheduleCreate(Box::new(create))) else {
        panic!("a schedule")
    };
    let trigger = reveille_ledger::command::Trigger::new(id, "long");
    assert!(matches!(test.put(Command::Trigger(trigger)), CommandOutcome::Run { .. }));
    test.warm_up(&[50, 300]);
    assert_eq!(test.sent(), 50);
    let (claims, sleep) = test.plan_claims();
    assert_eq!((claims, sleep), (vec![], SLEEP_MAX), "until midnight nothing is requested, and the dispatcher sleeps");
    // Another leader reads the same cap from the state.
    test.dispatcher.rates = ClaimRates::default();
    test.dispatcher.fair_queue = FairQueue::default();
    assert_eq!(test.sent(), 0);
    test.wait(DAY_MS);
    assert_eq!(test.sent(), 300);
    test.wait(DAY_MS);
    assert_eq!(test.sent(), 2_000 - 350);
}

/// The ledger cuts claims that exceed the cap, even if the leader does not know of earlier grants (P25).
#[test]
fn leader_with_old_state_exceeds_no_daily_cap() {
    let mut test = DispatcherTest::with(1_000);
    let mut before = DispatcherTest { ledger: test.ledger.clone(), ..DispatcherTest::with(1) };
    before.now = test.now;
    test.warm_up(&[50]);
    let requested: Vec<ClaimRequest> = before.dispatch();
    assert!(requested.iter().map(|claim| claim.slice.len()).sum::<u32>() > 50, "{requested:?}");
    test.put(Command::Claim(requested));
    assert_eq!(test.held().values().sum::<u32>(), 50);
}

#[test]
fn pending_claims_count_against_daily_cap() {
    let mut test = DispatcherTest::with(40);
    test.warm_up(&[50]);
    let planned = test.plan_only();
    test.dispatcher.in_flight.insert(planned.slices);
    let create = ScheduleCreate { name: "second".into(), ..schedule(100) };
    let CommandOutcome::Schedule(second) = test.put(Command::ScheduleCreate(Box::new(create))) else {
        panic!("a schedule")
    };
    test.fire(second, OpeningCause::Due);
    let requested: u32 = test.plan_only().requests.iter().map(|claim| claim.slice.len()).sum();
    assert_eq!(requested, 50 - 40);
}
