//! The mailbox pages, mounted as `dev` mounts them and requested over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use reveille_sink::{Sink, SinkOptions};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::pages;

/// Timeout far above what a loaded machine needs.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const HOSTILE: &str = "<script>alert(1)</script>\"'&";

struct TestServer {
    sink: Sink,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl TestServer {
    async fn with(options: SinkOptions) -> Self {
        let sink = Sink::start(options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().nest("/mailbox", pages(sink.handle()));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { sink, address, task }
    }

    /// Returns head and body of the response. The head is in lower case.
    async fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(STEP_TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }

    async fn end(self) {
        self.task.abort();
        self.sink.stop().await;
    }
}

/// Sends one email over SMTP.
async fn deliver(sink: &Sink, recipient: &str, message: &str) {
    let mut stream = BufReader::new(TcpStream::connect(sink.address()).await.unwrap());
    let envelope = format!("MAIL FROM:<news@shop.test>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n");
    for (command, codes) in [
        ("HELO client.test\r\n", &["220", "250"][..]),
        (&envelope, &["250", "250", "354"]),
        (&format!("{message}\r\n.\r\n"), &["250"]),
    ] {
        stream.get_mut().write_all(command.as_bytes()).await.unwrap();
        for code in codes {
            let mut reply = String::new();
            timeout(STEP_TIMEOUT, stream.read_line(&mut reply)).await.unwrap().unwrap();
            assert!(reply.starts_with(code), "{reply}");
        }
    }
}

#[tokio::test]
async fn untrusted_text_is_escaped_and_html_is_sandboxed() {
    let server = TestServer::with(SinkOptions::default()).await;
    let mail = format!(
        "Subject: {HOSTILE}\r\nX-Reveille-Fence: 1.2.3.4{HOSTILE}\r\nContent-Type: multipart/alternative; boundary=b\r\n\
         \r\n--b\r\n\r\ntext {HOSTILE}\r\n--b\r\nContent-Type: text/html\r\n\r\n<p title=\"x\">{HOSTILE}</p>\r\n--b--"
    );
    deliver(&server.sink, &format!("\"{HOSTILE}\"@x.test").replace("\"'", "'"), &mail).await;
    for path in ["/mailbox", "/mailbox?recipient=%3Cscript%3Ealert(1)%3C/script%3E", "/mailbox/emails/1"] {
        let (head, body) = server.get(path).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
        assert!(!body.contains("<script"), "{path} lets a script out");
        assert!(body.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{path} shows the text");
    }
    let (_, body) = server.get("/mailbox/emails/1").await;
    let frame = &body[body.find("<iframe ").unwrap()..];
    assert!(frame.starts_with("<iframe sandbox=\"\""), "{frame}");
    let document = frame.split_once("srcdoc=\"").unwrap().1.split_once('"').unwrap().0;
    assert!(document.starts_with("&lt;meta http-equiv=&quot;Content-Security-Policy&quot;"), "{document}");
    assert!(
        document
            .ends_with("&lt;p title=&quot;x&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;&lt;/p&gt;")
    );
    server.end().await;
}

#[tokio::test]
async fn links_of_mounted_mailbox_resolve() {
    let server = TestServer::with(SinkOptions::default()).await;
    deliver(&server.sink, "a@x.test", "Subject: =?utf-8?B?R3LDvMOfZQ==?=\r\n\r\nhello\r\n..dot").await;
    let (_, list) = server.get("/mailbox").await;
    assert!(list.contains("<a href=\"mailbox/emails/1\">Grüße</a>"), "{list}");
    assert!(list.contains("<a href=\"mailbox/emails.json\">"));
    let (_, mail) = server.get("/mailbox/emails/1").await;
    assert!(mail.contains("<a href=\"../../mailbox\">") && mail.contains("href=\"1/source\""), "{mail}");
    let (head, source) = server.get("/mailbox/emails/1/source").await;
    assert!(head.contains("content-disposition: attachment") && head.contains("message/rfc822"), "{head}");
    assert_eq!(source, "Subject: =?utf-8?B?R3LDvMOfZQ==?=\r\n\r\nhello\r\n.dot\r\n");
    for missing in ["/mailbox/emails/2", "/mailbox/emails/2/source", "/mailbox/emails/0"] {
        assert!(server.get(missing).await.0.starts_with("http/1.1 404"), "{missing}");
    }
    server.end().await;
}

#[tokio::test]
async fn list_is_newest_first_paged_and_searchable() {
    let server = TestServer::with(SinkOptions { keep_bodies: 10, ..SinkOptions::default() }).await;
    for number in 1..=60 {
        let name = if number % 20 == 0 { "Special" } else { "plain" };
        deliver(&server.sink, &format!("{name}-{number}@x.test"), "Subject: s\r\n\r\nhello").await;
    }
    let (_, first) = server.get("/mailbox").await;
    let (_, second) = server.get("/mailbox?recipient=&page=2&per_page=1").await;
    assert!(first.find("Special-60@").unwrap() < first.find("plain-59@").unwrap());
    assert!(first.contains("plain-11@") && !first.contains("plain-10@") && first.contains("Page 1 of 2"));
    assert!(second.contains("plain-10@") && !second.contains("plain-11@") && !second.contains(">Older<"));
    let (_, found) = server.get("/mailbox?recipient=sPECIAL").await;
    assert!(found.contains("3 found") && !found.contains("plain-"));
    let (_, beyond) = server.get("/mailbox?page=18446744073709551615").await;
    assert!(beyond.contains("No email here"));

    let (_, json) = server.get("/mailbox/emails.json?recipient=special&per_page=2").await;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let numbers: Vec<_> = rows.iter().map(|row| row["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [60, 40]);
    assert_eq!((&rows[0]["subject"], &rows[0]["has_text"]), (&"s".into(), &true.into()));
    assert_eq!((&rows[1]["subject"], &rows[1]["has_text"]), (&serde_json::Value::Null, &false.into()));
    assert_eq!(rows[0]["recipient"], "Special-60@x.test");
    server.end().await;
}
