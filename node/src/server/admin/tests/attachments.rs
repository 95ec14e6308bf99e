//! Attachments over the API: their bytes go into files before the command, and answers have size and hash.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use reveille_cluster::file_store::encode_attachment;
use reveille_proto::admin::v1::{
    Attachment, Content, CreateScheduleRequest, GetScheduleRequest, GetTemplateRequest, PutTemplateRequest, RunState,
    ScheduleBody, SendMessageRequest, SendMessageResponse, TriggerScheduleRequest, UpdateScheduleRequest,
};
use tonic::{Code, Status};

use super::harness::{Node, STEP_TIMEOUT, creation, node, reason, yearly};

fn attachment(name: &str, data: &[u8]) -> Attachment {
    let (name, content_type) = (name.to_owned(), "application/pdf".to_owned());
    Attachment { name, content_type, data: data.to_vec(), ..Attachment::default() }
}

/// Returns an attachment that names a file by its hash.
fn by_hash(name: &str, data: &[u8]) -> Attachment {
    Attachment { file_hash: encode_attachment(data).0.to_string(), ..attachment(name, b"") }
}

fn content(attachments: Vec<Attachment>) -> Content {
    Content { attachments, ..yearly("x", &[]).content.expect("a content") }
}

fn schedule(name: &str, attachments: Vec<Attachment>) -> CreateScheduleRequest {
    creation(ScheduleBody { content: Some(content(attachments)), ..yearly(name, &["ada@example.net"]) })
}

async fn send(node: &Node, key: &str, attachments: Vec<Attachment>) -> Result<SendMessageResponse, Status> {
    let (key, to) = (key.to_owned(), vec![format!("{key}@example.net")]);
    let request = SendMessageRequest { key, to, content: Some(content(attachments)), ..SendMessageRequest::default() };
    Ok(node.messages().send_message(request).await?.into_inner())
}

async fn update(node: &Node, path: &str, content: Content) -> Result<(), Status> {
    let request = UpdateScheduleRequest {
        schedule: Some(ScheduleBody { name: "daily".to_owned(), content: Some(content), ..ScheduleBody::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec![path.to_owned()] }),
        ..UpdateScheduleRequest::default()
    };
    node.schedules().update_schedule(request).await.map(drop)
}

/// Returns what the schedule `daily` shows of its attachments.
async fn shown(node: &Node) -> Vec<Attachment> {
    let request = GetScheduleRequest { name: "daily".to_owned(), with_body: true, ..GetScheduleRequest::default() };
    let body = node.schedules().get_schedule(request).await.expect("a schedule").into_inner().body;
    body.and_then(|body| body.content).expect("a content").attachments
}

/// Returns the source of the last email to an address.
fn source(node: &Node, recipient: &str) -> String {
    let emails = node.sink.emails();
    let (number, _) = emails.iter().rev().find(|(_, email)| email.recipient == recipient).expect("it has arrived");
    String::from_utf8_lossy(&node.sink.text(number).expect("its text")).into_owned()
}

fn file(node: &Node, data: &[u8]) -> PathBuf {
    node.folder.path().join("parts").join(encode_attachment(data).0.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_carries_its_files_and_a_repeat_with_others_is_refused() {
    let node = node("").await;
    let first = send(&node, "one", vec![attachment("a.pdf", b"%PDF"), attachment("b.pdf", b"")]).await.expect("sent");
    let run = first.message.and_then(|message| message.run).expect("a run").run;
    node.until(&run, |run| run.state() == RunState::Finished).await;
    let email = source(&node, "one@example.net");
    assert!(
        email.contains("multipart/mixed") && email.contains("\r\n filename=\"a.pdf\"\r\n\r\nJVBERg==\r\n"),
        "{email}"
    );
    assert!(
        send(&node, "one", vec![attachment("a.pdf", b"%PDF"), attachment("b.pdf", b"")]).await.expect("again").replayed
    );
    for other in
        [vec![], vec![attachment("a.pdf", b"%PDF")], vec![attachment("a.pdf", b"%PDG"), attachment("b.pdf", b"")]]
    {
        let refused = send(&node, "one", other).await.expect_err("another content");
        assert_eq!(reason(&refused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    }
    let refused = send(&node, "two", vec![by_hash("a.pdf", b"%PDF")]).await.expect_err("no data");
    assert!(refused.message().starts_with("content.attachments[0].file_hash: is given without data"), "{refused:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn update_keeps_files_by_their_hashes_and_replaced_ones_are_removed() {
    let node = node("").await;
    node.schedules().create_schedule(schedule("daily", vec![attachment("a.pdf", b"one")])).await.expect("created");
    let of_daily = shown(&node).await;
    let expected = Attachment { size: 3, ..by_hash("a.pdf", b"one") };
    assert_eq!(of_daily, std::slice::from_ref(&expected), "never the data");
    let again = node.schedules().create_schedule(schedule("daily", of_daily)).await.expect("as it is shown");
    assert!(!again.into_inner().created);

    // Another field of the content changes nothing of them.
    let subject = Content { subject: "Other".to_owned(), ..Content::default() };
    update(&node, "content.subject", subject).await.expect("updated");
    assert_eq!(shown(&node).await, std::slice::from_ref(&expected));
    let both = content(vec![Attachment { size: 99, ..by_hash("renamed.pdf", b"one") }, attachment("b.pdf", b"two!")]);
    update(&node, "content.attachments", both).await.expect("updated");
    let sizes: Vec<_> = shown(&node).await.into_iter().map(|one| (one.name, one.size)).collect();
    assert_eq!(sizes, [("renamed.pdf".to_owned(), 3), ("b.pdf".to_owned(), 4)]);
    let trigger = TriggerScheduleRequest {
        name: "daily".to_owned(),
        request_id: "now".to_owned(),
        ..TriggerScheduleRequest::default()
    };
    let run = node.schedules().trigger_schedule(trigger).await.expect("triggered").into_inner().run.expect("a run");
    node.until(&run.run, |run| run.state() == RunState::Finished).await;
    let email = source(&node, "ada@example.net");
    assert!(email.contains("b25l\r\n") && email.contains("dHdvIQ==\r\n"), "{email}");

    // A file of another schedule is none of this one, and data must have its hash.
    node.schedules().create_schedule(schedule("other", vec![attachment("c.pdf", b"secret")])).await.expect("created");
    for foreign in [by_hash("c.pdf", b"secret"), Attachment { data: b"x".to_vec(), ..by_hash("c.pdf", b"y") }] {
        let refused = update(&node, "content.attachments", content(vec![foreign])).await.expect_err("not its own");
        assert!(refused.message().starts_with("schedule.content.attachments[0].file_hash: is not"), "{refused:?}");
    }

    // The run is still in the state and keeps its files; that of a former content goes when it is old enough.
    let three = content(vec![attachment("c.pdf", b"three")]);
    update(&node, "content.attachments", three).await.expect("updated");
    update(&node, "content.attachments", content(vec![])).await.expect("updated");
    for data in [&b"one"[..], b"three"] {
        let old = SystemTime::now() - Duration::from_secs(9 * 3_600);
        std::fs::File::open(file(&node, data)).expect("it is there").set_modified(old).expect("older");
    }
    tokio::time::timeout(STEP_TIMEOUT, async {
        while file(&node, b"three").exists() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("it is removed");
    assert!(file(&node, b"one").exists(), "a run has it");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn template_holds_its_files_and_the_limits_are_told() {
    let node = node("").await;
    let put = |attachments| PutTemplateRequest {
        name: "terms".to_owned(),
        content: Some(content(attachments)),
        ..PutTemplateRequest::default()
    };
    let first = node.templates().put_template(put(vec![attachment("a.pdf", b"one")])).await.expect("put").into_inner();
    let again = node.templates().put_template(put(vec![by_hash("a.pdf", b"one")])).await.expect("put").into_inner();
    assert_eq!((first.version, again.version, again.created), (1, 1, false));
    let get = GetTemplateRequest { name: "terms".to_owned(), ..GetTemplateRequest::default() };
    let stored = node.templates().get_template(get).await.expect("a template").into_inner().content.expect("a content");
    assert_eq!(stored.attachments, [Attachment { size: 3, ..by_hash("a.pdf", b"one") }]);
    let key = "by-template".to_owned();
    let to = vec!["bob@example.net".to_owned()];
    let by_template = SendMessageRequest { key, to, template: "terms".to_owned(), ..SendMessageRequest::default() };
    let sent = node.messages().send_message(by_template).await.expect("sent").into_inner();
    let run = sent.message.and_then(|message| message.run).expect("a run").run;
    node.until(&run, |run| run.state() == RunState::Finished).await;
    assert!(source(&node, "bob@example.net").contains("\r\n\r\nb25l\r\n"));

    let most = 10 << 20;
    send(&node, "largest", vec![attachment("a.pdf", &vec![7; most])]).await.expect("as large as can be");
    for (attachments, text) in [
        (vec![attachment("a.pdf", &vec![7; most + 1])], "content.attachments: have 10485761 bytes together"),
        (vec![attachment("a.pdf", b"x"); 11], "content.attachments: 11 are more than 10"),
        (vec![attachment("../a.pdf", b"x")], "content.attachments[0].name: contains a slash"),
        (
            vec![Attachment { content_type: "pdf".to_owned(), ..attachment("a", b"x") }],
            "content.attachments[0].content_type: ",
        ),
    ] {
        let refused = send(&node, "refused", attachments).await.expect_err("beyond a limit");
        assert_eq!(reason(&refused).0, Code::InvalidArgument);
        assert!(refused.message().starts_with(text), "{refused:?}");
    }
    node.stop().await;
}
