use std::time::Duration;

use super::*;

/// In these tests a claim is the number of its tenant.
type Tenant = usize;

fn waiting(tenant: Tenant, share: u32, recipients: usize, deadline: Instant) -> WaitingClaim<Tenant> {
    let name = tenant.to_string().as_str().into();
    WaitingClaim { claim: tenant, tenant: name, share, recipients: (0..recipients).collect(), deadline }
}

/// Returns a queue with these claims: tenant, share, number of recipients.
fn queue_of(claims: impl IntoIterator<Item = (Tenant, u32, usize)>) -> Queue<Tenant> {
    let mut queue = PoolQueue::default().0.into_inner();
    for (tenant, share, recipients) in claims {
        queue.push(waiting(tenant, share, recipients, Instant::now()));
    }
    queue
}

/// Returns the tenants of the next `count` turns.
fn turns(queue: &mut Queue<Tenant>, count: usize) -> Vec<Tenant> {
    (0..count).map(|_| queue.next_if(|_, _| true).expect("a recipient waits").0).collect()
}

fn count_of(turns: &[Tenant], tenant: Tenant) -> usize {
    turns.iter().filter(|turn| **turn == tenant).count()
}

#[tokio::test]
async fn tenant_with_many_claims_gets_as_many_turns_as_one_with_few() {
    let many = (0..20).map(|_| (0, 1, 1_000));
    let turns = turns(&mut queue_of(many.chain([(1, 1, 1_000)])), 1_000);
    assert_eq!(count_of(&turns, 0), 500);
}

#[tokio::test]
async fn turns_follow_shares_whatever_the_number_of_claims() {
    for (claims, shares) in [([1, 20], [4, 1]), ([1, 1], [4, 1]), ([3, 1], [2, 5]), ([1, 1], [16, 1])] {
        let claims_of = |tenant: Tenant| (0..claims[tenant]).map(move |_| (tenant, shares[tenant], 4_000));
        let turns = turns(&mut queue_of(claims_of(0).chain(claims_of(1))), 3_400);
        let ratio = count_of(&turns, 0) as f64 / count_of(&turns, 1) as f64;
        let expected = f64::from(shares[0]) / f64::from(shares[1]);
        assert!((expected * 0.98..=expected * 1.02).contains(&ratio), "{ratio} by {shares:?}");
    }
}

#[tokio::test]
async fn claims_of_one_tenant_take_turns() {
    let mut queue = queue_of([(0, 1, 3), (0, 1, 2)]);
    let numbers: Vec<usize> = std::iter::from_fn(|| queue.next_if(|_, _| true)).map(|(_, number, _)| number).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2]);
    assert!(queue.deadlines.is_empty() && queue.claims.is_empty() && queue.next.is_empty());
}

/// A tenant with this share returns after another tenant had a thousand turns alone. Returns, for each of its first
/// `count` turns, the number of turns that the other tenant had since.
fn turns_of_other_before_each(share: u32, count: usize) -> Vec<usize> {
    const STEADY: Tenant = 0;
    const RETURNING: Tenant = 1;
    let mut queue = queue_of([(STEADY, 1, 10_000)]);
    turns(&mut queue, 1_000);
    queue.push(waiting(RETURNING, share, count, Instant::now()));
    let mut of_other = 0;
    let mut before = Vec::new();
    while before.len() < count {
        match turns(&mut queue, 1)[..] {
            [RETURNING] => before.push(of_other),
            _ => of_other += 1,
        }
    }
    before
}

#[tokio::test]
async fn returning_tenant_has_its_saved_turns_at_once_and_no_more() {
    let saved = SAVED_TURNS as usize;
    let before = turns_of_other_before_each(1, 2 * saved);
    assert!(before[saved - 1] <= 1, "saved turns come first: {before:?}");
    assert!((saved - 3..=saved).contains(&before[2 * saved - 1]), "then every second turn: {before:?}");
    let before = turns_of_other_before_each(4, 2 * saved);
    assert!(before[saved - 1] <= 1, "{before:?}");
    assert!((saved / 4 - 2..=saved / 4 + 1).contains(&before[2 * saved - 1]), "four of five by its share: {before:?}");
}

#[tokio::test]
async fn tenant_that_returns_often_has_no_more_than_its_share_and_its_saved_turns() {
    const STEADY: Tenant = 0;
    const BURSTY: Tenant = 1;
    let mut queue = queue_of([(STEADY, 1, 10_000)]);
    let mut of_bursty = 0;
    for turn in 0..10_000 {
        // The tenant sends bursts, with pauses in which it saves turns.
        if turn % 500 < 300 {
            queue.push(waiting(BURSTY, 1, 1, Instant::now()));
        }
        of_bursty += count_of(&turns(&mut queue, 1), BURSTY);
        let _ = queue.remove(queue.added).filter(|last| last.claim == BURSTY);
    }
    assert!(of_bursty <= 5_000 + SAVED_TURNS as usize, "{of_bursty}");
}

#[tokio::test]
async fn recipient_that_is_not_wanted_keeps_its_turn() {
    let mut queue = queue_of([(0, 1, 1), (1, 1, 1)]);
    assert!(queue.next_if(|_, _| false).is_none());
    assert_eq!(turns(&mut queue, 1), [0]);
    assert!(queue.next_if(|tenant, _| *tenant == 0).is_none(), "it is the turn of the other tenant");
    assert_eq!(turns(&mut queue, 1), [1]);
}

#[tokio::test(start_paused = true)]
async fn claims_past_their_deadline_are_taken_out_and_hold_up_no_other() {
    let queues = PoolQueues::default();
    let in_seconds = |seconds| Instant::now() + Duration::from_secs(seconds);
    let queue = queues.push("default", waiting(0, 1, 3, in_seconds(1))).expect("the first one needs a feeder");
    assert!(queues.push("default", waiting(1, 1, 2, in_seconds(5))).is_none(), "it has a feeder");
    assert!(queues.push("other", waiting(1, 1, 2, in_seconds(5))).is_some(), "another pool");
    assert_eq!(queue.earliest(), Some(in_seconds(1)));
    assert_eq!(queue.next_if(|_, _| true).map(|(tenant, number, _)| (tenant, number)), Some((0, 0)));
    let due = queue.take_up_to(in_seconds(1));
    let due: Vec<_> = due.iter().map(|claim| (claim.claim, claim.recipients.iter().copied().collect())).collect();
    assert_eq!(due, [(0, vec![1, 2])]);
    assert_eq!(queue.next_if(|_, _| true).map(|(tenant, number, _)| (tenant, number)), Some((1, 0)));
    assert_eq!(queue.take_all().len(), 1);
    assert_eq!(queue.earliest(), None, "the feeder ends");
    assert!(queues.push("default", waiting(0, 1, 1, in_seconds(1))).is_some(), "and the next claim needs another one");
}

#[tokio::test]
async fn idle_pools_and_tenants_are_forgotten() {
    let queues = PoolQueues::default();
    let kept = queues.push("default", waiting(0, 1, 1, Instant::now())).expect("a queue");
    for number in 0..2 * KNOWN_MAX {
        drop(queues.push(&number.to_string(), waiting(0, 1, 1, Instant::now())));
        let mut queue = kept.0.lock();
        queue.push(waiting(number, 1, 1, Instant::now()));
        while queue.next_if(|_, _| true).is_some() {}
        queue.last += SAVED_TURNS * STEP;
    }
    assert!(queues.0.lock().len() <= KNOWN_MAX);
    assert!(Arc::ptr_eq(&kept, &queues.0.lock()["default"]));
    assert!(kept.0.lock().tenants.len() <= KNOWN_MAX);
}
