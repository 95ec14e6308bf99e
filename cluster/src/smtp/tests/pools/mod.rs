//! Tests of the pool: everything that one node sends to one relay.

use std::{
    collections::HashSet,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncRead, ReadBuf},
    task::JoinHandle,
    time::Instant,
};

use super::server::{Exchange, Script, ServerAction, ServerStep, mail, stepwise, target, until, when, willing};
use crate::smtp::cause::Cause;
use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::relay::circuit::Backoff;
use crate::smtp::relay::failure::RelayFailure;
use crate::smtp::relay::permit::{NextEmail, SendPermit};
use crate::smtp::relay::status::CircuitStatus;
use crate::smtp::relay::{RelayLimits, RelaySessions, Unavailable};
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::{Deadlines, Timeouts};
use crate::smtp::session::dialer::{Connected, Dial};
use crate::smtp::session::envelope::Email;

mod next_emails;
mod probes;

/// A gate that lets every email pass.
struct Open;

impl Gate for Open {
    fn decide(&mut self) -> GateAnswer {
        GateAnswer::Pass
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn pool(exchange: &Exchange, limits: RelayLimits) -> Arc<RelaySessions> {
    RelaySessions::new("main", target(), Arc::new(exchange.clone()), limits, 7)
}

fn quick() -> RelayLimits {
    RelayLimits { rate_per_second: 1e6, burst: 1e6, ..RelayLimits::default() }
}

async fn send(pool: &Arc<RelaySessions>, text: &str) -> DialogueResult {
    let permit = pool.acquire(soon()).await.expect("a permit");
    permit.send(&mail(text.as_bytes()), &mut Open, &Deadlines::default(), None).await.0
}

fn deliver_in_background(permit: SendPermit, email: Email) -> JoinHandle<DialogueResult> {
    tokio::spawn(async move { permit.send(&email, &mut Open, &Deadlines::default(), None).await.0 })
}

/// A dialer whose connection panics when it is read.
struct Panics;

#[async_trait]
impl Dial for Panics {
    async fn dial(&self, _: &str, _: u16) -> io::Result<Connected> {
        Ok(tokio::io::join(PanicsAtRead, tokio::io::sink()).into())
    }
}

struct PanicsAtRead;

impl AsyncRead for PanicsAtRead {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        panic!("a defect below the dialogue")
    }
}

#[tokio::test]
async fn panic_before_gate_is_not_in_doubt() {
    let pool = RelaySessions::new("main", target(), Arc::new(Panics), quick(), 7);
    let result = send(&pool, "x").await;
    assert!(matches!(result, DialogueResult::Broken { cause: Cause::Panicked(_), .. }), "{result:?}");
}

#[tokio::test]
async fn session_carries_many_emails_and_then_quits() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, RelayLimits { emails_per_session: 5, ..quick() });
    for number in 0..10 {
        assert!(matches!(send(&pool, &number.to_string()).await, DialogueResult::Accepted { .. }));
    }
    until("both sessions have quit", || exchange.seen.lock().open == 0).await;
    assert_eq!(exchange.seen.lock().connections, 2);
    assert_eq!(exchange.commands().iter().filter(|line| *line == "QUIT").count(), 2);
    let counters = pool.status().counters;
    assert_eq!((counters.accepted, counters.gate_passes, counters.sessions), (10, 10, 2));
}

#[tokio::test]
async fn session_ends_after_emails_that_relay_allows() {
    let ehlo = "250-relay\r\n250-PIPELINING\r\n250 LIMITS MAILMAX=2\r\n";
    let exchange = Exchange::new(when(ServerStep::Ehlo, ServerAction::Reply(ehlo)));
    let pool = pool(&exchange, quick());
    for text in ["a", "b", "c", "d"] {
        assert!(matches!(send(&pool, text).await, DialogueResult::Accepted { .. }));
    }
    assert_eq!(exchange.seen.lock().connections, 2);
}

#[tokio::test]
async fn closing_reply_teaches_emails_per_session() {
    let exchange = Exchange::new(Arc::new(|step, email| {
        let is_fourth = step == ServerStep::Mail && email == 3;
        is_fourth.then_some(ServerAction::ReplyAndClose("421 4.4.2 too old a session\r\n"))
    }));
    let pool = pool(&exchange, quick());
    for _ in 0..2 {
        for text in ["a", "b", "c"] {
            assert!(matches!(send(&pool, text).await, DialogueResult::Accepted { .. }));
        }
        let ended = send(&pool, "d").await;
        assert!(matches!(ended, DialogueResult::Broken { cause: Cause::ClosedBetweenEmails, .. }), "{ended:?}");
    }
    for text in ["d", "e", "f", "g", "h", "i", "j"] {
        assert!(matches!(send(&pool, text).await, DialogueResult::Accepted { .. }), "{text}");
    }
    assert_eq!(exchange.seen.lock().connections, 5, "two, and three for seven emails");
}

#[tokio::test]
async fn open_connections_never_exceed_the_limit() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, RelayLimits { max_sessions: 3, emails_per_session: 4, ..quick() });
    let texts: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let results = join_all(texts.iter().map(|text| send(&pool, text))).await;
    assert!(results.iter().all(|result| matches!(result, DialogueResult::Accepted { .. })));
    let seen = exchange.seen.lock();
    assert!((1..=3).contains(&seen.most_open), "{}", seen.most_open);
    assert_eq!(seen.accepted.len(), 100);
}

#[tokio::test]
async fn waiting_dot_keeps_its_session() {
    let exchange = Exchange::new(when(ServerStep::Dot, ServerAction::Hang));
    let pool = pool(&exchange, RelayLimits { max_sessions: 2, ..quick() });
    let mut deliveries = Vec::new();
    for text in ["a", "b"] {
        let permit = pool.acquire(soon()).await.expect("a permit");
        deliveries.push(deliver_in_background(permit, mail(text.as_bytes())));
    }
    until("both wait for their answer", || pool.status().waiting_dots == 2).await;
    let refused = pool.acquire(Instant::now() + Duration::from_millis(20)).await.map(|_| ());
    assert_eq!(refused, Err(Unavailable::Busy));
    assert_eq!(pool.status().sessions_open, 2);
}

#[tokio::test]
async fn farewell_keeps_its_session() {
    let exchange = Exchange::new(when(ServerStep::Quit, ServerAction::Hang));
    let timeouts = Timeouts { quit: Duration::from_secs(60), ..Timeouts::default() };
    let pool = pool(&exchange, RelayLimits { max_sessions: 1, emails_per_session: 1, timeouts, ..quick() });
    assert!(matches!(send(&pool, "a").await, DialogueResult::Accepted { .. }), "the result does not wait for it");
    let refused = pool.acquire(Instant::now() + Duration::from_millis(20)).await.map(|_| ());
    assert_eq!((refused, pool.status().sessions_open), (Err(Unavailable::Busy), 1));
}

#[tokio::test]
async fn idle_sessions_quit_after_a_while() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, RelayLimits { idle_for: Duration::from_millis(20), ..quick() });
    send(&pool, "a").await;
    until("it has quit", || exchange.commands().iter().any(|line| line == "QUIT")).await;
    until("it is gone", || pool.status().sessions_open == 0).await;
    assert!(matches!(send(&pool, "b").await, DialogueResult::Accepted { .. }), "and the next email opens another");
}

#[tokio::test]
async fn relay_closing_after_each_email_is_no_fault() {
    let exchange = Exchange::new(when(ServerStep::Dot, ServerAction::ReplyAndClose("250 queued\r\n")));
    let pool = pool(&exchange, quick());
    for number in 0..5 {
        assert!(matches!(send(&pool, &number.to_string()).await, DialogueResult::Accepted { .. }));
        until("it has left", || exchange.seen.lock().open == 0).await;
    }
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
    assert_eq!(exchange.seen.lock().connections, 5);
}

/// The relay supports SMTPUTF8 since its configuration was reloaded. Sessions from before do not offer it.
#[tokio::test]
async fn used_session_is_no_evidence_against_smtputf8() {
    let upgraded = Arc::new(AtomicBool::new(false));
    let offers = upgraded.clone();
    let exchange = Exchange::new(Arc::new(move |step, _| match step {
        ServerStep::Ehlo if offers.load(Ordering::SeqCst) => None,
        ServerStep::Ehlo => Some(ServerAction::Reply("250-relay\r\n250 8BITMIME\r\n")),
        _ => None,
    }));
    let pool = pool(&exchange, quick());
    assert!(matches!(send(&pool, "a").await, DialogueResult::Accepted { .. }));
    let beyond = || Email { to: "bj\u{f8}rn@example.com".to_owned(), ..mail(b"b") };
    let permit = pool.acquire(soon()).await.expect("a permit");
    assert_eq!(
        permit.send(&beyond(), &mut Open, &Deadlines::default(), None).await.0,
        DialogueResult::NoSmtpUtf8 { asked: true }
    );
    assert!(matches!(send(&pool, "c").await, DialogueResult::Accepted { .. }));
    upgraded.store(true, Ordering::SeqCst);
    let permit = pool.acquire(soon()).await.expect("a permit");
    let result = permit.send(&beyond(), &mut Open, &Deadlines::default(), None).await.0;
    assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}");
}

#[tokio::test]
async fn session_ends_after_email_that_it_cannot_carry() {
    let exchange = Exchange::new(when(ServerStep::Ehlo, ServerAction::Reply("502 5.5.1 not now\r\n")));
    let pool = pool(&exchange, quick());
    assert!(matches!(send(&pool, "a").await, DialogueResult::Accepted { .. }));
    let permit = pool.acquire(soon()).await.expect("a permit");
    let beyond = Email { to: "bj\u{f8}rn@example.com".to_owned(), ..mail(b"b") };
    assert_eq!(
        permit.send(&beyond, &mut Open, &Deadlines::default(), None).await.0,
        DialogueResult::NoSmtpUtf8 { asked: false }
    );
    until("it has quit", || pool.status().sessions_open == 0).await;
}

#[tokio::test]
async fn three_losses_after_the_dot_open_the_circuit() {
    let exchange = Exchange::new(when(ServerStep::Dot, ServerAction::Close));
    let pool = pool(&exchange, quick());
    for text in ["a", "b", "c"] {
        assert!(matches!(send(&pool, text).await, DialogueResult::InDoubt { .. }));
    }
    assert!(matches!(pool.acquire(soon()).await, Err(Unavailable::CircuitOpen { .. })));
    assert_eq!(pool.status().counters.in_doubt, 3);
}

#[tokio::test]
async fn throttle_answer_halves_rate() {
    let exchange = Exchange::new(when(
        ServerStep::Dot,
        ServerAction::Reply("454 Throttling failure: Maximum sending rate exceeded\r\n"),
    ));
    let pool = pool(&exchange, RelayLimits { rate_per_second: 500.0, ..quick() });
    send(&pool, "a").await;
    let status = pool.status();
    assert_eq!(
        status.slowed,
        Some(RelayFailure::answered(None, 454, "Throttling failure: Maximum sending rate exceeded"))
    );
    assert!((250.0..300.0).contains(&status.rate_per_second), "{}", status.rate_per_second);
    assert_eq!((status.circuit, status.counters.throttled), (CircuitStatus::Closed, 1));
}

/// Neither opens the circuit, so only this shows them.
#[tokio::test(start_paused = true)]
async fn refusals_for_relay_or_sender_are_shown_after_ten_minutes_until_an_acceptance() {
    for (step, reply) in [
        (ServerStep::Rcpt, "452 4.3.1 Insufficient system storage\r\n"),
        (ServerStep::Dot, "451 4.3.0 queue file write error\r\n"),
        (ServerStep::Mail, "450 4.1.8 <news@example.org>: Sender address rejected: Domain not found\r\n"),
    ] {
        let refuses = Arc::new(AtomicBool::new(true));
        let still = refuses.clone();
        let exchange = Exchange::new(Arc::new(move |at, _| {
            (at == step && still.load(Ordering::SeqCst)).then_some(ServerAction::Reply(reply))
        }));
        let pool = pool(&exchange, quick());
        for minute in 0..=10 {
            assert_eq!(pool.status().refusing, None, "{reply} after {minute} min");
            assert!(matches!(send(&pool, "a").await, DialogueResult::Refused { .. }), "{reply}");
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        let status = pool.status();
        assert_eq!(status.circuit, CircuitStatus::Closed, "{reply}");
        let (code, text) = reply.trim_end().split_once(' ').expect("a code and a text");
        assert_eq!(status.refusing, Some(RelayFailure::answered(None, code.parse().expect("a code"), text)));
        refuses.store(false, Ordering::SeqCst);
        assert!(matches!(send(&pool, "b").await, DialogueResult::Accepted { .. }), "{reply}");
        assert_eq!(pool.status().refusing, None, "{reply}");
    }
}

#[tokio::test]
async fn exhausted_quota_parks_relay() {
    let exchange = Exchange::new(when(
        ServerStep::Mail,
        ServerAction::Reply("454 Throttling failure: Daily message quota exceeded\r\n"),
    ));
    let backoff = Backoff { parked: Duration::from_millis(50), ..Backoff::default() };
    let pool = pool(&exchange, RelayLimits { backoff, ..quick() });
    let full = RelayFailure::answered(None, 454, "Throttling failure: Daily message quota exceeded");
    let mut parked = Vec::new();
    for _ in 0..2 {
        send(&pool, "a").await;
        let Err(Unavailable::Parked { until, cause }) = pool.acquire(soon()).await.map(|_| ()) else {
            panic!("it is parked");
        };
        assert_eq!(cause, full);
        assert_eq!(pool.status().circuit, CircuitStatus::Parked { until, cause });
        assert!(pool.status().rate_per_second > 1e5, "it is not slow, it is full");
        parked.push(until);
        tokio::time::sleep_until(until).await;
    }
    assert!(parked[0] < parked[1], "a probe that hears it again parks it again");
    let probe = pool.acquire(soon()).await.expect("the window may have slid");
    assert!(pool.acquire(soon()).await.is_err(), "one probe at a time");
    drop(probe);
}

#[tokio::test]
async fn unreachable_pace_reports_when_it_is_possible() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, RelayLimits { rate_per_second: 0.001, burst: 1.0, ..quick() });
    let before = Instant::now();
    let Err(Unavailable::RateLimited { until }) = pool.acquire(soon()).await.map(|_| ()) else {
        panic!("the first email is due in 1,000 s");
    };
    assert!(until > before + Duration::from_secs(900));
    pool.set_rate(1e6, 1e6);
    assert!(matches!(send(&pool, "a").await, DialogueResult::Accepted { .. }), "another share");
}

#[tokio::test]
async fn unused_permit_returns_its_session() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, quick());
    send(&pool, "a").await;
    let permit = pool.acquire(soon()).await.expect("a permit");
    assert_eq!(pool.status().sessions_idle, 0);
    drop(permit);
    assert_eq!(pool.status().sessions_idle, 1);
    send(&pool, "b").await;
    assert_eq!(exchange.seen.lock().connections, 1);
}

#[tokio::test]
async fn closed_pool_quits_sessions_and_gives_no_permits() {
    let exchange = Exchange::new(willing());
    let pool = pool(&exchange, quick());
    send(&pool, "a").await;
    assert!(pool.close(Duration::from_secs(60)).await);
    assert_eq!(exchange.commands().last().map(String::as_str), Some("QUIT"));
    assert!(matches!(pool.acquire(soon()).await, Err(Unavailable::Closed)));
}

#[tokio::test]
async fn closing_waits_no_longer_than_asked_for_a_dot_without_an_answer() {
    let exchange = Exchange::new(when(ServerStep::Dot, ServerAction::Hang));
    let pool = pool(&exchange, quick());
    let permit = pool.acquire(soon()).await.expect("a permit");
    let _delivery = deliver_in_background(permit, mail(b"a"));
    until("it waits for its answer", || pool.status().waiting_dots == 1).await;
    assert!(!pool.close(Duration::from_millis(20)).await);
    assert_eq!(pool.status().waiting_dots, 1, "and is not cut off");
}

#[tokio::test]
async fn relay_refusal_of_one_recipient_keeps_rate() {
    for words in [
        "452 4.3.1 Insufficient system storage\r\n",
        "450 4.4.3 no DNS\r\n",
        "550 5.4.1 no route\r\n",
        "450 4.7.1 <a@x.example>: Recipient address rejected: daily quota exceeded for this recipient\r\n",
        "450 4.7.1 <a@x.example>: Recipient address rejected: Too many messages\r\n",
    ] {
        let exchange = Exchange::new(when(ServerStep::Rcpt, ServerAction::Reply(words)));
        let pool = pool(&exchange, quick());
        let before = pool.status().rate_per_second;
        assert!(matches!(send(&pool, "a").await, DialogueResult::Refused { .. }), "{words}");
        assert!(pool.status().rate_per_second >= before, "{words}");
        assert_eq!(pool.status().slowed, None, "{words}");
    }
}

#[tokio::test]
async fn closing_reply_in_used_session_is_no_throttle() {
    let offered = Arc::new(AtomicUsize::new(0));
    let counted = offered.clone();
    let exchange = Exchange::new(Arc::new(move |step, _| match step {
        ServerStep::Mail if counted.fetch_add(1, Ordering::SeqCst) == 1 => {
            Some(ServerAction::ReplyAndClose("421 4.4.2 closing connection\r\n"))
        }
        _ => None,
    }));
    let pool = pool(&exchange, quick());
    let before = pool.status().rate_per_second;
    assert!(matches!(send(&pool, "a").await, DialogueResult::Accepted { .. }));
    let ended = send(&pool, "b").await;
    assert!(matches!(ended, DialogueResult::Broken { cause: Cause::ClosedBetweenEmails, .. }), "{ended:?}");
    assert!(matches!(send(&pool, "c").await, DialogueResult::Accepted { .. }), "in a session of its own");
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
    assert!(pool.status().rate_per_second >= before && pool.status().slowed.is_none());
}

#[tokio::test]
async fn session_above_relay_limit_only_slows_the_relay() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let picky: Script = Arc::new(move |step, _| match step {
        ServerStep::Banner if counted.fetch_add(1, Ordering::SeqCst) > 0 => {
            Some(ServerAction::ReplyAndClose("421 too many connections\r\n"))
        }
        ServerStep::Dot => Some(ServerAction::Hang),
        _ => None,
    });
    let exchange = Exchange::new(picky);
    let pool = pool(&exchange, quick());
    let first = deliver_in_background(pool.acquire(soon()).await.expect("a permit"), mail(b"a"));
    until("the first waits", || pool.status().waiting_dots == 1).await;
    assert!(matches!(send(&pool, "b").await, DialogueResult::Refused { code: 421, .. }));
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
    assert!(pool.status().rate_per_second < 0.6e6);
    drop(first);
}

/// Misbehaves at random, by seed.
fn chaos(seed: u64) -> Script {
    let random = parking_lot::Mutex::new(StdRng::seed_from_u64(seed));
    Arc::new(move |step, _| {
        let (dice, which) = {
            let mut random = random.lock();
            (random.random_range(0..100u32), random.random_range(0..6usize))
        };
        if dice >= 8 || step == ServerStep::InText {
            return None;
        }
        let actions = [
            ServerAction::Close,
            ServerAction::Reply("421 4.3.2 no\r\n"),
            ServerAction::Reply("550 5.1.1 no\r\n"),
            ServerAction::ReplyAndClose("25"),
            ServerAction::Reply("nonsense\r\n"),
            ServerAction::ReplyAndClose("451 4.7.1 later\r\n"),
        ];
        actions.get(which).cloned()
    })
}

#[tokio::test]
async fn each_email_has_one_result_and_counters_agree_whatever_relay_does() {
    for seed in 0..5 {
        let exchange = Exchange::new(chaos(seed));
        let backoff =
            Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(2), ..Backoff::default() };
        let timeouts = Timeouts { quit: Duration::from_secs(1), ..Timeouts::default() };
        let pool = pool(&exchange, RelayLimits { max_sessions: 4, backoff, timeouts, ..quick() });
        let results = join_all((0..300).map(|number| persistent(pool.clone(), number))).await;
        assert!(pool.close(Duration::from_secs(60)).await);
        let texts_with = |wanted: fn(&DialogueResult) -> bool| -> HashSet<Vec<u8>> {
            let chosen = results.iter().enumerate().filter(|(_, result)| wanted(result));
            chosen.map(|(number, _)| format!("{number}\r\n").into_bytes()).collect()
        };
        let accepted = texts_with(|result| matches!(result, DialogueResult::Accepted { .. }));
        let in_doubt = texts_with(|result| matches!(result, DialogueResult::InDoubt { .. }));
        let seen = exchange.seen.lock();
        let arrived: HashSet<Vec<u8>> = seen.accepted.iter().cloned().collect();
        assert_eq!(seen.accepted.len(), arrived.len(), "seed {seed}: nothing arrives twice (I1)");
        assert!(accepted.is_subset(&arrived), "seed {seed}: what we call sent has arrived (I9)");
        assert!(arrived.is_subset(&(&accepted | &in_doubt)), "seed {seed}: what arrived is sent or doubtful (I9)");
        let status = pool.status();
        assert!(seen.most_open <= 4, "seed {seed}: {}", seen.most_open);
        assert_eq!(status.waiting_dots, 0);
        assert!(accepted.len() as u64 <= status.counters.gate_passes, "seed {seed} (I14)");
        assert!(!accepted.is_empty() && accepted.len() < 300, "seed {seed}: the run exercised both ends");
    }
}

/// Acquires a permit, however often that fails, then sends one email.
async fn persistent(pool: Arc<RelaySessions>, number: usize) -> DialogueResult {
    loop {
        match pool.acquire(soon()).await {
            Ok(permit) => {
                let text = format!("{number}\r\n").into_bytes();
                return permit.send(&mail(&text), &mut Open, &Deadlines::default(), None).await.0;
            }
            Err(Unavailable::CircuitOpen { until, .. }) => {
                tokio::time::sleep_until(until.min(Instant::now() + Duration::from_millis(3))).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}
