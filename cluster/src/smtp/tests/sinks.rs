//! Tests over real TCP, against the sink that also judges the whole product. Its record is the truth.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::future::join_all;
use reveille_ledger::access::Access;
use reveille_sink::{FaultPlan, Handle, HoldPoint, HoldRequest, Sink, SinkOptions};
use tokio::time::Instant;

use super::server::until;
use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::relay::circuit::Backoff;
use crate::smtp::relay::status::{CircuitStatus, RelayCounters};
use crate::smtp::relay::{RelayLimits, RelaySessions, Unavailable};
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::{Deadlines, Timeouts};
use crate::smtp::session::dialer::TcpDialer;
use crate::smtp::session::envelope::Email;
use crate::smtp::session::target::Target;

struct Open;

impl Gate for Open {
    fn decide(&mut self) -> GateAnswer {
        GateAnswer::Pass
    }
}

fn sink(faults: &str) -> Sink {
    let faults: FaultPlan = faults.parse().expect("a plan");
    Sink::start(SinkOptions { faults, ..SinkOptions::default() }).expect("a sink")
}

fn pool(sink: &Handle) -> Arc<RelaySessions> {
    let address = sink.address();
    let target = Target::new(&address.ip().to_string(), address.port(), "node-1.example.org", &Access::default())
        .expect("a target");
    let limits = RelayLimits {
        max_sessions: 4,
        rate_per_second: 1e6,
        burst: 1e6,
        backoff: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(4), ..Backoff::default() },
        timeouts: Timeouts { quit: Duration::from_secs(1), ..Timeouts::default() },
        ..RelayLimits::default()
    };
    RelaySessions::new("main", target, Arc::new(TcpDialer::default()), limits, 7)
}

fn mail(number: usize) -> Email {
    let text = format!("Message-ID: <{number}@example.org>\r\nSubject: hello\r\n\r\n.dots\r\n.\r\nend\r\n");
    Email { to: format!("r{number}@example.com"), ..super::server::mail(text.as_bytes()) }
}

/// Acquires a permit, however often that fails, then sends one email.
async fn send(pool: Arc<RelaySessions>, number: usize) -> DialogueResult {
    loop {
        match pool.acquire(Instant::now() + Duration::from_secs(60)).await {
            Ok(permit) => return permit.send(&mail(number), &mut Open, &Deadlines::default(), None).await.0,
            Err(Unavailable::CircuitOpen { until, .. }) => tokio::time::sleep_until(until).await,
            Err(other) => panic!("{other}"),
        }
    }
}

fn recorded(sink: &Handle) -> Vec<String> {
    sink.find(|_| true).iter().map(|accepted| accepted.recipient.clone()).collect()
}

async fn counters_match_record(faults: &str, emails: usize) -> RelayCounters {
    let sink = sink(faults);
    let handle = sink.handle();
    let pool = pool(&handle);
    let results = join_all((0..emails).map(|number| send(pool.clone(), number))).await;
    assert!(pool.close(Duration::from_secs(60)).await, "{faults}");
    let status = pool.status();
    sink.stop().await;
    let with = |wanted: fn(&DialogueResult) -> bool| -> HashSet<String> {
        let chosen = results.iter().enumerate().filter(|(_, result)| wanted(result));
        chosen.map(|(number, _)| mail(number).to).collect()
    };
    let accepted = with(|result| matches!(result, DialogueResult::Accepted { .. }));
    let in_doubt = with(|result| matches!(result, DialogueResult::InDoubt { .. }));
    let recorded = recorded(&handle);
    let arrived: HashSet<String> = recorded.iter().cloned().collect();
    assert_eq!(arrived.len(), recorded.len(), "{faults}: nothing arrives twice (I1)");
    assert!(accepted.is_subset(&arrived), "{faults}: sent is recorded (I9)");
    assert!(arrived.is_subset(&(&accepted | &in_doubt)), "{faults}: recorded is sent or in doubt (I9)");
    assert!(recorded.len() as u64 <= status.counters.gate_passes, "{faults} (I14)");
    assert_eq!(status.waiting_dots, 0, "{faults}");
    status.counters
}

#[tokio::test]
async fn without_faults_gate_passes_accepts_and_records_are_equal() {
    let counters = counters_match_record("", 500).await;
    assert_eq!((counters.accepted, counters.gate_passes), (500, 500));
    assert!((1..=4).contains(&counters.sessions), "{}", counters.sessions);
}

#[tokio::test]
async fn counters_match_sink_record_for_any_fault_at_one_stage() {
    for stage in
        ["connect", "banner", "ehlo", "mail", "rcpt", "data", "body", "before-commit", "after-commit", "answer"]
    {
        for kind in ["close", "reset"] {
            counters_match_record(&format!("seed=3,{stage}:{kind}@0.2"), 40).await;
        }
    }
    for stage in ["banner", "ehlo", "mail", "rcpt", "data", "body", "before-commit", "between"] {
        for kind in ["421", "451=4.3.0 later", "550=5.1.1 no such user", "554"] {
            counters_match_record(&format!("seed=4,{stage}:{kind}@0.2"), 40).await;
        }
    }
}

#[tokio::test]
async fn bare_replies_and_polite_closes_cost_nothing() {
    let faults = "banner:bare,ehlo:bare,mail:bare,rcpt:bare,data:bare,answer:bare,between:close-after=20";
    let counters = counters_match_record(faults, 200).await;
    assert_eq!((counters.accepted, counters.gate_passes), (200, 200));
    assert!(counters.sessions >= 10, "it closed after 20 emails each: {}", counters.sessions);
}

#[tokio::test]
async fn held_answer_is_a_waiting_dot() {
    let sink = sink("");
    let handle = sink.handle();
    let pool = pool(&handle);
    let mut hold = handle.hold_next_answer(HoldRequest { point: HoldPoint::AfterCommit, ..HoldRequest::default() });
    let permit = pool.acquire(Instant::now() + Duration::from_secs(60)).await.expect("a permit");
    let delivery = tokio::spawn(async move { permit.send(&mail(1), &mut Open, &Deadlines::default(), None).await.0 });
    let held = hold.next(Duration::from_secs(30)).await.expect("a held mail");
    until("it waits", || pool.status().waiting_dots == 1).await;
    assert!(held.release());
    assert!(matches!(delivery.await, Ok(DialogueResult::Accepted { .. })));
    assert_eq!(pool.status().waiting_dots, 0);
    assert_eq!(pool.status().circuit, CircuitStatus::Closed);
    sink.stop().await;
}
