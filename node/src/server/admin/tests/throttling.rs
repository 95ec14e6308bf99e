//! Relays that throttle, have a daily quota or defer. This uses up no attempts and loses no recipient.

use std::time::Duration;

use reveille_proto::admin::v1::{
    AddRelayRequest, ExplainRequest, ExplainedEventKind as Kind, GetRunRequest, ListRelaysRequest, Overlap, PauseCause,
    Policies, Relay, RelayCondition, RelayTrouble, Run, RunCounts, RunState, ScheduleBody, TriggerScheduleRequest,
};

use super::clock::{HOUR, advance_clock, by, jump};
use super::harness::{Node, STEP_TIMEOUT, creation, node_with_test_clock, yearly};
use crate::cli::wording::explained;

/// Opens a run whose recipients have one attempt.
async fn opened(node: &Node, name: &str, recipients: &[&str]) -> String {
    opened_with(node, name, recipients, 1).await
}

async fn opened_with(node: &Node, name: &str, recipients: &[&str], max_attempts: u32) -> String {
    opened_by(node, name, recipients, Policies { max_attempts, ..Policies::default() }).await
}

async fn opened_by(node: &Node, name: &str, recipients: &[&str], policies: Policies) -> String {
    let policies = Policies { overlap: Overlap::Allow.into(), ..policies };
    let body = ScheduleBody { policies: Some(policies), ..yearly(name, recipients) };
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let request = TriggerScheduleRequest { name: name.to_owned(), request_id: name.to_owned(), ..Default::default() };
    let run = node.schedules().trigger_schedule(request).await.expect("triggered").into_inner().run;
    run.expect("a run").run
}

async fn shown(node: &Node, run: &str) -> (Run, RunCounts) {
    let request = GetRunRequest { run: run.to_owned(), ..GetRunRequest::default() };
    let run = node.runs().get_run(request).await.expect("a run").into_inner().run.expect("a run");
    let counts = run.counts.expect("counts");
    (run, counts)
}

/// Returns the events of a recipient: kind and detail.
async fn history(node: &Node, run: &str, recipient: &str) -> Vec<(Kind, String)> {
    let request = ExplainRequest { run: run.to_owned(), recipient: recipient.to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(request).await.expect("a story").into_inner();
    history.events.into_iter().map(|event| (event.kind(), explained(&event))).collect()
}

async fn relay(node: &Node) -> Relay {
    let listed = node.relays().list_relays(ListRelaysRequest::default()).await.expect("a list").into_inner();
    listed.relays.into_iter().next().expect("a relay")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttling_relay_lowers_rate_and_all_recipients_are_sent() {
    for stage in ["mail", "before-commit"] {
        let faults = format!("{stage}:454=Throttling failure: Maximum sending rate exceeded.#3");
        let node = node_with_test_clock(&faults).await;
        let paced = Relay { rate_per_second: 200.0, ..node.relay() };
        let request = AddRelayRequest { relay: Some(paced), replace: true, ..AddRelayRequest::default() };
        node.relays().add_relay(request).await.expect("replaced");
        let run = opened(&node, "burst", &["ada@x.example", "bob@x.example", "eve@x.example"]).await;
        advance_clock(&node, by(HOUR)).await;
        let (known, counts) = shown(&node, &run).await;
        assert_eq!((counts.sent, counts.dead), (3, 0), "{stage}: {known:?}");
        assert_eq!(node.sink.accepted_count(), 3);
        let mut refused = Vec::new();
        for recipient in ["#0", "#1", "#2"] {
            refused
                .extend(history(&node, &run, recipient).await.into_iter().filter(|(kind, _)| *kind == Kind::Refused));
        }
        let uncounted = |detail: &str| detail.contains("454") && !detail.contains("the attempt counts");
        assert_eq!(refused.len(), 3, "{stage}: {refused:?}");
        assert!(refused.iter().all(|(_, detail)| uncounted(detail)), "{refused:?}");
        let health = relay(&node).await.health.expect("its health");
        assert_eq!(health.condition(), RelayCondition::Throttled, "it is slow, and neither failing nor full");
        let answer = health.cause.as_ref().map(|cause| (cause.trouble(), cause.code));
        assert_eq!(answer, Some((RelayTrouble::Answer, 454)), "{health:?}");
        assert!(health.rate_per_second < 200.0, "{stage}: {health:?}");
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_with_used_up_quota_is_parked_and_explain_says_so() {
    let node = node_with_test_clock("mail:454=Throttling failure: Daily message quota exceeded.").await;
    let run = opened(&node, "full", &["ada@x.example", "bob@x.example"]).await;
    let parked = tokio::time::timeout(STEP_TIMEOUT, async {
        loop {
            let health = relay(&node).await.health.expect("its health");
            if health.condition() == RelayCondition::Parked {
                return health;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let health = parked.await.expect("it is parked");
    let cause = health.cause.clone().unwrap_or_default();
    assert!(cause.text.contains("Daily message quota exceeded") && health.retry_time.is_some(), "{health:?}");
    let (_, counts) = shown(&node, &run).await;
    assert_eq!((counts.pending + counts.claimed, counts.dead), (2, 0));
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.pending == 2)).await;
    let waits = history(&node, &run, "#0").await.pop().expect("an event");
    assert_eq!(waits.0, Kind::Waits);
    assert!(waits.1.contains("relay mailbox takes no more today") && waits.1.contains("quota"), "{}", waits.1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transient_reply_without_enhanced_code_uses_up_no_attempt() {
    let node = node_with_test_clock("rcpt:451=Temporary local problem - please try later#2").await;
    let run = opened(&node, "deferred", &["ada@x.example", "bob@x.example"]).await;
    advance_clock(&node, by(HOUR)).await;
    let (known, counts) = shown(&node, &run).await;
    assert_eq!((counts.sent, counts.dead), (2, 0), "of one attempt each: {known:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_without_named_cause_counts_and_is_repeated() {
    for (fault, words) in
        [("rcpt:554=Transaction failed#1", "554 Transaction failed"), ("data:close#1", "lost at Data")]
    {
        let node = node_with_test_clock(fault).await;
        let run = opened_with(&node, "unnamed", &["ada@x.example"], 2).await;
        let refused = tokio::time::timeout(STEP_TIMEOUT, async {
            loop {
                let history = history(&node, &run, "#0").await;
                if let Some((_, detail)) = history.into_iter().find(|(kind, _)| *kind == Kind::Refused) {
                    return detail;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let refused = refused.await.expect("a refusal");
        assert!(refused.starts_with(words) && refused.ends_with("no cause is named: the attempt counts"), "{refused}");
        advance_clock(&node, by(HOUR)).await;
        let (known, counts) = shown(&node, &run).await;
        assert_eq!((counts.sent, counts.dead), (1, 0), "{fault}: {known:?}");
        node.stop().await;
    }
}

/// Fewer than ten refusals pause the run, since it has no more recipients (P6).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_run_refused_for_sender_is_paused_and_expires() {
    let node = node_with_test_clock("rcpt:553=5.1.8 Sender address rejected: Domain not found").await;
    let policies =
        Policies { finish_by: Some(prost_types::Duration { seconds: HOUR, nanos: 0 }), ..Policies::default() };
    let run = opened_by(&node, "sender", &["ada@x.example", "bob@x.example"], policies).await;
    let paused = node.until(&run, |run| run.state() == RunState::Paused).await;
    let pause = paused.pause.as_ref().expect("a pause");
    let expected = (PauseCause::UnattributedRefusals, 2, 553, "5.1.8");
    assert_eq!((pause.cause(), pause.count, pause.code, pause.enhanced.as_str()), expected, "{paused:?}");
    jump(&node, by(2 * HOUR)).await;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.expired == 2)).await;
    for recipient in ["#0", "#1"] {
        let events = history(&node, &run, recipient).await;
        let (_, detail) = events.iter().find(|(kind, _)| *kind == Kind::Expired).expect("it expired");
        assert!(detail.ends_with("the last answer of a relay was 553 5.1.8, about content or sender"), "{events:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_paused_when_half_of_decided_recipients_are_dead() {
    let node = node_with_test_clock("rcpt:550=5.1.1 Account suspended").await;
    // More than one claim: a run whose recipients are all decided in one entry is finished, and not paused.
    let recipients: Vec<String> = (0..600).map(|number| format!("r{number}@x.example")).collect();
    let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
    let run = opened(&node, "suspended", &recipients).await;
    let paused = tokio::time::timeout(STEP_TIMEOUT, async {
        while shown(&node, &run).await.0.state != i32::from(reveille_proto::admin::v1::RunState::Paused) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let paused = paused.await;
    let (known, counts) = shown(&node, &run).await;
    assert!(paused.is_ok(), "{known:?}");
    assert!(counts.dead >= 20 && counts.sent == 0, "{counts:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greylisted_recipient_is_sent_later_without_counted_attempt() {
    let node = node_with_test_clock("rcpt:450=4.7.1 Come back later#4").await;
    let run = opened(&node, "grey", &["ada@x.example", "bob@x.example"]).await;
    let waits = tokio::time::timeout(STEP_TIMEOUT, async {
        for recipient in ["#0", "#1"] {
            let waits = |(_, detail): (Kind, String)| detail.starts_with("for the next attempt, not before");
            while !history(&node, &run, recipient).await.pop().is_some_and(waits) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    waits.await.expect("both wait");
    assert_eq!(node.sink.accepted_count(), 0);
    advance_clock(&node, by(HOUR)).await;
    let (known, counts) = shown(&node, &run).await;
    assert_eq!((counts.sent, counts.dead), (2, 0), "of one attempt each: {known:?}");
    let mut refused = 0;
    for recipient in ["#0", "#1"] {
        let history = history(&node, &run, recipient).await;
        refused += history.iter().filter(|(kind, _)| *kind == Kind::Refused).count();
        assert!(!history.iter().any(|(_, detail)| detail.contains("the attempt counts")), "{history:?}");
        assert_eq!(history.last().map(|(kind, _)| *kind), Some(Kind::Sent));
    }
    assert_eq!(refused, 4, "two rounds of it");
    node.stop().await;
}
