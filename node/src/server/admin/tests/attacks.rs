//! Attacks on the admin port: connections that are held, sizes that are only announced, line ends in fields.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::Request;
use hyper_util::rt::TokioIo;
use prost::bytes::Bytes;
use reveille_ledger::token::TenantScope;
use reveille_proto::admin::v1::event_service_client::EventServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::token_service_client::TokenServiceClient;
use reveille_proto::admin::v1::{
    Content, Field, ListSchedulesRequest, Recipient, RevokeTokenRequest, RunState, ScheduleBody, WatchEventsRequest,
};
use reveille_raft::listen::{CONNECTIONS_MAX, CONNECTIONS_OF_TENANTS_MAX, CONNECTIONS_OF_TOKEN_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;
use tonic::codegen::Service as _;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

use super::access::{locked_address, only, role, token, with};
use super::harness::{Node, STEP_TIMEOUT, creation, node, opened, reason, yearly};
use crate::server::admin::STREAMS_MAX;
use crate::token_text::TokenText;

/// Connects over real HTTP/2, which answers pings. Each connection that is opened is counted.
async fn connected(address: std::net::SocketAddr, opened: &Arc<AtomicUsize>) -> Channel {
    let opened = Arc::clone(opened);
    let connect = tower::service_fn(move |_: Uri| {
        opened.fetch_add(1, Ordering::Relaxed);
        async move { TcpStream::connect(address).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").timeout(STEP_TIMEOUT);
    endpoint.connect_with_connector(connect).await.expect("a connection")
}

/// Clients without a token may answer pings and ask for the health or the API for ever. They must not hold all
/// connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_a_token_hold_no_connections() {
    let node = node("").await;
    let (address, viewer) = (locked_address(&node).await, token(&node, role("viewer"), TenantScope::All).await);
    let list = async |channel: &Channel| {
        let request = with(ListSchedulesRequest::default(), &viewer);
        ScheduleServiceClient::new(channel.clone()).list_schedules(request).await
    };
    let (opened, strange) = (Arc::default(), Arc::default());
    let permitted = connected(address, &opened).await;
    list(&permitted).await.expect("permitted");
    let (mut strangers, mut by_http) = (Vec::new(), Vec::new());
    while by_http.len() < CONNECTIONS_MAX / 4 {
        let mut stranger = TcpStream::connect(address).await.expect("a connection");
        stranger.write_all(b"GET /v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
        by_http.push(stranger);
    }
    while by_http.len() + strangers.len() + 1 < CONNECTIONS_MAX {
        let stranger = connected(address, &strange).await;
        let mut health = HealthClient::new(stranger.clone());
        health.check(HealthCheckRequest::default()).await.expect("health is open");
        strangers.push(stranger);
    }
    let late = connected(address, &opened).await;
    list(&late).await.expect("it is answered when the others are disconnected");
    list(&permitted).await.expect("permitted");
    assert_eq!(opened.load(Ordering::Relaxed), 2, "a permitted client keeps its connection");
    node.stop().await;
}

/// The owners of tokens may answer pings for ever, too. They must keep out neither other tenants after their tokens were
/// revoked, nor operators, who revoke them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_tenant_keep_no_other_client_out() {
    let node = node("").await;
    let address = locked_address(&node).await;
    let list = async |channel: &Channel, tenant: &str, token: &TokenText| {
        let request = ListSchedulesRequest { tenant: tenant.to_owned(), ..ListSchedulesRequest::default() };
        ScheduleServiceClient::new(channel.clone()).list_schedules(with(request, token)).await.map(drop)
    };
    let opened = Arc::default();
    let hold = async |count: usize, token: &TokenText| {
        let (mut held, mut permitted) = (Vec::new(), 0);
        while held.len() < count {
            let channel = connected(address, &opened).await;
            match list(&channel, "evil", token).await {
                Ok(()) => permitted += 1,
                Err(refused) => {
                    assert_eq!(reason(&refused), (Code::ResourceExhausted, "SHARE_USED".to_owned()));
                    assert!(refused.get_details_retry_info().is_some(), "it may be sent again");
                }
            }
            held.push(channel);
        }
        (held, permitted)
    };
    let evil = token(&node, role("viewer"), only("evil")).await;
    let (held, permitted) = hold(CONNECTIONS_MAX, &evil).await;
    assert_eq!(permitted, CONNECTIONS_OF_TOKEN_MAX);
    let id = evil.id.to_string();
    TokenServiceClient::new(node.channel.clone()).revoke_token(RevokeTokenRequest { id }).await.expect("revoked");
    let other = token(&node, role("viewer"), only("other")).await;
    list(&connected(address, &opened).await, "other", &other).await.expect("another tenant is served");

    let mut all = Vec::new();
    while all.len() * CONNECTIONS_OF_TOKEN_MAX < CONNECTIONS_MAX {
        let evil = token(&node, role("viewer"), only("evil")).await;
        all.push(hold(CONNECTIONS_OF_TOKEN_MAX, &evil).await);
    }
    let permitted = all.iter().map(|(_, permitted)| permitted).sum::<usize>();
    assert!(permitted <= CONNECTIONS_OF_TENANTS_MAX, "{permitted} have a place");
    let operator = token(&node, role("viewer"), TenantScope::All).await;
    list(&connected(address, &opened).await, "evil", &operator).await.expect("an operator is served");
    drop(held);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_tenant_leave_room_for_others() {
    let node = node("").await;
    let channel = connected(locked_address(&node).await, &Arc::default()).await;
    let watch = async |token: &TokenText| {
        let request = WatchEventsRequest { tenant: "evil".to_owned(), ..WatchEventsRequest::default() };
        EventServiceClient::new(channel.clone()).watch_events(with(request, token)).await
    };
    let evil = token(&node, role("viewer"), only("evil")).await;
    let mut streams = Vec::new();
    let refused = loop {
        match watch(&evil).await {
            Ok(stream) => streams.push(stream),
            Err(refused) => break refused,
        }
    };
    assert_eq!(reason(&refused), (Code::ResourceExhausted, "SHARE_USED".to_owned()));
    assert_eq!(streams.len(), STREAMS_MAX / 2);
    let operator = token(&node, role("viewer"), TenantScope::All).await;
    streams.push(watch(&operator).await.expect("an operator's stream"));
    node.stop().await;
}

/// Sends these bytes as the beginning of a body that never ends, and returns the status of the response.
async fn answered(node: &Node, path: &str, encoding: &str, bytes: Vec<u8>) -> Code {
    let body = tokio_stream::once(Ok::<_, Infallible>(Bytes::from(bytes))).chain(tokio_stream::pending());
    let request = Request::post(format!("http://node/reveille.admin.v1.{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", encoding)
        .body(tonic::body::Body::new(Body::from_stream(body)));
    let mut channel = node.channel.clone();
    std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("a connection");
    let response = tokio::time::timeout(STEP_TIMEOUT, channel.call(request.expect("a request"))).await;
    let response = response.expect("it does not wait for the bytes").expect("a response");
    Status::from_header_map(response.headers()).expect("a status").code()
}

/// Returns a gRPC frame that announces `length` bytes.
fn frame(compressed: bool, length: u32, bytes: &[u8]) -> Vec<u8> {
    [&[u8::from(compressed)], length.to_be_bytes().as_slice(), bytes].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_sizes_and_compressed_messages_are_refused_before_they_are_read() {
    let node = node("").await;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![0; 64 << 20]).expect("memory");
    let bomb = bomb.finish().expect("memory");
    // A field of a message that has six bytes announces 2 GB.
    let field = [0x0a, 0xff, 0xff, 0xff, 0xff, 0x07];
    for path in ["RelayService/AddRelay", "AudienceService/PutPart"] {
        for length in [1 << 31, u32::MAX] {
            let refused = answered(&node, path, "identity", frame(false, length, &[7; 100])).await;
            assert_eq!(refused, Code::InvalidArgument, "{path}: {length} bytes");
        }
        let refused = answered(&node, path, "identity", frame(false, 6, &field)).await;
        assert_eq!(refused, Code::InvalidArgument, "{path}");
        let refused = answered(&node, path, "gzip", frame(true, bomb.len() as u32, &bomb)).await;
        assert_eq!(refused, Code::Unimplemented, "{path}: compressed messages are not accepted");
    }
    node.stop().await;
}

/// A request head may come in any number of frames (RFC 9113, 6.10).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_without_end_ends_the_connection() {
    const FRAME: usize = 16_384;
    const MOST: usize = 64 << 20;
    let node = node("").await;
    let address = locked_address(&node).await;
    let http2 = |kind: u8, stream: u8, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, stream], payload].concat()
    };
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the preface");
    stream.write_all(&http2(4, 0, b"")).await.expect("settings");
    // A header whose name has one byte, and whose value goes on for ever.
    let head = [0x00, 0x01, b'a', 0x7f, 0xff, 0xff, 0xff, 0x7f];
    stream.write_all(&http2(1, 1, &head)).await.expect("the beginning of a head");
    let more = http2(9, 1, &[b'x'; FRAME]);
    let (mut reader, mut writer) = stream.into_split();
    let write = async {
        let mut written = 0;
        while written < MOST && writer.write_all(&more).await.is_ok() {
            written += FRAME;
        }
        written
    };
    // The server's frames are read, so that it never waits for this client.
    let read = async { while reader.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {} };
    let (written, ()) = tokio::time::timeout(STEP_TIMEOUT, async { tokio::join!(write, read) }).await.expect("it ends");
    // What the sockets of both sides hold is counted, too.
    assert!(written < MOST / 2, "{written} bytes were accepted");
    node.stop().await;
}

type Place = (&'static str, fn(&mut ScheduleBody, &str));

fn content(body: &mut ScheduleBody) -> &mut Content {
    body.content.as_mut().expect("content")
}

fn recipient(body: &mut ScheduleBody) -> &mut Recipient {
    &mut body.audience.as_mut().expect("recipients").recipients[0]
}

fn field(name: &str, value: &str) -> Vec<Field> {
    vec![Field { name: name.to_owned(), value: value.to_owned() }]
}

/// Every field of a schedule that reaches an email or a command of SMTP.
const PLACES: [Place; 15] = [
    ("name", |body, evil| body.name.push_str(evil)),
    ("tenant", |body, evil| body.tenant = format!("default{evil}")),
    ("name of the sender", |body, evil| content(body).sender = format!("Reports{evil} <reports@example.org>")),
    ("address of the sender", |body, evil| content(body).sender = format!("reports@example.org{evil}")),
    ("cc", |body, evil| content(body).cc = vec![format!("Desk{evil} <desk@example.org>")]),
    ("reply-to", |body, evil| content(body).reply_to = format!("Desk{evil} <desk@example.org>")),
    ("subject", |body, evil| content(body).subject = format!("Hello{evil}")),
    ("expression in the subject", |body, evil| {
        content(body).subject = format!("{{{{ '{}' }}}}", evil.replace('\r', "\\r").replace('\n', "\\n"));
    }),
    ("name of a header", |body, evil| content(body).headers = field(&format!("X-A: b{evil}"), "c")),
    ("value of a header", |body, evil| content(body).headers = field("X-A", &format!("b{evil}"))),
    ("variable", |body, evil| {
        content(body).variables = field("x", &format!("b{evil}"));
        content(body).headers = field("X-A", "{{ x }}");
        content(body).subject = "{{ x }}".to_owned();
    }),
    ("column", |body, evil| {
        content(body).subject = "{{ x }}".to_owned();
        content(body).headers = field("X-A", "{{ x }}");
        recipient(body).values = vec![format!("b{evil}")];
        body.audience.as_mut().expect("recipients").columns = vec!["x".to_owned()];
    }),
    ("address", |body, evil| recipient(body).address = format!("ada@example.net{evil}")),
    ("local part", |body, evil| recipient(body).address = format!("\"ada{evil}\"@example.net")),
    ("name of the recipient", |body, evil| recipient(body).address = format!("Ada{evil} <ada@example.net>")),
];

/// Line ends, and what some programs take for one. The last is an encoded word with a line end in it.
const ENDS: [&str; 6] = ["\r\n", "\n", "\r", "\u{85}", "\u{2028}", "=?utf-8?q?=0D=0A?= "];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn line_end_in_a_field_adds_no_header_and_no_recipient() {
    let node = node("").await;
    let mut runs = Vec::new();
    for (number, (place, inject)) in PLACES.iter().enumerate() {
        for (end, text) in ENDS.iter().enumerate() {
            let mut body = yearly(&format!("s{number}-{end}"), &["ada@example.net"]);
            inject(&mut body, &format!("{text}Bcc: evil@example.org"));
            let requested = creation(body.clone());
            match node.schedules().create_schedule(requested).await {
                Ok(_) => runs.push(opened(&node.channel, body).await.1.run.expect("a run").run),
                Err(refused) => assert_eq!(refused.code(), Code::InvalidArgument, "{place}: {refused:?}"),
            }
        }
    }
    assert!(runs.len() > 10, "some are harmless, and are sent: {}", runs.len());
    for run in &runs {
        node.until(run, |run| run.state() == RunState::Finished).await;
    }
    let emails = node.sink.emails();
    assert_eq!(emails.iter().count(), runs.len(), "one for each");
    for (number, email) in emails.iter() {
        assert_eq!((email.recipient.as_str(), email.sender.as_str()), ("ada@example.net", "reports@example.org"));
        let text = String::from_utf8_lossy(&node.sink.text(number).expect("its text")).into_owned();
        let (head, _) = text.split_once("\r\n\r\n").expect("a head");
        let fields: Vec<&str> = head.split(['\r', '\n']).filter(|line| !line.is_empty()).collect();
        assert!(!fields.iter().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
        assert!(head.is_ascii(), "{head}");
    }
    node.stop().await;
}
