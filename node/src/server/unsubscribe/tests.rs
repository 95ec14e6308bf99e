//! Tests of the unsubscribe listener on a one-node cluster: raw requests, and the opt-outs in the ledger.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::server::admin::tests::harness::{Node, STEP_TIMEOUT, UNSUBSCRIBE, node};
use crate::server::http::CONNECTION_WITHIN;

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
const ONE_CLICK: &str = "List-Unsubscribe=One-Click";

struct TestServer {
    node: Node,
    address: SocketAddr,
    /// Path of the signed link for Ann.
    path: String,
    stop: CancellationToken,
}

impl TestServer {
    /// Starts the page on the real listener, with its limits.
    async fn open() -> TestServer {
        let (server, listener, admin) = TestServer::bound().await;
        tokio::spawn(serve(admin, server.node.shared_context(), listener, server.stop.clone()));
        server
    }

    async fn bound() -> (TestServer, TcpListener, Arc<Admin>) {
        let node = node("").await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let admin = Arc::new(Admin::new(node.shared_context()));
        let link = node.context().unsubscribe.as_ref().expect("configured").link("default", "ann@example.com");
        let path = link.strip_prefix("https://news.example.org").expect(UNSUBSCRIBE).to_owned();
        (TestServer { node, address, path, stop: CancellationToken::new() }, listener, admin)
    }

    async fn said(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        // The server may refuse a body and close the connection before it has read all of it.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = String::new();
        let read = tokio::time::timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer)).await.expect("an answer");
        assert!(read.is_ok() || !answer.is_empty(), "{read:?}");
        answer
    }

    async fn requested(&self, method: &str, path: &str, head: &str, body: &str) -> String {
        let length = body.len();
        self.said(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{head}Content-Length: {length}\r\n\r\n{body}")).await
    }

    fn opted_out(&self) -> Vec<String> {
        let keys = |ledger: &reveille_ledger::Ledger| {
            ledger.opted_out().iter().map(|((tenant, key), _)| format!("{tenant}/{key}")).collect()
        };
        self.node.context().replica.read(keys)
    }

    async fn close(self) {
        self.stop.cancel();
        self.node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_post_of_the_pair_to_a_signed_link_opts_out() {
    let server = TestServer::open().await;
    let path = server.path.clone();
    let shown = server.requested("GET", &path, "", "").await;
    assert!(shown.starts_with("HTTP/1.1 200 ") && shown.contains("<form method=\"post\">"), "{shown}");
    assert!(shown.contains("<strong>ann@example.com</strong>"), "{shown}");
    for header in
        ["cache-control: no-store", "referrer-policy: no-referrer", "content-security-policy: default-src 'none'"]
    {
        assert!(shown.contains(header), "{header}: {shown}");
    }
    let head = server.requested("HEAD", &path, "", "").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("<form"), "{head}");

    let forged = format!("{}A{}", &path[..8], &path[9..]);
    let long = format!("/{}", "A".repeat(9_000));
    let large = format!("{ONE_CLICK}&{}", "x".repeat(100_000));
    for (method, path, head, body, status) in [
        ("GET", forged.as_str(), "", "", "404"),
        ("POST", &forged, FORM, ONE_CLICK, "404"),
        ("POST", "/", FORM, ONE_CLICK, "404"),
        ("POST", &long, FORM, ONE_CLICK, "404"),
        ("POST", &path, "", "", "400"),
        ("POST", &path, FORM, "List-Unsubscribe=Two-Clicks", "400"),
        ("POST", &path, "Content-Type: application/json\r\n", ONE_CLICK, "400"),
        ("POST", &path, FORM, &large, "400"),
        ("PUT", &path, FORM, ONE_CLICK, "405"),
        ("DELETE", &path, "", "", "405"),
    ] {
        let answer = server.requested(method, path, head, body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path} {body:.40}: {answer}");
    }
    let answer = server.said(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(100_000))).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer:.100}");
    assert_eq!(server.opted_out(), [""; 0], "nothing of that has changed anything");

    let done = server.requested("POST", &path, FORM, ONE_CLICK).await;
    assert!(done.starts_with("HTTP/1.1 200 ") && done.contains("You are unsubscribed"), "{done}");
    assert_eq!(server.opted_out(), ["default/ann@example.com"]);
    // A path with a prefix, as behind a proxy; multipart, as most mail programs send it; and a repeated opt-out.
    let elsewhere = format!("/some/where{path}");
    let multipart = "Content-Type: multipart/form-data; boundary=b\r\n";
    let body = "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n";
    let again = server.requested("POST", &elsewhere, multipart, body).await;
    assert!(again.starts_with("HTTP/1.1 200 "), "{again}");
    assert_eq!(server.opted_out(), ["default/ann@example.com"]);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_page_answers_with_retry_after() {
    let (server, listener, admin) = TestServer::bound().await;
    let full = router(admin, server.node.shared_context(), 0);
    tokio::spawn(async move { axum::serve(listener, full).await });
    let full = server.requested("POST", &server.path, &format!("{FORM}Connection: close\r\n"), ONE_CLICK).await;
    assert!(full.starts_with("HTTP/1.1 503 ") && full.contains("\r\nretry-after: 10\r\n"), "{full}");
    assert_eq!(server.opted_out(), [""; 0]);
    let shown = server.requested("GET", &server.path, "Connection: close\r\n", "").await;
    assert!(shown.starts_with("HTTP/1.1 200 "), "a page needs no place: {shown}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_client_is_disconnected() {
    let server = TestServer::open().await;
    let path = &server.path;
    let half =
        ["POST / HT".to_owned(), format!("POST {path} HTTP/1.1\r\nHost: a\r\n{FORM}Content-Length: 26\r\n\r\nList-")];
    let said = half.each_ref().map(|request| server.said(request));
    let begun = Instant::now();
    let answers = futures_of(said).await;
    assert!(begun.elapsed() < CONNECTION_WITHIN + STEP_TIMEOUT, "both were ended");
    assert!(!answers.iter().any(|answer| answer.starts_with("HTTP/1.1 200 ")), "{answers:?}");
    assert_eq!(server.opted_out(), [""; 0]);
    server.close().await;
}

/// Awaits both futures concurrently.
async fn futures_of<F: Future<Output = String>>([one, two]: [F; 2]) -> [String; 2] {
    let (one, two) = tokio::join!(one, two);
    [one, two]
}
