//! Tests of the next email of a session (P5.3): when it is permitted, and when its session ends.

use super::*;

/// Returns a permit with an open session, over which one email was sent.
async fn permit_with_session(pool: &Arc<RelaySessions>) -> SendPermit {
    assert!(matches!(send(pool, "first").await, DialogueResult::Accepted { .. }));
    pool.acquire(soon()).await.expect("a permit")
}

/// Sends two emails by one permit. Returns the second one's result; `None` if the relay gave no permit for it.
async fn send_two(mut permit: SendPermit) -> Option<DialogueResult> {
    let (one, two) = (mail(b"one"), mail(b"two"));
    let next = NextEmail { email: &two, permit: permit.try_acquire_next().expect("it is permitted") };
    let (result, permit) = permit.send(&one, &mut Open, &Deadlines::default(), Some(next)).await;
    assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}");
    Some(permit?.send(&two, &mut Open, &Deadlines::default(), None).await.0)
}

#[tokio::test]
async fn next_email_uses_the_same_session() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, quick());
    let mut new = pool.acquire(soon()).await.expect("a permit");
    assert!(new.try_acquire_next().is_none(), "a session that is not open yet may never be");
    drop(new);
    let result = send_two(permit_with_session(&pool).await).await;
    assert!(matches!(result, Some(DialogueResult::Accepted { .. })), "{result:?}");
    assert_eq!(exchange.seen.lock().connections, 1);
    assert_eq!(exchange.seen.lock().accepted.len(), 3);
    assert_eq!((pool.status().counters.gate_passes, pool.status().sessions_idle), (3, 1));
}

#[tokio::test]
async fn next_email_needs_pipelining() {
    let pool = pool(&Exchange::new(stepwise(willing())), quick());
    assert!(permit_with_session(&pool).await.try_acquire_next().is_none());
}

#[tokio::test]
async fn next_email_needs_a_token_of_the_rate() {
    let pool = pool(&Exchange::new(willing()), RelayLimits { rate_per_second: 5.0, burst: 1.0, ..quick() });
    let mut permit = permit_with_session(&pool).await;
    assert!(permit.try_acquire_next().is_none(), "the permit has taken the only token");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(permit.try_acquire_next().is_some());
    assert!(permit.try_acquire_next().is_none(), "one token, one email");
}

#[tokio::test]
async fn session_takes_no_next_email_beyond_what_it_may_carry() {
    for (ehlo, emails_per_session, fits) in [
        ("250-relay\r\n250-PIPELINING\r\n250 LIMITS MAILMAX=2\r\n", 1_000, false),
        ("250-relay\r\n250-PIPELINING\r\n250 LIMITS MAILMAX=3\r\n", 1_000, true),
        ("250-relay\r\n250 PIPELINING\r\n", 2, false),
        ("250-relay\r\n250 PIPELINING\r\n", 3, true),
    ] {
        let exchange = Exchange::new(when(ServerStep::Ehlo, ServerAction::Reply(ehlo)));
        let pool = pool(&exchange, RelayLimits { emails_per_session, ..quick() });
        assert_eq!(permit_with_session(&pool).await.try_acquire_next().is_some(), fits, "{ehlo} {emails_per_session}");
    }
}

/// An email that waits for a slow relay's answer to another one could be sent elsewhere meanwhile (I12).
#[tokio::test]
async fn slow_relay_gets_no_next_email() {
    let slow = ServerAction::ReplyAfter(Duration::from_millis(300), "250 queued\r\n");
    let pool = pool(&Exchange::new(when(ServerStep::Dot, slow)), quick());
    assert!(permit_with_session(&pool).await.try_acquire_next().is_none());
}

/// The second MAIL that the relay gets over all sessions fails, which opens the circuit.
#[tokio::test]
async fn open_circuit_permits_no_next_email_and_ends_session_of_announced_one() {
    let commands = AtomicUsize::new(0);
    let script: Script = Arc::new(move |step, _| {
        let fails = step == ServerStep::Mail && commands.fetch_add(1, Ordering::SeqCst) == 1;
        fails.then_some(ServerAction::Close)
    });
    let exchange = Exchange::new(script);
    let pool = pool(&exchange, quick());
    let mut permit = permit_with_session(&pool).await;
    let next_permit = permit.try_acquire_next().expect("the circuit is closed");
    let other = pool.acquire(soon()).await.expect("another session");
    assert!(matches!(
        other.send(&mail(b"x"), &mut Open, &Deadlines::default(), None).await.0,
        DialogueResult::Broken { .. }
    ));
    assert!(permit.try_acquire_next().is_none(), "the circuit is open");

    let next = NextEmail { email: &mail(b"two"), permit: next_permit };
    let (result, next) = permit.send(&mail(b"one"), &mut Open, &Deadlines::default(), Some(next)).await;
    assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}");
    assert!(next.is_none(), "an open circuit lets no email through");
    until("its session is closed", || exchange.seen.lock().open == 0).await;
    assert_eq!(exchange.seen.lock().texts.len(), 2);
}

#[tokio::test]
async fn reduction_of_sessions_gets_the_slot_of_a_session_in_use() {
    let pool = pool(&Exchange::new(willing()), RelayLimits { max_sessions: 2, ..quick() });
    let mut permit = permit_with_session(&pool).await;
    let other = pool.acquire(soon()).await.expect("another session");
    pool.set_sessions(1);
    assert!(permit.try_acquire_next().is_none(), "a slot in use is waited for");
    drop(other);
    tokio::time::timeout(Duration::from_secs(30), async {
        while permit.try_acquire_next().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the slot is removed");
}

#[tokio::test]
async fn session_of_announced_email_that_was_given_back_is_closed_without_quit() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, quick());
    let mut permit = permit_with_session(&pool).await;
    let next = NextEmail { email: &mail(b"two"), permit: permit.try_acquire_next().expect("it is permitted") };
    let (_, permit) = permit.send(&mail(b"one"), &mut Open, &Deadlines::default(), Some(next)).await;
    drop(permit.expect("a permit for the next email"));
    assert_eq!(pool.status().sessions_idle, 0);
    until("the connection is closed", || exchange.seen.lock().open == 0).await;
    assert!(!exchange.commands().iter().any(|command| command == "QUIT"));
    assert!(matches!(send(&pool, "three").await, DialogueResult::Accepted { .. }), "by another session");
    assert_eq!(exchange.seen.lock().accepted.len(), 3);
}
