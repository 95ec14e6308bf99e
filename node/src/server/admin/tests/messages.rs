//! Messages: sent once by their keys, collected into few entries, and due later.

use reveille_proto::admin::v1::{
    Audience, CancelMessageRequest, Content, ExplainRequest, GetMessageRequest, KeyRule, ListRunsRequest,
    ListSchedulesRequest, Message, Policies, Recipient, RecipientState, RequeueDeadLettersRequest, RunState,
    SendMessageRequest, SendMessageResponse, TriggerScheduleRequest, UpdateScheduleRequest, WarningReason,
};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::clock::{HOUR, MINUTE, advance_clock, by, now};
use super::harness::{Node, creation, node, node_with_test_clock, reason, yearly};
use crate::cli::wording::explained;

pub(super) fn message(key: &str, to: &[&str]) -> SendMessageRequest {
    SendMessageRequest {
        key: key.to_owned(),
        to: to.iter().map(|address| (*address).to_owned()).collect(),
        content: Some(Content {
            sender: "shop@example.org".to_owned(),
            subject: "Order".to_owned(),
            text: Some("Thanks.".to_owned()),
            ..Content::default()
        }),
        ..SendMessageRequest::default()
    }
}

async fn send(node: &Node, request: SendMessageRequest) -> Result<SendMessageResponse, Status> {
    Ok(node.messages().send_message(request).await?.into_inner())
}

fn run_of(answer: &SendMessageResponse) -> String {
    answer.message.as_ref().and_then(|message| Some(message.run.as_ref()?.run.clone())).expect("a run")
}

async fn get(node: &Node, key: &str) -> Result<Message, Status> {
    let request = GetMessageRequest { key: key.to_owned(), ..GetMessageRequest::default() };
    Ok(node.messages().get_message(request).await?.into_inner().message.expect("a message"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_is_sent_once_by_its_key() {
    let node = node("").await;
    let two = ["ann@example.net", "bob@example.net"];
    let checked = SendMessageRequest { validate_only: true, ..message("one", &two) };
    assert!(!send(&node, checked.clone()).await.expect("checked").replayed);
    assert_eq!(get(&node, "one").await.map_err(|status| reason(&status).1), Err("MESSAGE_NOT_FOUND".to_owned()));

    let first = send(&node, message("one", &two)).await.expect("sent");
    assert!(!first.replayed && first.warnings.is_empty(), "{first:?}");
    let run = run_of(&first);
    node.until(&run, |run| run.state() == RunState::Finished).await;
    let again = send(&node, message("one", &two)).await.expect("a repeat");
    assert_eq!((again.replayed, run_of(&again)), (true, run.clone()));
    assert!(send(&node, checked).await.expect("checked").replayed);
    let other = send(&node, message("one", &two[..1])).await.expect_err("another list");
    assert_eq!(reason(&other), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    let first_wins = SendMessageRequest { key_rule: KeyRule::FirstWins.into(), ..message("one", &two[..1]) };
    assert_eq!(run_of(&send(&node, first_wins).await.expect("the first one")), run);
    assert_eq!(node.sink.accepted_count(), 2);
    for validate_only in [true, false] {
        let request = SendMessageRequest { pool: "unserved".to_owned(), validate_only, ..message("two", &two) };
        let sent = send(&node, request).await.expect("it waits");
        let warnings: Vec<_> = sent.warnings.iter().map(|one| (one.reason(), one.pool.as_str())).collect();
        assert_eq!(warnings, [(WarningReason::NoRelay, "unserved")]);
    }

    let shown = get(&node, "one").await.expect("a message");
    let recipients: Vec<_> = shown.recipients.iter().map(|one| (one.address.as_str(), one.state())).collect();
    assert_eq!(recipients, two.map(|address| (address, RecipientState::Sent)));
    let explain = ExplainRequest { run, recipient: two[0].to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    assert!(explained(&history.events[0]).starts_with("trigger one, a message for "), "{history:?}");
    let schedules = node.schedules().list_schedules(ListSchedulesRequest::default()).await.expect("a list");
    assert_eq!(schedules.into_inner().schedules.len(), 0, "no list shows their schedule");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_twice_is_one_recipient_and_never_with_other_values() {
    let node = node("").await;
    let ann = |address: &str, order: &str| Recipient { address: address.to_owned(), values: vec![order.to_owned()] };
    let list = |second| {
        let audience = Audience {
            columns: vec!["order".to_owned()],
            recipients: vec![ann("ann@example.net", "1"), second],
            ..Audience::default()
        };
        SendMessageRequest { audience: Some(audience), ..message("two", &[]) }
    };
    let refused = send(&node, list(ann("Ann@example.net", "2"))).await.expect_err("one order would be lost");
    assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    assert!(refused.message().starts_with("audience.recipients[1]: has the address of recipient 0"), "{refused}");
    let sent = send(&node, list(ann("Ann@example.net", "1"))).await.expect("the same twice");
    let duplicates: Vec<_> = sent.duplicates.iter().map(|one| (one.recipient, one.same_as)).collect();
    assert_eq!(duplicates, [(1, 0)]);

    let news = node
        .schedules()
        .create_schedule(creation(yearly("news", &["a@example.net"])))
        .await
        .expect("created")
        .into_inner();
    let news = news.schedule.expect("a schedule");
    let trigger = |second| TriggerScheduleRequest {
        tenant: news.tenant.clone(),
        name: news.name.clone(),
        request_id: "k".to_owned(),
        audience: list(second).audience,
        ..TriggerScheduleRequest::default()
    };
    let refused = node.schedules().trigger_schedule(trigger(ann("Ann@example.net", "2"))).await.expect_err("differs");
    assert!(refused.message().contains("has the address of recipient 0"), "{refused}");
    let opened = node.schedules().trigger_schedule(trigger(ann("Ann@example.net", "1"))).await.expect("the same twice");
    assert_eq!(opened.into_inner().duplicates.len(), 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_to_one_that_is_refused_for_its_content_is_dead_and_can_be_requeued() {
    let node = node("before-commit:554=5.7.1 Message content rejected#1").await;
    let run = run_of(&send(&node, message("order-1", &["ann@example.net"])).await.expect("sent"));
    node.until(&run, |run| run.state() == RunState::Finished).await;
    let refused = get(&node, "order-1").await.expect("known");
    assert_eq!(refused.recipients[0].state(), RecipientState::Dead, "{refused:?}");
    let explain = ExplainRequest { run: run.clone(), recipient: "#0".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    let words = "554 5.7.1 Message content rejected; about content or sender";
    assert!(history.events.iter().any(|event| explained(event) == words), "{history:?}");
    let recipients = vec!["#0".to_owned()];
    let requeue = RequeueDeadLettersRequest { run: run.clone(), recipients, ..RequeueDeadLettersRequest::default() };
    node.dead_letters().requeue_dead_letters(requeue).await.expect("requeued");
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.sent == 1)).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_together_share_entries_and_each_is_answered() {
    const MESSAGES: usize = 200;
    let node = node("").await;
    let before = node.context().replica.read(|ledger| ledger.head().applied);
    let mut each = JoinSet::new();
    for number in 0..MESSAGES {
        let mut messages = node.messages();
        // Each key comes twice, and each fourth pair differs in its recipient.
        let (key, is_other) = (number / 2, number % 8 == 7);
        let to = if is_other { "other@example.net".to_owned() } else { format!("u{key}@example.net") };
        let request = message(&format!("key-{key}"), &[&to]);
        each.spawn(async move { messages.send_message(request).await.map(|answer| answer.into_inner().replayed) });
    }
    let answers = each.join_all().await;
    let count = |wanted: fn(&Result<bool, Status>) -> bool| answers.iter().filter(|answer| wanted(answer)).count();
    // Of a pair that differs either one may come first.
    assert_eq!(count(|answer| matches!(answer, Ok(false))), MESSAGES / 2);
    assert_eq!(count(|answer| matches!(answer, Ok(true))), MESSAGES / 2 - MESSAGES / 8);
    assert_eq!(count(|answer| answer.is_err()), MESSAGES / 8);
    let entries = node.context().replica.read(|ledger| ledger.head().applied) - before;
    let runs = node.context().replica.read(|ledger| ledger.runs().count());
    assert!(runs == MESSAGES / 2 && entries < MESSAGES as u64 / 2, "{runs} runs by {entries} entries");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_for_later_leaves_at_its_time_and_a_cancelled_one_never() {
    let node = node_with_test_clock("").await;
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let due = now(&node).await + 2 * HOUR;
    let hour =
        Some(Policies { finish_by: Some(prost_types::Duration { seconds: HOUR, nanos: 0 }), ..Policies::default() });
    let later = |key: &str, due| SendMessageRequest {
        send_time: at(due),
        policies: hour,
        ..message(key, &["ann@example.net"])
    };
    let sent = send(&node, later("later", due)).await.expect("taken");
    let run = run_of(&sent);
    run_of(&send(&node, later("never", due)).await.expect("taken"));
    let early = send(&node, later("early", due - HOUR)).await.expect("taken");
    let explain = ExplainRequest { run: run.clone(), recipient: "#0".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    assert!(
        history.events.last().is_some_and(|event| explained(event).starts_with("for its send time, ")),
        "{history:?}"
    );
    let cancel = CancelMessageRequest { key: "never".to_owned(), ..CancelMessageRequest::default() };
    let cancelled = node.messages().cancel_message(cancel).await.expect("cancelled").into_inner();
    assert_eq!(cancelled.message.and_then(|message| message.run).expect("a run").state(), RunState::Cancelled);
    assert!(cancelled.barrier.is_some());

    // The clock stops at each send time until what is due there is sent.
    let advanced = advance_clock(&node, by(2 * HOUR - MINUTE)).await;
    assert!(advanced.steps >= 2, "{advanced:?}");
    node.until(&run_of(&early), |run| run.state() == RunState::Finished).await;
    assert_eq!((node.sink.accepted_count(), node.until(&run, |_| true).await.state()), (1, RunState::Open));
    advance_clock(&node, by(3 * HOUR)).await;
    node.until(&run, |run| run.state() == RunState::Finished).await;
    assert_eq!(node.sink.accepted_count(), 2);
    let repeat = send(&node, later("later", due)).await.expect("a repeat after its time");
    assert!(repeat.replayed && run_of(&repeat) == run);
    let late = send(&node, later("late", due - 24 * HOUR)).await.expect_err("its deadline has passed");
    assert_eq!(reason(&late), (Code::FailedPrecondition, "INSTANT_PASSED".to_owned()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trigger_sends_to_its_own_recipients_once() {
    let node = node("").await;
    let mut body = yearly("shipped", &["owner@example.net"]);
    body.policies = Some(Policies { overlap: 3, ..Policies::default() });
    let content = body.content.as_mut().expect("a content");
    content.text = Some("Dear {{ name }}".to_owned());
    let audience = body.audience.as_mut().expect("an audience");
    audience.columns = vec!["name".to_owned()];
    audience.recipients[0].values = vec!["Owner".to_owned()];
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let list = |names: &[&str]| Audience {
        columns: vec!["name".to_owned()],
        recipients: names
            .iter()
            .map(|name| Recipient { address: format!("{name}@example.net"), values: vec![(*name).to_owned()] })
            .collect(),
        ..Audience::default()
    };
    let trigger = |id: &str, audience: Option<Audience>| TriggerScheduleRequest {
        name: "shipped".to_owned(),
        request_id: id.to_owned(),
        audience,
        ..TriggerScheduleRequest::default()
    };
    let opened = async |request| node.schedules().trigger_schedule(request).await.map(|answer| answer.into_inner());
    let both = trigger("one", Some(list(&["ann", "bob"])));
    let dry_run = TriggerScheduleRequest { validate_only: true, ..both.clone() };
    assert_eq!(opened(dry_run).await.expect("checked").run.expect("a run").audience, 2);
    let first = opened(both.clone()).await.expect("opened");
    assert!(!first.replayed);
    let run = first.run.expect("a run");
    assert_eq!((run.audience, run.schedule.as_str()), (2, "shipped"));
    node.until(&run.run, |run| run.state() == RunState::Finished).await;
    for validate_only in [false, true] {
        let repeat = opened(TriggerScheduleRequest { validate_only, ..both.clone() }).await.expect("a repeat");
        assert_eq!((repeat.replayed, repeat.run.expect("a run").run), (true, run.run.clone()));
    }
    for (other, validate_only) in [(Some(list(&["ann"])), false), (None, false), (None, true)] {
        let other = TriggerScheduleRequest { validate_only, ..trigger("one", other) };
        let refused = opened(other).await.expect_err("another list");
        assert_eq!(reason(&refused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    }
    let mut first_wins = trigger("one", Some(list(&["ann"])));
    first_wins.set_key_rule(KeyRule::FirstWins);
    let repeat = opened(first_wins).await.expect("the first one");
    assert_eq!((repeat.replayed, repeat.run.expect("a run").run), (true, run.run.clone()));
    let recipients: Vec<_> = node.sink.emails().iter().map(|(_, email)| email.recipient.clone()).collect();
    assert_eq!((recipients.len(), node.sink.accepted_count()), (2, 2), "{recipients:?}");

    let mut wrong = list(&["ann"]);
    wrong.columns[0] = "nmae".to_owned();
    let refused = opened(trigger("two", Some(wrong))).await.expect_err("the text needs a name");
    assert!(refused.message().starts_with("audience.columns: do not fit the content of the schedule, text: "));
    let update = UpdateScheduleRequest {
        schedule: Some(yearly("shipped", &["owner@example.net"])),
        update_mask: Some(prost_types::FieldMask { paths: vec!["content".to_owned(), "audience".to_owned()] }),
        ..UpdateScheduleRequest::default()
    };
    node.schedules().update_schedule(update).await.expect("updated");
    let repeat = opened(both).await.expect("a repeat has the first answer, whatever was edited since");
    assert_eq!((repeat.replayed, repeat.run.expect("a run").run), (true, run.run));
    let sealed = Audience { sealed: "all".to_owned(), ..Audience::default() };
    let refused = opened(trigger("two", Some(sealed))).await.expect_err("a sealed audience");
    assert_eq!(refused.message(), "audience.sealed: is named; list the recipients");
    let runs = node.runs().list_runs(ListRunsRequest::default()).await.expect("runs").into_inner().runs;
    assert_eq!(runs.len(), 1);
    node.stop().await;
}
