//! Holding an email between its dot and its answer.

use std::time::Duration;

use reveille_sink::{HoldPoint, HoldRequest, Sink, SinkOptions};

use crate::client::{Client, PATIENCE, until};

fn sink() -> Sink {
    Sink::start(SinkOptions::default()).unwrap()
}

#[tokio::test]
async fn held_email_is_named_and_answered_only_when_released() {
    let sink = sink();
    let request = HoldRequest { limit: PATIENCE, ..HoldRequest::default() };
    let mut other = Client::greeted(sink.address()).await;
    other.send_mail("other@x.test").await;
    assert_eq!(other.code().await, 250);

    let mut hold = sink.hold_next_answer(request);
    let mut client = Client::greeted(sink.address()).await;
    client.send_mail("victim@x.test").await;
    let held = hold.next(PATIENCE).await.unwrap();
    assert_eq!(held.accepted.recipient, "victim@x.test");
    assert_eq!(held.accepted.message_id.as_deref(), Some("<victim@x.test.run-7@reveille.test>"));
    assert_eq!((held.accepted.fence.as_deref(), held.accepted.ehlo.as_str()), (Some("1.17.99.3"), "node-1.test"));
    assert_eq!(sink.accepted_count(), 2, "it is recorded while it is held");
    client.expect_silence().await;
    let after_dot = sink.connections().into_iter().find(|dialogue| !dialogue.unanswered.is_empty()).unwrap();
    assert_eq!((after_dot.peer, after_dot.unanswered.len()), (held.accepted.peer, 1));

    assert!(held.release());
    assert_eq!(client.code().await, 250);
    client.send_mail("victim@x.test").await;
    assert_eq!(client.code().await, 250);
    assert!(hold.next(PATIENCE).await.is_none(), "one was asked for, one was handed out");
    sink.stop().await;
}

#[tokio::test]
async fn email_held_before_commit_is_recorded_after_release() {
    let sink = sink();
    let request = HoldRequest { point: HoldPoint::BeforeCommit, limit: PATIENCE, ..HoldRequest::default() };
    let mut hold = sink.hold_next_answer(request);
    let mut client = Client::greeted(sink.address()).await;
    client.send_mail("a@x.test").await;
    let held = hold.next(PATIENCE).await.unwrap();
    assert_eq!(sink.accepted_count(), 0);
    drop(client);
    assert!(held.release());
    sink.wait_for(1, PATIENCE).await.unwrap();
    sink.stop().await;
}

#[tokio::test]
async fn held_email_is_released_by_limit_by_drop_and_by_loss_of_client() {
    let sink = sink();
    let mut client = Client::greeted(sink.address()).await;

    let short = HoldRequest { limit: Duration::from_millis(50), ..HoldRequest::default() };
    let mut hold = sink.hold_next_answer(short);
    client.send_mail("a@x.test").await;
    let held = hold.next(PATIENCE).await.unwrap();
    assert_eq!(client.code().await, 250);
    assert!(!held.release(), "no dialogue waits any more");

    let long = HoldRequest { limit: PATIENCE, count: 2, ..HoldRequest::default() };
    let mut hold = sink.hold_next_answer(long);
    client.send_mail("a@x.test").await;
    drop(hold.next(PATIENCE).await.unwrap());
    assert_eq!(client.code().await, 250);

    client.send_mail("a@x.test").await;
    let held = hold.next(PATIENCE).await.unwrap();
    drop(client);
    until(|| sink.connections().is_empty()).await;
    assert!(!held.release());
    sink.stop().await;
}

#[tokio::test]
async fn withdrawn_request_and_one_for_another_client_hold_nothing() {
    let sink = sink();
    drop(sink.hold_next_answer(HoldRequest { limit: PATIENCE, ..HoldRequest::default() }));
    let elsewhere = HoldRequest { ehlo: Some("node-2.test".to_owned()), limit: PATIENCE, ..HoldRequest::default() };
    let mut hold = sink.hold_next_answer(elsewhere);
    let mut client = Client::greeted(sink.address()).await;
    client.send_mail("a@x.test").await;
    assert_eq!(client.code().await, 250);
    assert!(hold.next(Duration::from_millis(1)).await.is_none());
    sink.stop().await;
}
