//! Hundreds of dead letters: counted by reason, requeued to another pool, left alone if their run is cancelled.

use reveille_proto::admin::v1::{
    AddRelayRequest, CancelRunRequest, CountDeadLettersRequest, DeadLetterFilter, DiscardDeadLettersRequest,
    ExplainRequest, ExplainedEventKind, Relay, RequeueDeadLettersRequest,
};
use reveille_sink::{Sink, SinkOptions};
use tonic::{Code, Response};

use super::harness::{Node, node, reason};
use crate::cli::wording::{explained, reason_of_words, reason_words};

async fn counted(node: &Node, filter: DeadLetterFilter) -> Vec<(String, u64, String)> {
    let question = CountDeadLettersRequest { filter: Some(filter), ..CountDeadLettersRequest::default() };
    let answer = node.dead_letters().count_dead_letters(question).await.expect("counted").into_inner();
    assert_eq!(answer.next_page_token, "");
    let groups = answer.groups.into_iter().map(|group| {
        let example = group.example.expect("an example");
        assert!(group.oldest_time.is_some() && group.newest_time == example.settle_time, "{example:?}");
        (reason_words(&group.reason.unwrap_or_default()), group.count, example.recipient)
    });
    groups.collect()
}

fn by_reason(reason: &str) -> DeadLetterFilter {
    DeadLetterFilter { reason: Some(reason_of_words(reason).expect("a reason")), ..DeadLetterFilter::default() }
}

fn all(filter: DeadLetterFilter, pool: &str) -> RequeueDeadLettersRequest {
    RequeueDeadLettersRequest { all: true, filter: Some(filter), pool: pool.to_owned(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_of_one_reason_go_again_by_another_pool_and_only_they() {
    let node = node("rcpt:550=5.2.1 disabled#2,rcpt:550=5.1.1 no such user").await;
    let run = node.triggered("report", &["ada@x.example", "bob@x.example", "eve@x.example"], "").await.run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.dead == 3)).await;
    let other = node.triggered("other", &["joe@x.example"], "").await.run;
    node.until(&other, |run| run.counts.is_some_and(|counts| counts.dead == 1)).await;

    let groups = counted(&node, DeadLetterFilter::default()).await;
    let counts: Vec<(&str, u64)> = groups.iter().map(|(reason, count, _)| (reason.as_str(), *count)).collect();
    assert_eq!(counts, [("550 5.1.1", 2), ("550 5.2.1", 2)], "{groups:?}");
    let schedule = DeadLetterFilter { schedule: "other".to_owned(), ..by_reason("550 5.1.1") };
    assert_eq!(counted(&node, schedule).await, [("550 5.1.1".to_owned(), 1, "joe@x.example".to_owned())]);
    let later = prost_types::Timestamp { seconds: 4_000_000_000, nanos: 0 };
    assert_eq!(counted(&node, DeadLetterFilter { since_time: Some(later), ..Default::default() }).await, []);

    let mistyped = DeadLetterFilter { schedule: "reprot".to_owned(), ..DeadLetterFilter::default() };
    let mistyped = node.dead_letters().requeue_dead_letters(all(mistyped, "")).await.expect_err("no schedule");
    assert_eq!(reason(&mistyped), (Code::NotFound, "SCHEDULE_NOT_FOUND".to_owned()));
    assert_eq!(mistyped.message(), "no schedule named 'reprot'; did you mean report?");
    let refused = node.dead_letters().requeue_dead_letters(all(by_reason("550 5.2.1"), "backup")).await;
    let refused = refused.expect_err("no relay");
    assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()), "{refused:?}");
    let backup = Sink::start(SinkOptions::default()).expect("a mailbox");
    let relay = Relay {
        name: "backup".to_owned(),
        pool: "backup".to_owned(),
        port: u32::from(backup.address().port()),
        ..node.relay()
    };
    node.relays().add_relay(AddRelayRequest { relay: Some(relay), ..Default::default() }).await.expect("added");
    let dry_run = RequeueDeadLettersRequest { validate_only: true, ..all(by_reason("550 5.2.1"), "backup") };
    let counted = node.dead_letters().requeue_dead_letters(dry_run).await.expect("counted").into_inner();
    assert_eq!((counted.requeued, counted.index, counted.cancelled), (2, 0, 0));
    let gone = node.dead_letters().requeue_dead_letters(all(by_reason("550 5.2.1"), "backup")).await;
    let gone = gone.expect("requeued").into_inner();
    assert!(gone.requeued == 2 && gone.index > 0 && gone.next_page_token.is_empty(), "{gone:?}");
    let known = node.until(&run, |run| run.counts.is_some_and(|counts| counts.sent == 2)).await;
    let counts = known.counts.expect("counts");
    assert_eq!((counts.dead, counts.pending, known.audience), (1, 0, 3), "the same run, and its accounts close");
    assert_eq!((backup.accepted_count(), node.sink.accepted_count()), (2, 0));
    let example = groups.iter().find(|(reason, _, _)| reason == "550 5.2.1").map(|(_, _, who)| who.clone());
    let explain = ExplainRequest { run: run.clone(), recipient: example.expect("one"), ..Default::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    let detail = history.events.iter().find(|event| event.kind() == ExplainedEventKind::Requeued).map(explained);
    assert_eq!(detail.as_deref(), Some("by an operator: attempts are counted anew; by pool 'backup' from now on"));
    backup.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_cancelled_run_can_only_be_discarded() {
    let node = node("rcpt:550=5.1.1 no such user#1,rcpt:450=4.2.1 busy#1,rcpt:550=5.1.1 no such user").await;
    let stopped = node.triggered("stopped", &["ada@x.example", "bob@x.example"], "").await.run;
    node.until(&stopped, |run| run.counts.is_some_and(|counts| counts.dead == 1 && counts.pending == 1)).await;
    let cancel = CancelRunRequest { run: stopped.clone(), ..CancelRunRequest::default() };
    node.runs().cancel_run(cancel).await.expect("cancelled");
    let other = node.triggered("other", &["joe@x.example"], "").await.run;
    node.until(&other, |run| run.counts.is_some_and(|counts| counts.dead == 1)).await;
    node.sink.set_faults("".parse().expect("a plan"));

    for validate_only in [true, false] {
        let request = RequeueDeadLettersRequest { validate_only, ..all(by_reason("550 5.1.1"), "") };
        let answer = node.dead_letters().requeue_dead_letters(request).await.expect("answered").into_inner();
        assert_eq!((answer.requeued, answer.cancelled), (1, 1), "{validate_only}");
    }
    node.until(&other, |run| run.counts.is_some_and(|counts| counts.sent == 1)).await;
    for validate_only in [true, false] {
        let named = RequeueDeadLettersRequest {
            run: stopped.clone(),
            recipients: vec!["#0".into()],
            validate_only,
            ..Default::default()
        };
        let refused = node.dead_letters().requeue_dead_letters(named).await.expect_err("the run is cancelled");
        assert_eq!(refused.message(), "not possible: the run is cancelled", "{validate_only}");
    }
    let both = RequeueDeadLettersRequest { run: stopped, recipients: vec!["#0".into()], ..all(by_reason("550"), "") };
    let both = RequeueDeadLettersRequest { all: false, ..both };
    assert_eq!(
        node.dead_letters().requeue_dead_letters(both).await.expect_err("both").message(),
        "filter: goes with all, and recipients are named; choose one"
    );
    for (validate_only, left) in [(true, 1), (false, 0)] {
        let request = DiscardDeadLettersRequest { all: true, validate_only, ..DiscardDeadLettersRequest::default() };
        let answer = node.dead_letters().discard_dead_letters(request).await.expect("answered").into_inner();
        assert_eq!(answer.discarded, 1);
        assert_eq!(counted(&node, DeadLetterFilter::default()).await.len(), left);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requeue_of_living_recipient_is_refused() {
    let node = node("").await;
    let run = node.triggered("report", &["ada@x.example"], "").await.run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.sent == 1)).await;
    for validate_only in [true, false] {
        let recipients = vec!["ada@x.example".to_owned()];
        let request = RequeueDeadLettersRequest {
            run: run.clone(),
            recipients: recipients.clone(),
            validate_only,
            ..Default::default()
        };
        let refused = node.dead_letters().requeue_dead_letters(request).await.expect_err("it was sent");
        assert_eq!(reason(&refused), (Code::FailedPrecondition, "RECIPIENT_STATE".to_owned()));
        assert_eq!(refused.message(), format!("ada@x.example is not a dead letter of run {run}: it is sent"));
        let request = DiscardDeadLettersRequest { run: run.clone(), recipients, validate_only, ..Default::default() };
        let refused = node.dead_letters().discard_dead_letters(request).await.expect_err("it was sent");
        assert_eq!(reason(&refused).0, Code::FailedPrecondition);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_request_gets_the_first_answer_and_moves_nothing_more() {
    let node = node("rcpt:550=5.1.1 no such user").await;
    let run = node.triggered("report", &["ada@x.example", "bob@x.example"], "").await.run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.dead == 2)).await;
    let request_id = || "k".to_owned();
    let named = |recipient: &str| RequeueDeadLettersRequest {
        run: run.clone(),
        recipients: vec![recipient.to_owned()],
        request_id: request_id(),
        ..Default::default()
    };
    let requeue = async |request: RequeueDeadLettersRequest| {
        node.dead_letters().requeue_dead_letters(request).await.map(Response::into_inner)
    };
    let first = requeue(named("#0")).await.expect("requeued");
    assert!(first.requeued == 1 && first.index > 0, "{first:?}");
    // The relay refuses it again, so that it could be requeued again.
    let dead = node.until(&run, |run| run.counts.is_some_and(|counts| counts.dead == 2)).await;
    for validate_only in [false, true] {
        let repeat = RequeueDeadLettersRequest { validate_only, ..named("#0") };
        assert_eq!(requeue(repeat).await.expect("a repeat"), first, "{validate_only}");
    }
    let other = requeue(named("#1")).await.expect_err("another request");
    assert_eq!(reason(&other), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    assert_eq!(node.until(&run, |_| true).await.counts, dead.counts);

    let discard = async |request: DiscardDeadLettersRequest| {
        node.dead_letters().discard_dead_letters(request).await.map(Response::into_inner)
    };
    let recipients = vec!["#0".to_owned()];
    let request =
        DiscardDeadLettersRequest { run: run.clone(), recipients, request_id: request_id(), ..Default::default() };
    let first = discard(request.clone()).await.expect("another method");
    assert_eq!(first.discarded, 1);
    assert_eq!(discard(request).await.expect("a repeat, with no letter left"), first);
    let rest = DiscardDeadLettersRequest { all: true, request_id: request_id(), ..Default::default() };
    let first = discard(rest.clone()).await.expect("another path");
    assert_eq!((first.discarded, discard(rest).await.expect("a repeat")), (1, first));
    node.stop().await;
}
