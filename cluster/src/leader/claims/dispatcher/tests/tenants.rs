//! Tests of several tenants: rate, concurrency, share.

use reveille_ledger::tenant::TenantSet;

use super::*;

impl DispatcherTest {
    /// Sets a tenant's limits: thousandths of an email per second, recipients at once, share. Zero means no limit.
    fn bound(&mut self, name: &str, (rate_milli, concurrency, share): (u64, u32, u32)) {
        let set = TenantSet {
            request: None,
            name: name.into(),
            rate_milli: Some(rate_milli),
            concurrency: Some(concurrency),
            share: Some(share),
            pools: None,
            expected: None,
        };
        assert_eq!(self.put(Command::TenantSet(set)), CommandOutcome::Done);
    }

    /// Opens a page of another tenant.
    fn open(&mut self, tenant: &str, recipients: u32) {
        let create = ScheduleCreate { tenant: tenant.into(), ..schedule(recipients) };
        let CommandOutcome::Schedule(id) = self.put(Command::ScheduleCreate(Box::new(create))) else {
            panic!("{tenant}")
        };
        let trigger = reveille_ledger::command::Trigger::new(id, tenant);
        let opened = self.put(Command::Trigger(trigger));
        assert!(matches!(opened, CommandOutcome::Run { .. }), "{opened:?}");
    }

    /// Returns the number of claimed recipients of each tenant.
    fn held_by_tenant(&self) -> BTreeMap<String, u32> {
        let mut held = BTreeMap::new();
        for (_, claim) in self.ledger.claims().iter() {
            let page = self.ledger.pages().get(&claim.chunk.page).expect("a page");
            *held.entry(page.tenant.to_string()).or_default() += claim.claimed.len();
        }
        held.retain(|_, claimed| *claimed > 0);
        held
    }
}

#[test]
fn tenant_rate_limits_claims_of_that_tenant_only() {
    for per_second in [2, 25, 120] {
        let mut test = DispatcherTest::with(3_000);
        test.bound("default", (per_second * 1_000, 0, 1));
        test.open("other", 9_000);
        let (mut own, mut others) = (0, 0);
        for _ in 0..200 {
            test.boot += SLEEP_FOR_CREDIT;
            test.dispatch();
            let held = test.held_by_tenant();
            own += u64::from(held.get("default").copied().unwrap_or(0));
            others += held.get("other").copied().unwrap_or(0);
            test.settle();
        }
        // Ten seconds. A bucket that starts empty gives nothing in the first second.
        assert!((9 * per_second..=10 * per_second).contains(&own), "{own} at {per_second} a second");
        assert!(others > 8_000, "as much as the nodes' caps let through: {others}");
    }
}

/// The rate holds whichever node leads, and however often the leader changes (P25).
#[test]
fn tenant_rate_holds_across_fail_over() {
    let mut test = DispatcherTest::with(3_000);
    test.bound("default", (20_000, 0, 1));
    let mut claimed = Vec::new();
    for _ in 0..4 {
        claimed.extend((0..3).map(|_| claimed_in_a_second(&mut test)));
        // The former leader's claims count as spent, and the new leader's bucket starts empty.
        test.dispatcher.rates = ClaimRates::default();
    }
    let all: u32 = claimed.iter().sum();
    assert!((4 * 2 * 20 - 20..=12 * 20).contains(&all), "{claimed:?}");
    for span in claimed.windows(2) {
        assert!(span.iter().sum::<u32>() <= 3 * 20, "two seconds, and what a bucket holds: {claimed:?}");
    }
}

#[test]
fn tenant_concurrency_holds_over_all_nodes_and_pools() {
    let mut test = DispatcherTest::with(1_000);
    test.bound("default", (0, 7, 1));
    test.open("other", 1_000);
    test.dispatch();
    assert_eq!(test.held_by_tenant(), [("default".into(), 7), ("other".into(), 2 * CAP)].into());
    assert_eq!(test.dispatch(), [], "neither has credit, and nothing is requested in vain");
    test.bound("default", (0, 9, 1));
    test.dispatch();
    assert_eq!(test.held_by_tenant()["default"], 9);
    test.bound("default", (0, 3, 1));
    assert_eq!(test.dispatch(), [], "nothing is taken away, and nothing added");
    test.settle();
    test.dispatch();
    assert_eq!(test.held_by_tenant()["default"], 3);
}

#[test]
fn tenant_waiting_for_rate_lets_dispatcher_sleep() {
    let mut test = DispatcherTest::with(1_000);
    test.bound("default", (2_000, 0, 1));
    let mut wakes = 0;
    while test.boot < Duration::from_secs(10) {
        let (_, sleep) = test.plan_claims();
        test.settle();
        test.boot += sleep;
        wakes += 1;
    }
    assert!(wakes <= 60, "{wakes} wakes in ten seconds");
    // A tenant that waits for its own claims is checked as often as before, because claims may end at any time.
    test.bound("default", (0, 2, 1));
    test.plan_claims();
    assert_eq!(test.plan_claims().1, SLEEP_FOR_CREDIT);
}

/// One tenant has a backlog of 655,360 recipients and a relay that is down; another one sends a hundred emails (I12).
/// The test counts the wakes until the last of the hundred is claimed; it measures no time.
#[test]
fn tenant_backlog_and_dead_relay_do_not_delay_other_tenants() {
    let wakes_until_claimed = |mut test: DispatcherTest| {
        test.open("other", 100);
        for wakes in 1..1_000 {
            test.boot += SLEEP_FOR_CREDIT;
            test.dispatch();
            let others = test.ledger.runs().filter(|(_, page, _)| *page.tenant == *"other");
            let waits = others.map(|(_, _, run)| run.counts.get(reveille_ledger::RecipientState::Pending)).sum::<u32>();
            if waits == 0 {
                return wakes;
            }
            // Half of the claims end.
            let ends = |(number, (fence, claim)): (usize, (&Fence, &reveille_ledger::Claim))| {
                let accepted =
                    ClaimOutcome { accepted: claim.claimed.clone(), ..ClaimOutcome::empty(claim.chunk, *fence) };
                number.is_multiple_of(2).then_some(accepted)
            };
            let outcomes = test.ledger.claims().iter().enumerate().filter_map(ends).collect();
            test.put(Command::Settle(outcomes));
        }
        panic!("it was never claimed");
    };
    let idle = wakes_until_claimed(DispatcherTest::with(1));
    let mut busy = DispatcherTest::sealed(10 * CHUNK);
    let relay = busy.ledger.relays().iter().map(|(_, relay)| relay.clone()).next().expect("a relay");
    busy.put(Command::RelayPut(Relay { name: "dead".into(), pool: "dead".into(), ..relay }.into()));
    let create = ScheduleCreate { name: "dead".into(), pool: "dead".into(), ..schedule(1_000) };
    let CommandOutcome::Schedule(id) = busy.put(Command::ScheduleCreate(Box::new(create))) else {
        panic!("a schedule")
    };
    let trigger = reveille_ledger::command::Trigger::new(id, "dead");
    assert!(matches!(busy.put(Command::Trigger(trigger)), CommandOutcome::Run { .. }));
    for _ in 0..10 {
        busy.boot += SLEEP_FOR_CREDIT;
        busy.dispatch();
    }
    assert!(busy.held_by_tenant()["default"] >= 2 * CAP, "it has all that it may have");
    assert_eq!(wakes_until_claimed(busy), idle, "a tenant's credit is its own");
}

/// Puts the slices of this tenant in flight, without an answer.
fn goes_for(test: &mut DispatcherTest, tenant: &str, planned: PlannedClaims) {
    let own: Vec<PlannedSlice> = planned.slices.into_iter().filter(|slice| slice.tenant == tenant).collect();
    assert!(!own.is_empty(), "{tenant} was to have some");
    test.dispatcher.in_flight.insert(own);
}

fn requested(claims: &[ClaimRequest]) -> u32 {
    claims.iter().map(|claim| claim.slice.len()).sum()
}

#[test]
fn pending_claims_count_against_tenant_concurrency() {
    let mut test = DispatcherTest::with(40);
    test.bound("default", (0, 50, 1));
    let planned = test.plan_only();
    goes_for(&mut test, "default", planned);
    let create = ScheduleCreate { name: "second".into(), ..schedule(100) };
    let CommandOutcome::Schedule(second) = test.put(Command::ScheduleCreate(Box::new(create))) else {
        panic!("a schedule")
    };
    test.fire(second, OpeningCause::Due);
    assert_eq!(requested(&test.plan_only().requests), 50 - 40);
}
