//! Events over the API: pages through the archive and the state, waiting, streams, and cursors that are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::command::{Command, OptOut};
use reveille_proto::admin::v1::event_service_client::EventServiceClient;
use reveille_proto::admin::v1::{
    AddOptOutRequest, CancelRunRequest, Event, EventType, ListEventsRequest, ListEventsResponse, PauseCause,
    PauseRunRequest, ResumeRunRequest, RunState, WatchEventsRequest,
};
use tonic::Code;

use super::clock::{DAY, advance_clock, by};
use super::harness::{Node, STEP_TIMEOUT, node, node_with_test_clock, reason};
use super::messages::message;

const RECIPIENTS: [&str; 3] = ["ada@example.net", "bob@example.net", "cyd@example.net"];
/// Proposals at a time.
const AT_ONCE: usize = 128;

async fn page(node: &Node, request: ListEventsRequest) -> ListEventsResponse {
    let page = EventServiceClient::new(node.channel.clone()).list_events(request).await;
    page.expect("a page").into_inner()
}

/// Returns all events that the request selects, page by page.
async fn list(node: &Node, mut request: ListEventsRequest) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let answer = page(node, request.clone()).await;
        all.extend(answer.events);
        if !answer.more {
            return all;
        }
        assert_ne!(request.after, answer.cursor);
        request.after = answer.cursor;
    }
}

fn types(events: &[Event]) -> Vec<EventType> {
    events.iter().map(Event::r#type).collect()
}

/// Lets `count` addresses opt out, each by its own entry.
async fn opt_out(node: &Node, count: usize) {
    let context = node.shared_context();
    for batch in 0..count.div_ceil(AT_ONCE) {
        let mut changes = tokio::task::JoinSet::new();
        for number in 0..AT_ONCE.min(count - batch * AT_ONCE) {
            let (context, key) = (Arc::clone(&context), format!("u{batch}-{number}@example.net"));
            changes.spawn(async move {
                let command = Command::OptOut(OptOut { tenant: "default".to_owned(), keys: vec![key] });
                context.replica.propose(&command, Instant::now() + STEP_TIMEOUT).await
            });
        }
        changes.join_all().await.into_iter().for_each(|reply| drop(reply.expect("an answer")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_run_are_read_after_any_cursor() {
    let node = node("").await;
    let run = node.triggered("report", &RECIPIENTS, "").await.run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.sent == 3)).await;
    let all = list(&node, ListEventsRequest::default()).await;
    assert_eq!((all[0].r#type(), all[0].count), (EventType::RunOpened, 3));
    assert!(all.iter().all(|event| event.run == run && event.schedule == "report" && event.tenant == "default"));
    assert!(all[0].occurrence.starts_with("trigger ") && all[0].time.is_some(), "{:?}", all[0]);
    let last = all.last().expect("an event");
    assert_eq!((last.r#type(), last.counts.map(|counts| counts.sent)), (EventType::RunFinished, Some(3)));
    let sent: u32 =
        all.iter().filter(|event| event.r#type() == EventType::RecipientsSent).map(|event| event.count).sum();
    assert_eq!((sent, all.len() >= 3), (3, true), "{all:?}");
    assert!(all.iter().all(|event| event.addresses.is_empty()), "{all:?}");

    let by_one = ListEventsRequest { page_size: 1, ..ListEventsRequest::default() };
    assert_eq!(list(&node, by_one.clone()).await, all);
    for (place, event) in all.iter().enumerate() {
        let rest = list(&node, ListEventsRequest { after: event.cursor.clone(), ..by_one.clone() }).await;
        assert_eq!(rest, all[place + 1..]);
    }
    let finished = vec![EventType::RunFinished.into()];
    assert_eq!(list(&node, ListEventsRequest { types: finished, ..by_one.clone() }).await, all[all.len() - 1..]);
    let other = ListEventsRequest { tenant: "other".to_owned(), ..by_one.clone() };
    assert_eq!(list(&node, other).await, [], "of another tenant");

    let single = ListEventsRequest { single: true, ..by_one };
    let each = list(&node, single.clone()).await;
    assert_eq!(each.len(), 5, "{each:?}");
    let sent = each.iter().filter(|event| event.r#type() == EventType::RecipientsSent);
    let mut sent: Vec<_> = sent.map(|event| (event.numbers.as_str(), event.count, event.addresses.clone())).collect();
    sent.sort();
    let expected = [("0", 1), ("1", 1), ("2", 1)];
    let expected =
        expected.into_iter().zip(RECIPIENTS).map(|((number, one), address)| (number, one, vec![address.to_owned()]));
    assert_eq!(sent, expected.collect::<Vec<_>>());
    for (place, event) in each.iter().enumerate() {
        let rest = list(&node, ListEventsRequest { after: event.cursor.clone(), ..single.clone() }).await;
        assert_eq!(rest, each[place + 1..], "also between two recipients of one entry");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_names_a_message_by_its_key_as_its_run_does() {
    let node = node("").await;
    let sent = node.messages().send_message(message("order-1", &["ada@example.net"])).await.expect("sent");
    let run = sent.into_inner().message.and_then(|message| message.run).expect("a run");
    node.until(&run.run, |run| run.counts.is_some_and(|counts| counts.sent == 1)).await;
    let all = list(&node, ListEventsRequest::default()).await;
    assert_eq!((run.occurrence.as_str(), all.len() >= 3), ("order-1", true), "{all:?}");
    assert!(all.iter().all(|event| event.occurrence == run.occurrence), "{all:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_cancels_and_opt_outs_are_events() {
    let node = node("").await;
    // No relay is in this pool, so nothing is claimed.
    let run = node.triggered("report", &RECIPIENTS, "nowhere").await.run;
    let pause = PauseRunRequest { run: run.clone(), reason: "wrong price".to_owned(), ..PauseRunRequest::default() };
    node.runs().pause_run(pause).await.expect("paused");
    let resume = ResumeRunRequest { run: run.clone(), ..ResumeRunRequest::default() };
    node.runs().resume_run(resume).await.expect("resumed");
    let cancel = CancelRunRequest { run: run.clone(), ..CancelRunRequest::default() };
    for _ in 0..2 {
        let cancelled = node.runs().cancel_run(cancel.clone()).await.expect("cancelled, also again").into_inner();
        assert!(cancelled.barrier.is_some(), "{cancelled:?}");
        assert_eq!(cancelled.run.map(|run| run.state()), Some(RunState::Cancelled));
    }
    for recipient in ["ann@example.net", "Ann@Example.net"] {
        let opt_out = AddOptOutRequest { recipient: recipient.to_owned(), ..AddOptOutRequest::default() };
        node.opt_outs().add_opt_out(opt_out).await.expect("opted out");
    }
    use EventType::{OptedOut, RecipientsCancelled, RunCancelled, RunFinished, RunOpened, RunPaused, RunResumed};
    let all = list(&node, ListEventsRequest::default()).await;
    let expected = [RunOpened, RunPaused, RunResumed, RunCancelled, RecipientsCancelled, RunFinished, OptedOut];
    assert_eq!(types(&all), expected);
    let pause = all[1].pause.as_ref().map(|pause| (pause.cause(), pause.text.as_str()));
    assert_eq!(pause, Some((PauseCause::Operator, "wrong price")));
    assert_eq!((all[4].numbers.as_str(), all[4].count), ("0-2", 3));
    assert_eq!((all[6].count, all[6].addresses.as_slice()), (1, ["ann@example.net".to_owned()].as_slice()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_waits_for_the_next_event_and_no_longer() {
    let node = node("").await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let begun = Instant::now();
    let latest = ListEventsRequest { after: "latest".to_owned(), wait: seconds(1), ..ListEventsRequest::default() };
    let none = page(&node, latest).await;
    assert!(none.events.is_empty() && begun.elapsed() >= Duration::from_secs(1), "{none:?}");
    let next = ListEventsRequest { after: none.cursor, wait: seconds(60), ..ListEventsRequest::default() };
    let (waited, run) = tokio::join!(page(&node, next), node.triggered("report", &RECIPIENTS[..1], ""));
    assert_eq!((waited.events[0].r#type(), &waited.events[0].run), (EventType::RunOpened, &run.run));
    let long = ListEventsRequest { wait: seconds(61), ..ListEventsRequest::default() };
    let refused = EventServiceClient::new(node.channel.clone()).list_events(long).await.expect_err("too long");
    assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_of_a_stream_gets_each_event_once() {
    let node = node("").await;
    let mut events = EventServiceClient::new(node.channel.clone());
    let mut stream = events.watch_events(WatchEventsRequest::default()).await.expect("a stream").into_inner();
    // More than a full part: what the reader has not read leaves the state meanwhile.
    opt_out(&node, 5_000).await;
    let parts = node.context().replica.read(|ledger| ledger.event_parts().count());
    assert_eq!(parts, 1);
    let mut watched = Vec::new();
    while watched.len() < 5_000 {
        let answer = stream.message().await.expect("an answer").expect("no end");
        assert!(answer.event.as_ref().is_none_or(|event| event.cursor == answer.cursor), "{answer:?}");
        watched.extend(answer.event);
    }
    let listed = list(&node, ListEventsRequest { page_size: 1_000, ..ListEventsRequest::default() }).await;
    assert_eq!(listed.len(), 5_000);
    assert!(watched == listed, "the stream and the pages differ");
    assert!(listed.iter().all(|event| event.addresses.len() == 1));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursor_that_is_no_cursor_or_too_old_is_refused() {
    let node = node_with_test_clock("").await;
    let mut events = EventServiceClient::new(node.channel.clone());
    let after = |after: &str| ListEventsRequest { after: after.to_owned(), ..ListEventsRequest::default() };
    for nonsense in ["x", "-1", "1.2.3.4", "newest", "99999999"] {
        let refused = events.list_events(after(nonsense)).await.expect_err(nonsense);
        assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()), "{nonsense}");
        let watch = WatchEventsRequest { after: nonsense.to_owned(), ..WatchEventsRequest::default() };
        assert_eq!(events.watch_events(watch).await.expect_err(nonsense).code(), Code::InvalidArgument);
    }
    let ahead = ListEventsRequest { stale: true, ..after("99999999") };
    assert_eq!(page(&node, ahead).await.cursor, "99999999", "this node may be behind");
    let types = ListEventsRequest { types: vec![99], ..ListEventsRequest::default() };
    assert_eq!(events.list_events(types).await.expect_err("unknown").code(), Code::InvalidArgument);

    opt_out(&node, 4_200).await;
    let oldest = page(&node, ListEventsRequest { page_size: 1, ..ListEventsRequest::default() }).await;
    advance_clock(&node, by(8 * DAY)).await;
    let end = Instant::now() + STEP_TIMEOUT;
    while node.context().replica.read(|ledger| ledger.head().dropped_events_index) == 0 {
        assert!(Instant::now() < end, "the part is not dropped within {STEP_TIMEOUT:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let refused = events.list_events(after(&oldest.cursor)).await.expect_err("too old");
    assert_eq!(reason(&refused), (Code::OutOfRange, "CURSOR_TOO_OLD".to_owned()), "{refused:?}");
    let dropped = node.context().replica.read(|ledger| ledger.head().dropped_events_index).to_string();
    assert!(refused.message().contains(&dropped), "{refused:?}");
    let kept = list(&node, ListEventsRequest { page_size: 1_000, ..ListEventsRequest::default() }).await;
    assert_eq!(kept.len(), 104, "the rest");
    assert_eq!(list(&node, ListEventsRequest { page_size: 1_000, ..after(&dropped) }).await, kept);
    node.stop().await;
}
