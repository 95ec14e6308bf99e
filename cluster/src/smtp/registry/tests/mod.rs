//! Tests of the relays of a pool: which relay is asked, which is waited for, and what a change leaves unchanged.

mod claims;

use super::*;
use crate::process::rate_limiter::RateLimiter;
use crate::smtp::relay::failure::RelayFailure;
use crate::smtp::{
    Connected, Deadlines, DialogueResult, Email, EmailText, Gate, GateAnswer, RelayCounters, ReplyClass, ReplyRules,
    TcpDialer,
};
use reveille_ledger::access::Access;
use reveille_ledger::command::{Actor, Command, Entry as LogEntry, EpochStart, VoterClock};
use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, Time};
use reveille_sink::{Sink, SinkOptions};

/// A dialer that reaches no relay and counts its calls.
#[derive(Default)]
struct Nowhere(AtomicU32);

#[async_trait::async_trait]
impl Dial for Nowhere {
    async fn dial(&self, _: &str, _: u16) -> std::io::Result<Connected> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(std::io::ErrorKind::ConnectionRefused.into())
    }
}

/// A gate that lets every email pass.
struct Open;

impl Gate for Open {
    fn decide(&mut self) -> GateAnswer {
        GateAnswer::Pass
    }
}

/// Returns a ledger with its first epoch.
fn led() -> Ledger {
    let mut ledger = Ledger::new();
    let me = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
    let start = EpochStart::new(me, 1, vec![VoterClock { node: me.node, wall: Time(0) }]);
    ledger.apply(
        1,
        &LogEntry { epoch: Epoch(0), now: Time(0), actor: Actor::System, command: Command::EpochStart(start) },
    );
    ledger
}

/// Returns a relay of the default pool, without a rate limit.
fn relay(name: &str, max_sessions: u32) -> Relay {
    Relay {
        name: name.to_owned(),
        pool: "default".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 25,
        access: Access::default(),
        rate_milli: 0,
        max_sessions,
        late_rate_milli: 0,
        weight: 1,
    }
}

fn put_relay(ledger: &mut Ledger, relay: Relay) {
    let (index, command) = (ledger.head().applied + 1, Command::RelayPut(relay.into()));
    ledger.apply(index, &LogEntry { epoch: Epoch(1), now: Time(0), actor: Actor::System, command });
}

/// P12: open dialogues with a relay on a node never exceed its sessions, even if settings change meanwhile.
#[tokio::test]
async fn changed_rate_or_bound_keeps_running_dialogues() {
    let relays = relays_by(Arc::new(Nowhere::default()), RelayRules::default());
    let mut ledger = led();
    let mut put = |rate_milli, max_sessions, voters| {
        put_relay(&mut ledger, Relay { rate_milli, ..relay("main", max_sessions) });
        relays.follow(&ledger, voters);
    };
    let acquire = || relays.acquire("default", Instant::now() + Duration::from_millis(50));
    let is_full = |permit: Result<SendPermit, _>| matches!(permit, Err(NoPermit::Unavailable(Unavailable::Busy)));
    put(0, 2, 1);
    let (one, two) = (acquire().await.expect("a session"), acquire().await.expect("a session"));
    put(9_000_000, 2, 3);
    assert!(is_full(acquire().await), "another rate makes no more sessions");
    put(9_000_000, 3, 3);
    let three = acquire().await.expect("a third session");
    put(9_000_000, 1, 3);
    // A separate task acquires the surplus slots.
    tokio::task::yield_now().await;
    drop(three);
    assert!(is_full(acquire().await));
    drop((one, two));
    let alone = Instant::now() + Duration::from_secs(60);
    let only = relays.acquire("default", alone).await.expect("one session");
    assert!(is_full(acquire().await), "and no second");
    drop(only);
}

fn relays_by(dialer: Arc<dyn Dial>, reply_rules: RelayRules) -> RelayRegistry {
    RelayRegistry::new(dialer, "n1".to_owned(), None, Arc::default(), reply_rules)
}

fn two_relays(weights: [u32; 2], sessions: [u32; 2]) -> RelayRegistry {
    relays_of([0, 1].map(|index| Relay { weight: weights[index], ..relay(["a", "b"][index], sessions[index]) }))
}

fn relays_of(of_pool: impl IntoIterator<Item = Relay>) -> RelayRegistry {
    relays_at(Arc::new(Nowhere::default()), of_pool)
}

fn relays_at(dialer: Arc<Nowhere>, of_pool: impl IntoIterator<Item = Relay>) -> RelayRegistry {
    let relays = relays_by(dialer, RelayRules::default());
    let mut ledger = led();
    of_pool.into_iter().for_each(|relay| put_relay(&mut ledger, relay));
    relays.follow(&ledger, 1);
    relays
}

#[tokio::test(start_paused = true)]
async fn relays_of_a_pool_get_their_weights_evenly_spread() {
    let relays = two_relays([3, 1], [10, 10]);
    // Buckets start empty; a fast machine would ask before there is a token.
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut of_b = Vec::new();
    for turn in 0..400 {
        let permit = relays.acquire("default", Instant::now() + Duration::from_secs(60)).await.expect("room");
        if permit.relay() == "b" {
            of_b.push(turn);
        }
    }
    assert!((95..=105).contains(&of_b.len()), "{}", of_b.len());
    let widest = of_b.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(widest <= Some(8), "{of_b:?}");
}

#[tokio::test(start_paused = true)]
async fn free_relay_is_taken_while_another_is_busy() {
    let (relays, begun) = (two_relays([100, 1], [1, 5]), Instant::now());
    let mut permits = Vec::new();
    for _ in 0..6 {
        permits.push(relays.acquire("default", begun + Duration::from_secs(60)).await.expect("room"));
    }
    // A bucket starts empty, so the first email waits for a moment.
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(permits.iter().filter(|permit| permit.relay() == "a").count(), 1);
}

/// Drops a permit after a while.
fn give_back(permit: SendPermit, after: Duration) {
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        drop(permit);
    });
}

#[tokio::test(start_paused = true)]
async fn first_free_relay_is_taken_in_any_order() {
    for round in 0..4 {
        let (relays, begun) = (two_relays([1, 1], [1, 1]), Instant::now());
        let mut permits = Vec::new();
        for _ in 0..2 {
            permits.push(relays.acquire("default", begun + Duration::from_secs(60)).await.expect("room"));
        }
        let free = permits.remove(round % 2);
        let name = free.relay().to_owned();
        give_back(free, Duration::from_millis(20));
        let next = relays.acquire("default", begun + Duration::from_secs(60)).await.expect("what came free");
        assert_eq!(next.relay(), name);
        assert!(begun.elapsed() < Duration::from_millis(30), "{:?}", begun.elapsed());
    }
}

/// P25: a token is spent only for an email that is sent.
#[tokio::test(start_paused = true)]
async fn waiting_for_two_relays_takes_a_token_of_one() {
    let paced = Relay { rate_milli: 1_000, weight: 100, ..relay("a", 2) };
    let (relays, begun) = (relays_of([paced, relay("b", 1)]), Instant::now());
    let acquire = || relays.acquire("default", begun + Duration::from_secs(60));
    let first = acquire().await.expect("a pace begins empty");
    assert_eq!(first.relay(), "b");
    give_back(first, Duration::from_millis(500));
    let second = acquire().await.expect("what came free");
    assert_eq!((second.relay(), begun.elapsed().as_millis() / 100), ("b", 5));
    for seconds in 1..=2 {
        let permit = acquire().await.expect("a slot and a pace");
        assert_eq!((permit.relay(), begun.elapsed().as_secs()), ("a", seconds), "{:?}", begun.elapsed());
        std::mem::forget(permit);
    }
    let last = relays.acquire("default", begun + Duration::from_secs(5)).await;
    assert!(matches!(last, Err(NoPermit::Unavailable(Unavailable::Busy))), "two sessions and one are taken");
}

fn email() -> Email {
    let text = EmailText::new(b"Subject: x\r\n\r\nx\r\n".to_vec()).expect("a good text");
    Email { from: "a@example.org".into(), to: "b@example.net".into(), text, dsn: None }
}

#[tokio::test(start_paused = true)]
async fn open_circuit_does_not_end_wait_for_another_relay() {
    let dialer = Arc::new(Nowhere::default());
    let (relays, begun) = (relays_at(Arc::clone(&dialer), [relay("a", 1), relay("b", 1)]), Instant::now());
    let acquire = || relays.acquire("default", begun + Duration::from_secs(60));
    let (fails, held) = (acquire().await.expect("room"), acquire().await.expect("room"));
    let mail = email();
    let result = fails.send(&mail, &mut Open, &Deadlines::default(), None).await.0;
    assert!(matches!(result, DialogueResult::Broken { .. }), "{result:?}");
    let (name, dialled) = (held.relay().to_owned(), dialer.0.load(Ordering::Relaxed));
    give_back(held, Duration::from_secs(9));
    let permit = acquire().await.expect("what came free");
    assert_eq!((permit.relay().to_owned(), begun.elapsed().as_secs()), (name, 9));
    let tried = dialer.0.load(Ordering::Relaxed) - dialled;
    assert!((2..=4).contains(&tried), "after one second, and two, and four: {tried}");
}

#[tokio::test(start_paused = true)]
async fn wait_includes_next_probe_but_not_pace_beyond_deadline() {
    let (dialer, slow) = (Arc::new(Nowhere::default()), Relay { rate_milli: 10, weight: 1, ..relay("a", 9) });
    let relays = relays_at(dialer, [slow, relay("b", 1)]);
    let begun = Instant::now();
    let acquire = || relays.acquire("default", begun + Duration::from_secs(10));
    let fails = acquire().await.expect("room");
    assert_eq!(fails.relay(), "b", "a's pace begins empty");
    let mail = email();
    let result = fails.send(&mail, &mut Open, &Deadlines::default(), None).await.0;
    assert!(matches!(result, DialogueResult::Broken { .. }), "{result:?}");
    let Err(NoPermit::Unavailable(why)) = acquire().await else { panic!("neither can be used now") };
    assert!(until(&why).is_some_and(|until| until < begun + Duration::from_secs(10)), "{why}");
}

/// P6: an operator's rule decides what an answer of one relay means, through the whole dialogue. It has no effect on
/// others.
#[tokio::test]
async fn reply_rules_apply_to_their_relay_only() {
    let faults = "rcpt:554=5.7.1 Recipient address rejected: Access denied".parse().expect("a plan");
    let sink = Sink::start(SinkOptions { faults, ..SinkOptions::default() }).expect("a sink");
    let text = "[[rule]]\nstages = [\"rcpt\"]\ntext = [\"recipient address rejected\"]\nclass = \"recipient\"\n";
    let rules = ReplyRules::parse(text).expect("a rule");
    let relays = relays_by(Arc::new(TcpDialer::default()), [("a".to_owned(), rules)].into());
    let mut ledger = led();
    for name in ["a", "b"] {
        let port = sink.address().port();
        put_relay(&mut ledger, Relay { pool: name.to_owned(), port, ..relay(name, 1) });
    }
    relays.follow(&ledger, 1);
    for (name, expected) in [("a", ReplyClass::Recipient), ("b", ReplyClass::Sender)] {
        let permit = relays.acquire(name, Instant::now() + Duration::from_secs(60)).await.expect("a session");
        let result = permit.send(&email(), &mut Open, &Deadlines::default(), None).await.0;
        let DialogueResult::Refused { code: 554, class, .. } = result else { panic!("{result:?}") };
        assert_eq!(class, expected, "{name}");
    }
    sink.stop().await;
}

#[tokio::test]
async fn relay_with_rate_or_of_another_pool_takes_no_next_email() {
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let relays = relays_by(Arc::new(TcpDialer::default()), RelayRules::default());
    let mut ledger = led();
    let at_sink = Relay { port: sink.address().port(), ..relay("a", 1) };
    put_relay(&mut ledger, at_sink.clone());
    relays.follow(&ledger, 1);
    let acquire = || relays.acquire("default", Instant::now() + Duration::from_secs(60));
    let email = email();
    let first = acquire().await.expect("a session").send(&email, &mut Open, &Deadlines::default(), None).await.0;
    assert!(matches!(first, DialogueResult::Accepted { .. }), "{first:?}");
    let mut permit = acquire().await.expect("a session");
    assert!(relays.try_acquire_next("default", &mut permit).is_some());
    let (with_rate, moved) =
        (Relay { rate_milli: 1_000_000_000, ..at_sink.clone() }, Relay { pool: "other".to_owned(), ..at_sink.clone() });
    for changed in [with_rate, moved, Relay { port: 1, ..at_sink }] {
        put_relay(&mut ledger, changed);
        relays.follow(&ledger, 1);
        assert!(relays.try_acquire_next("default", &mut permit).is_none());
    }
    sink.stop().await;
}

#[tokio::test]
async fn rules_without_relay_are_named_once_until_relay_was_there() {
    let rules = ["a", "typo"].map(|name| (name.to_owned(), ReplyRules::default()));
    let relays = relays_by(Arc::new(Nowhere::default()), rules.into());
    let mut ledger = led();
    assert_eq!(relays.new_unmatched_rules(&ledger), ["a", "typo"]);
    assert_eq!(relays.new_unmatched_rules(&ledger), [""; 0], "once");
    put_relay(&mut ledger, relay("a", 1));
    assert_eq!(relays.new_unmatched_rules(&ledger), [""; 0]);
    assert_eq!(relays.new_unmatched_rules(&led()), ["a"], "it was removed");
}

fn ready() -> RelayStatus {
    RelayStatus {
        sessions_open: 0,
        sessions_idle: 0,
        waiting_dots: 0,
        circuit: CircuitStatus::Closed,
        rate_per_second: 5.0,
        slowed: None,
        refusing: None,
        dialogue: None,
        counters: RelayCounters::default(),
    }
}

#[test]
fn relay_that_goes_on_refusing_is_reported_until_it_accepts_or_is_removed() {
    let relays = relays_by(Arc::new(Nowhere::default()), RelayRules::default());
    let refusing = Some(RelayFailure::answered(None, 452, "4.3.1 Insufficient system storage"));
    let refuses = BTreeMap::from([("a".to_owned(), RelayStatus { refusing, ..ready() })]);
    let alarmed = |status: &BTreeMap<String, RelayStatus>| {
        relays.report(status);
        relays.alarmed.lock().refusing.len()
    };
    let ready = BTreeMap::from([("a".to_owned(), ready())]);
    let none = BTreeMap::new();
    assert_eq!([&ready, &refuses, &refuses, &ready, &refuses, &none].map(alarmed), [0, 1, 1, 0, 1, 0]);
}

#[test]
fn open_circuit_lets_no_permit_through_until_probe() {
    let (now, second) = (Instant::now(), Duration::from_secs(1));
    let rate_milli_at =
        |circuit, rate_per_second| flow(&RelayStatus { circuit, rate_per_second, ..ready() }, now).rate_milli;
    let rate_milli = |circuit| rate_milli_at(circuit, 5.0);
    let cause = || RelayFailure::answered(None, 421, "no route to it from here");
    assert_eq!(rate_milli(CircuitStatus::Closed), 5_000);
    assert_eq!(rate_milli_at(CircuitStatus::Closed, 0.000_3), 1, "slow is not closed");
    assert_eq!(rate_milli(CircuitStatus::Open { until: now + second, cause: cause() }), 0);
    assert_eq!(rate_milli(CircuitStatus::Parked { until: now + second, cause: cause() }), 0);
    assert_eq!(rate_milli(CircuitStatus::Open { until: now, cause: cause() }), 5_000, "it may be tried again");
    assert_eq!(rate_milli(CircuitStatus::HalfOpen { cause: cause(), parked: false }), 0, "it is being probed");
}

/// The rate of a relay holds in every second and not only on average. Three nodes with full buckets send to a relay
/// that accepts all they may send.
#[test]
fn relay_rate_holds_in_every_second_with_burst_of_tenth() {
    let relay = Relay { rate_milli: 2_000_000, ..relay("a", 1) };
    let (rate_per_second, burst) = budget(&relay, 3);
    let mut sent: Vec<Duration> = Vec::new();
    for _ in 0..3 {
        let mut pace = RateLimiter::new(rate_per_second, burst);
        // Nothing is sent for a while, and then the maximum for three seconds.
        assert!(pace.take(Duration::ZERO).is_err());
        let mut now = Duration::from_secs(60);
        while now < Duration::from_secs(63) {
            match pace.take(now) {
                Ok(()) => sent.push(now),
                Err(wait) => now += wait,
            }
        }
    }
    sent.sort();
    let within_a_second = |first: &Duration| {
        let end = *first + Duration::from_secs(1);
        sent.partition_point(|at| *at < end) - sent.partition_point(|at| at < first)
    };
    let most = sent.iter().map(within_a_second).max().expect("some");
    assert!((2_000..=2_200 + 3).contains(&most), "{most} in one second");
}
