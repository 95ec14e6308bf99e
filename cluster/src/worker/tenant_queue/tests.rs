//! Whose turn it is at the door of a pool.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::*;

/// Claims that each want sessions again and again, by tenant, with its share; answers how many each tenant got.
async fn got(turns: Arc<TenantQueues>, tenants: [(u32, u32); 2]) -> [u32; 2] {
    let (sessions, got) = (Arc::new(Semaphore::new(2)), Arc::new([AtomicU32::new(0), AtomicU32::new(0)]));
    let mut tasks = tokio::task::JoinSet::new();
    for (tenant, (claims, share)) in tenants.into_iter().enumerate() {
        for _ in 0..claims {
            let (sessions, got) = (Arc::clone(&sessions), Arc::clone(&got));
            let mut waiting = turns.join(&tenant.to_string(), "default", share);
            tasks.spawn(async move {
                loop {
                    let turn = waiting.turn(Instant::now() + Duration::from_secs(60)).await.expect("a turn");
                    let session = Arc::clone(&sessions).acquire_owned().await.expect("a session");
                    waiting.requeue(turn);
                    got[tenant].fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        drop(session);
                    });
                }
            });
        }
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    [0, 1].map(|tenant: usize| got[tenant].load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn tenant_with_many_claims_gets_no_more_turns() {
    let [many, few] = got(Arc::default(), [(20, 1), (1, 1)]).await;
    assert!(many + few > 3_000, "the sessions are never idle: {many} and {few}");
    assert!(many.abs_diff(few) * 20 < many + few, "{many} and {few}");
    let [alone, _] = got(Arc::default(), [(20, 1), (0, 1)]).await;
    assert!(alone > 3_000, "alone it has all of them: {alone}");
}

#[tokio::test(start_paused = true)]
async fn tenant_gets_turns_by_its_share_with_few_claims() {
    for (claims, shares) in [([1, 20], [4, 1]), ([1, 1], [4, 1]), ([3, 1], [2, 5]), ([1, 1], [16, 1])] {
        let [one, other] = got(Arc::default(), [(claims[0], shares[0]), (claims[1], shares[1])]).await;
        let (ratio, expected) = (f64::from(one) / f64::from(other), f64::from(shares[0]) / f64::from(shares[1]));
        assert!((expected * 0.98..=expected * 1.02).contains(&ratio), "{one} and {other} by {shares:?}");
    }
}

/// A queue with a tenant that was alone for a thousand turns, and a tenant of this share that comes back;
/// of that one's first turns, how many were the other's before each.
fn before_each_turn_of_who_comes_back(share: u32, turns: usize) -> Vec<usize> {
    let (mut queue, early, late): (Queue, Arc<str>, Arc<str>) = (Queue::default(), "early".into(), "late".into());
    for _ in 0..1_000 {
        queue.begin(&early, 1);
    }
    let claims: Vec<_> = (0..turns).flat_map(|_| [queue.stand(&early, 1), queue.stand(&late, share)]).collect();
    let mut of_early = 0;
    let mut next = || loop {
        let before = queue.tenants[&late].claims.len();
        queue.next().expect("a claim");
        if queue.tenants[&late].claims.len() < before {
            return of_early;
        }
        of_early += 1;
    };
    let before = (0..turns).map(|_| next()).collect();
    drop(claims);
    before
}

#[test]
fn returning_tenant_has_few_saved_turns_for_any_share() {
    let saved = SAVED_TURNS as usize;
    let before = before_each_turn_of_who_comes_back(1, 2 * saved);
    assert_eq!(before[..=saved], vec![0; saved + 1], "they were saved");
    let then: Vec<usize> = (1..saved).collect();
    assert_eq!(before[saved + 1..], then, "and then every second one is its own");
    let before = before_each_turn_of_who_comes_back(4, 2 * saved);
    assert_eq!(before[..=saved], vec![0; saved + 1]);
    assert_eq!(before[2 * saved - 1], saved / 4 - 1, "four of five by its share");
}

#[test]
fn intermittent_tenant_has_no_more_turns_than_its_share() {
    let (mut queue, steady, comes): (Queue, Arc<str>, Arc<str>) = (Queue::default(), "steady".into(), "comes".into());
    let mut of_comes = 0;
    let turns = 10_000;
    for turn in 0..turns {
        let claim = queue.stand(&steady, 1);
        // It asks for bursts, with pauses in which it saves.
        let asks = turn % 500 < 300;
        let other = asks.then(|| queue.stand(&comes, 1));
        queue.next().expect("a claim");
        if let Some(mut other) = other {
            of_comes += usize::from(matches!(other.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        }
        drop(claim);
    }
    assert!(of_comes <= turns / 2 + SAVED_TURNS as usize, "{of_comes} of {turns}");
}

#[tokio::test(start_paused = true)]
async fn timed_out_waiter_gets_no_turn_and_delays_no_others() {
    let turns = TenantQueues::default();
    let of = |tenant, pool| turns.join(tenant, pool, 1);
    let (soon, late) = (Duration::from_secs(1), Duration::from_secs(60));
    let first = of("a", "default").turn(Instant::now() + late).await.expect("a turn");
    assert!(of("a", "default").turn(Instant::now() + soon).await.is_none());
    assert!(of("b", "default").turn(Instant::now() + soon).await.is_none(), "another tenant waits as well");
    assert!(of("a", "other").turn(Instant::now()).await.is_some(), "another pool");
    // One that waits on, and one that has the turn without having looked.
    let (mut stays, mut leaves) = (of("a", "default"), of("b", "default"));
    leaves.asked = Some(leaves.queue.0.lock().stand(&leaves.tenant, leaves.share));
    stays.asked = Some(stays.queue.0.lock().stand(&stays.tenant, stays.share));
    drop(first);
    leaves.leave();
    assert!(stays.turn(Instant::now() + soon).await.is_some());
    assert!(of("c", "default").turn(Instant::now()).await.is_some(), "and then it is free");
}

#[test]
fn queue_without_waiters_is_forgotten() {
    let turns = TenantQueues::default();
    let kept = turns.join("kept", "default", 1);
    for number in 0..2 * KNOWN_MAX {
        drop(turns.join("kept", &number.to_string(), 1));
        let waiting = turns.join(&number.to_string(), "default", 1);
        let mut queue = waiting.queue.0.lock();
        queue.begin(&waiting.tenant, waiting.share);
        queue.last += STEP;
    }
    assert!(turns.0.lock().len() <= KNOWN_MAX);
    assert!(Arc::ptr_eq(&kept.queue, &turns.join("kept", "default", 1).queue));
    assert!(kept.queue.0.lock().tenants.len() <= KNOWN_MAX);
}
