//! Recipients with non-ASCII addresses, in a pool where not every relay offers SMTPUTF8.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use reveille_proto::admin::v1::{
    AddRelayRequest, Content, ExplainRequest, ExplainedEventKind, RecipientState, Relay, RelayTls, RemoveRelayRequest,
    RunState, TriggerScheduleRequest,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::harness::{Node, STEP_TIMEOUT, creation, node, yearly};
use crate::cli::wording::explained;

/// A relay without extensions. It counts its sessions and the emails that it was offered.
struct Bare {
    port: u32,
    sessions: Arc<AtomicUsize>,
    emails: Arc<AtomicUsize>,
}

impl Bare {
    async fn start() -> Bare {
        Bare::saying_to_ehlo("250 bare\r\n").await
    }

    async fn saying_to_ehlo(words: &'static str) -> Bare {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = u32::from(listener.local_addr().expect("an address").port());
        let (sessions, emails) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let bare = Bare { port, sessions: Arc::clone(&sessions), emails: Arc::clone(&emails) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                sessions.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, words, Arc::clone(&emails)));
            }
        });
        bare
    }

    fn relay(&self) -> Relay {
        let host = "127.0.0.1".to_owned();
        Relay { name: "bare".to_owned(), host, port: self.port, tls: RelayTls::None.into(), ..Relay::default() }
    }
}

async fn serve(stream: TcpStream, ehlo: &'static str, emails: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let mut answer = "220 bare ESMTP\r\n";
    let mut line = String::new();
    while stream.get_mut().write_all(answer.as_bytes()).await.is_ok() {
        line.clear();
        if !stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
            return;
        }
        if line.starts_with("MAIL") {
            emails.fetch_add(1, Ordering::SeqCst);
        }
        answer = match line.get(..4) {
            Some("EHLO") => ehlo,
            Some("DATA") => "554 5.3.0 no\r\n",
            _ => "250 bare\r\n",
        };
    }
}

async fn add(node: &Node, relay: Relay) {
    let request = AddRelayRequest { relay: Some(relay), ..AddRelayRequest::default() };
    node.relays().add_relay(request).await.expect("added");
}

async fn remove(node: &Node, name: &str) {
    node.relays()
        .remove_relay(RemoveRelayRequest { name: name.to_owned(), ..Default::default() })
        .await
        .expect("removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_without_smtputf8_leaves_recipient_to_another_relay() {
    let (node, bare) = (node("").await, Bare::start().await);
    // Its weight makes it the first choice for nearly every email.
    add(&node, Relay { weight: 100, ..bare.relay() }).await;
    let recipients = ["zo\u{eb}@x.example", "\u{e9}va@x.example", "\u{e5}sa@x.example"];
    let run = node.triggered("news", &recipients, "").await;
    let done = node.until(&run.run, |run| run.state() == RunState::Finished).await;
    assert_eq!(done.counts.map(|counts| (counts.sent, counts.dead)), Some((3, 0)), "{done:?}");
    assert_eq!(node.sink.accepted_count(), 3);
    assert!(bare.sessions.load(Ordering::SeqCst) > 0, "it was asked");
    assert_eq!(bare.emails.load(Ordering::SeqCst), 0, "and offered nothing");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_without_smtputf8_gives_the_recipient_up_with_the_cause() {
    let (node, bare) = (node("").await, Bare::start().await);
    remove(&node, "mailbox").await;
    add(&node, bare.relay()).await;
    let run = node.triggered("news", &["zo\u{eb}@x.example"], "").await;
    let done = node.until(&run.run, |run| run.state() == RunState::Finished).await;
    assert_eq!(done.counts.map(|counts| counts.dead), Some(1), "{done:?}");
    let request = ExplainRequest { run: run.run.clone(), recipient: "#0".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(request).await.expect("a story").into_inner();
    assert_eq!(history.state(), RecipientState::Dead);
    let detail = history.events.iter().find(|event| event.kind() == ExplainedEventKind::GivenUp).map(explained);
    assert!(detail.is_some_and(|detail| detail.contains("no relay of its pool offers SMTPUTF8")), "{history:?}");
    assert_eq!(bare.sessions.load(Ordering::SeqCst), 1, "it is asked once");
    assert_eq!(bare.emails.load(Ordering::SeqCst), 0);
    node.stop().await;
}

/// The relay may offer SMTPUTF8 to the next session. Only a successful reply to EHLO proves that it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_that_refuses_ehlo_makes_recipient_wait() {
    let (node, bare) = (node("").await, Bare::saying_to_ehlo("502 5.5.1 not now\r\n").await);
    let other = Bare::start().await;
    remove(&node, "mailbox").await;
    add(&node, bare.relay()).await;
    add(&node, Relay { name: "other".to_owned(), ..other.relay() }).await;
    let run = node.triggered("news", &["zo\u{eb}@x.example"], "").await;
    let mut events = Vec::new();
    let end = Instant::now() + STEP_TIMEOUT;
    while Instant::now() < end {
        let request = ExplainRequest { run: run.run.clone(), recipient: "#0".to_owned(), ..ExplainRequest::default() };
        let history = node.runs().explain(request).await.expect("a story").into_inner();
        events.clone_from(&history.events);
        if events.iter().any(|event| event.text.contains("refused EHLO")) {
            assert_eq!(history.state(), RecipientState::Pending);
            assert_eq!(bare.emails.load(Ordering::SeqCst) + other.emails.load(Ordering::SeqCst), 0);
            return node.stop().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("it does not wait: {events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sender_beyond_ascii_without_smtputf8_pauses_the_run() {
    let (node, bare) = (node("").await, Bare::start().await);
    remove(&node, "mailbox").await;
    add(&node, bare.relay()).await;
    let recipients: Vec<String> = (0..12).map(|number| format!("u{number}@x.example")).collect();
    let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
    let mut body = yearly("news", &recipients);
    let content = body.content.take().unwrap_or_default();
    body.content = Some(Content { sender: "zo\u{eb}@example.org".to_owned(), ..content });
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let (name, request_id) = ("news".to_owned(), "now".to_owned());
    let request = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
    let run = node.schedules().trigger_schedule(request).await.expect("triggered").into_inner().run.expect("a run");
    let paused = node.until(&run.run, |run| run.state() == RunState::Paused).await;
    assert_eq!(paused.counts.map(|counts| (counts.sent, counts.dead)), Some((0, 0)), "{paused:?}");
    assert_eq!(bare.emails.load(Ordering::SeqCst), 0);
    node.stop().await;
}
