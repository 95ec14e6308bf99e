//! Tests of a relay that cannot be reached or is silent: no email waits for it, and one dialogue probes it.

use super::*;
use crate::smtp::relay::failure::RelayTrouble;
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::stage::Stage;

/// Refuses connections while `refusals_left` is not zero.
struct Unreachable {
    exchange: Exchange,
    refusals_left: AtomicUsize,
    dialed: AtomicUsize,
}

#[async_trait]
impl Dial for Unreachable {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Connected> {
        self.dialed.fetch_add(1, Ordering::SeqCst);
        let left = self.refusals_left.load(Ordering::SeqCst);
        if left > 0 {
            self.refusals_left.store(left - 1, Ordering::SeqCst);
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.exchange.dial(host, port).await
    }
}

#[tokio::test]
async fn unreachable_relay_is_probed_by_one_dialogue() {
    let dialer = Arc::new(Unreachable {
        exchange: Exchange::new(willing()),
        refusals_left: AtomicUsize::new(2),
        dialed: AtomicUsize::new(0),
    });
    let backoff =
        Backoff { first: Duration::from_millis(30), longest: Duration::from_millis(60), ..Backoff::default() };
    let pool = RelaySessions::new("main", target(), dialer.clone(), RelayLimits { backoff, ..quick() }, 7);
    assert!(matches!(send(&pool, "a").await, DialogueResult::Broken { .. }));
    let Err(Unavailable::CircuitOpen { until, cause }) = pool.acquire(soon()).await.map(|_| ()) else {
        panic!("the circuit is open");
    };
    assert_eq!(cause.stage, Some(Stage::Connect), "{cause}");
    tokio::time::sleep_until(until).await;
    assert!(matches!(pool.acquire(soon()).await, Err(Unavailable::CircuitOpen { .. })), "no email opens it");
    until_dialed(&dialer, 2).await;
    let limit = soon();
    loop {
        assert!(Instant::now() < limit, "it never recovers");
        match pool.acquire(soon()).await {
            Ok(permit) => {
                let result = permit.send(&mail(b"c"), &mut Open, &Deadlines::default(), None).await.0;
                assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}");
                break;
            }
            Err(Unavailable::CircuitOpen { until, .. }) => tokio::time::sleep_until(until).await,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
    assert_eq!(dialer.dialed.load(Ordering::SeqCst), 3);
}

/// Returns the permit of the email that probes a relay whose first session could not be opened.
async fn probe_after_lost_session(pool: &Arc<RelaySessions>) -> SendPermit {
    assert!(matches!(send(pool, "a").await, DialogueResult::Broken { .. }));
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < limit, "no probe");
        match pool.acquire(soon()).await {
            Ok(permit) => return permit,
            Err(Unavailable::CircuitOpen { until, .. }) => tokio::time::sleep_until(until).await,
            Err(other) => panic!("{other}"),
        }
    }
}

fn refuses_one_session(exchange: Exchange) -> Arc<Unreachable> {
    Arc::new(Unreachable { exchange, refusals_left: AtomicUsize::new(1), dialed: AtomicUsize::new(0) })
}

/// A relay that lacks what an email needs has not failed: it answers.
#[tokio::test(start_paused = true)]
async fn probe_that_relay_cannot_take_for_want_of_smtputf8_closes_circuit() {
    let exchange = Exchange::new(when(ServerStep::Ehlo, ServerAction::Reply("250-relay\r\n250 8BITMIME\r\n")));
    let pool = RelaySessions::new("main", target(), refuses_one_session(exchange), quick(), 7);
    let permit = probe_after_lost_session(&pool).await;
    let beyond = Email { to: "bj\u{f8}rn@example.com".to_owned(), ..mail(b"b") };
    assert_eq!(
        permit.send(&beyond, &mut Open, &Deadlines::default(), None).await.0,
        DialogueResult::NoSmtpUtf8 { asked: true }
    );
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
}

#[tokio::test(start_paused = true)]
async fn probe_whose_message_is_refused_at_mail_closes_circuit() {
    let exchange =
        Exchange::new(when(ServerStep::Mail, ServerAction::Reply("552 5.3.4 message too big for system\r\n")));
    let pool = RelaySessions::new("main", target(), refuses_one_session(exchange), quick(), 7);
    let permit = probe_after_lost_session(&pool).await;
    let result = permit.send(&mail(b"b"), &mut Open, &Deadlines::default(), None).await.0;
    assert!(
        matches!(&result, DialogueResult::Refused { stage: Stage::Mail, class, .. } if *class != ReplyClass::Relay),
        "{result:?}"
    );
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
}

async fn until_dialed(dialer: &Unreachable, times: usize) {
    until("a session is being opened", || dialer.dialed.load(Ordering::SeqCst) >= times).await;
}

/// P12: an email that waits for a greeting returns in time. While the relay is silent, no other email waits for it.
#[tokio::test(start_paused = true)]
async fn silent_relay_holds_email_ten_seconds_and_is_probed_without_email() {
    let silent = Arc::new(AtomicBool::new(true));
    let is_silent = silent.clone();
    let exchange = Exchange::new(Arc::new(move |step, _| {
        (step == ServerStep::Banner && is_silent.load(Ordering::SeqCst)).then_some(ServerAction::Hang)
    }));
    let pool = pool(&exchange, quick());
    let begun = Instant::now();
    let seconds = Duration::from_secs;
    let deadlines = || {
        let (open_by, gate_by) = (Some(Instant::now() + seconds(10)), Some(Instant::now() + seconds(60)));
        Deadlines { open_by, gate_by, ..Deadlines::default() }
    };
    let permit = pool.acquire(soon()).await.expect("a permit");
    let result = permit.send(&mail(b"a"), &mut Open, &deadlines(), None).await.0;
    assert_eq!(result, DialogueResult::Broken { stage: Stage::Connect, cause: Cause::NotBegunInTime });
    assert!(begun.elapsed() < seconds(11), "{:?}", begun.elapsed());
    let CircuitStatus::HalfOpen { cause, .. } = pool.status().circuit else { panic!("it has not had its time yet") };
    assert_eq!(cause.trouble, RelayTrouble::OpeningLate);
    let refused = pool.acquire(soon()).await.map(|_| ());
    assert!(matches!(refused, Err(Unavailable::CircuitOpen { .. })), "P12: no email meets it twice: {refused:?}");
    tokio::time::sleep_until(begun + seconds(31)).await;
    let CircuitStatus::Open { cause, .. } = pool.status().circuit else { panic!("it had its time") };
    assert_eq!(cause.trouble, RelayTrouble::Slow(seconds(30)));
    for _ in 0..20 {
        let refused = pool.acquire(soon()).await.map(|_| ());
        let Err(Unavailable::CircuitOpen { until, .. }) = refused else { panic!("{refused:?}") };
        tokio::time::sleep_until(until).await;
    }
    assert_eq!(exchange.seen.lock().connections, 2, "one dialogue tries it, and goes on trying");
    silent.store(false, Ordering::SeqCst);
    let permit = loop {
        match pool.acquire(soon()).await {
            Ok(permit) => break permit,
            Err(Unavailable::CircuitOpen { until, .. }) => tokio::time::sleep_until(until).await,
            Err(other) => panic!("{other}"),
        }
        assert!(begun.elapsed() < seconds(600), "it never comes back");
    };
    assert_eq!(pool.status().sessions_open, 1, "the email that probes has a session that greets");
    assert!(matches!(permit.send(&mail(b"b"), &mut Open, &deadlines(), None).await.0, DialogueResult::Accepted { .. }));
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
}

/// postscreen does this to every client that it does not know: the greeting comes after six seconds.
#[tokio::test(start_paused = true)]
async fn greeting_after_six_seconds_does_not_open_circuit() {
    let exchange = Exchange::new(when(
        ServerStep::Banner,
        ServerAction::ReplyAfter(Duration::from_secs(6), "220 relay ESMTP\r\n"),
    ));
    let pool = pool(&exchange, quick());
    let deadlines = || Deadlines { open_by: Some(Instant::now() + Duration::from_secs(4)), ..Deadlines::default() };
    let permit = pool.acquire(soon()).await.expect("a permit");
    let result = permit.send(&mail(b"a"), &mut Open, &deadlines(), None).await.0;
    assert_eq!(result, DialogueResult::Broken { stage: Stage::Connect, cause: Cause::NotBegunInTime });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = pool.status();
    assert_eq!((status.circuit, status.sessions_idle), (CircuitStatus::Closed, 1), "it opened for the next email");
    let permit = pool.acquire(soon()).await.expect("a permit");
    assert!(matches!(permit.send(&mail(b"b"), &mut Open, &deadlines(), None).await.0, DialogueResult::Accepted { .. }));
    assert_eq!(exchange.seen.lock().connections, 1);
}
